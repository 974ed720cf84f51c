// What serves a request for which no whole pages are left.

#include "allocator/last_window.h"

#include "tests/allocator/page_sizes.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace cistern {
namespace {

class LastWindowTest : public ::testing::Test {
 protected:
  LastWindowTest() {
    for (const int pages : {1, 2, 1, 1}) {  // at pages 0, 1, 3, 4
      const PageTable::Handle handle = table_.add_handle(pages);
      const Sectors address = table_.reserve(arena_, pages);
      table_.map(handle, address);
      table_.move_home(handle, address);
      parts_.provide(4);
    }
  }
  void give(Sectors begin, Sectors count, StreamNumber stream = 0) { runs_.give(base_ + begin, count, stream); }
  [[nodiscard]] std::optional<LastWindow> window(Sectors sectors, std::int64_t most_created = 0,
                                                 bool of_all_streams = false) {
    runs_.find_parts();
    return last_window(parts_, runs_, table_, 0, of_all_streams, sectors, most_created);
  }

  PageTable table_{kPageOf8};
  PageTable::Arena arena_ = table_.add_arena();
  Sectors base_ = PageTable::begin_of(arena_);
  FreeParts parts_{table_};
  FreeRuns runs_{&parts_};
};

TEST_F(LastWindowTest, WholeHandlesThenNewPagesThenTheLongestEnds) {
  give(0, 8);   // 0 whole
  give(9, 15);  // the end of 1, longer than a page
  give(27, 5);  // the end of 2
  give(32, 3);  // and the beginning of 3
  const auto whole = window(8);
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->handles.size(), 1U);
  EXPECT_EQ(whole->handles[0].handle, 0);
  EXPECT_EQ(whole->created, 0);
  EXPECT_EQ(whole->ending.sectors, 0);
  const auto created = window(20, 5);
  ASSERT_TRUE(created);
  EXPECT_EQ(created->created, 2) << "no more than is missing";
  EXPECT_EQ(created->ending.sectors, 0);
  const auto both = window(8 + 15 + 2);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->ending.handle, 1);
  EXPECT_EQ(both->ending.address, base_ + 9);
  EXPECT_EQ(both->ending.sectors, 15);
  EXPECT_EQ(both->beginning.handle, 3);
  EXPECT_EQ(both->beginning.address, base_ + 32);
  EXPECT_EQ(both->beginning.sectors, 2);
  EXPECT_TRUE(window(8 + 15 + 3));
  EXPECT_FALSE(window(8 + 15 + 3 + 1));
  EXPECT_TRUE(window(8 + 15 + 3 + 1, 1));
}

TEST_F(LastWindowTest, OfAnEndingTheLastSectorsServeAndOfABeginningTheFirst) {
  give(9, 15);
  const auto part = window(4);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->ending.address, base_ + 20);
  EXPECT_EQ(part->ending.sectors, 4);
  EXPECT_EQ(part->beginning.sectors, 0);
  runs_.take(base_ + 9, 15);
  give(32, 3);
  const auto first = window(2);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->ending.sectors, 0);
  EXPECT_EQ(first->beginning.address, base_ + 32);
  EXPECT_EQ(first->beginning.sectors, 2);
}

TEST_F(LastWindowTest, BytesOfOtherStreamsOnlyIfAllServe) {
  give(9, 6, 0);
  give(15, 9, 1);
  EXPECT_FALSE(window(1)) << "the stream's own bytes reach no end";
  const auto all = window(15, 0, true);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->ending.address, base_ + 9);
  give(8, 1, 2);
  EXPECT_FALSE(window(1));
  const auto whole = window(16, 0, true);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->handles.size(), 1U) << "in parts of three streams";
}

TEST_F(LastWindowTest, TheLowestStretchThatIsLongEnough) {
  give(2, 3, 0);
  give(9, 6, 0);
  give(15, 9, 1);
  give(30, 9, 2);
  EXPECT_EQ(free_stretch(runs_, 3), base_ + 2);
  EXPECT_EQ(free_stretch(runs_, 4), base_ + 9);
  EXPECT_EQ(free_stretch(runs_, 15), base_ + 9) << "of two streams";
  EXPECT_EQ(free_stretch(runs_, 16), std::nullopt);
}

}  // namespace
}  // namespace cistern
