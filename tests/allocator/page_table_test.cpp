#include "allocator/page_table.h"
#include "tests/allocator/page_sizes.h"

#include <gtest/gtest.h>

#include <new>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cistern {
namespace {

TEST(PageSizes, EdgesAndCounts) {
  EXPECT_EQ(PageSize().sectors() * kSectorBytes, 2 << 20);
  EXPECT_EQ(kPageOf8.sectors(5), 40);
  EXPECT_EQ(kPageOf8.whole(15), 1);
  EXPECT_EQ(kPageOf8.covering(15), 2);
  EXPECT_EQ(kPageOf8.covering(16), 2);
  EXPECT_EQ(kPageOf8.offset(19), 3);
  EXPECT_EQ(kPageOf8.down(19), 16);
  EXPECT_EQ(kPageOf8.up(17), 24);
  EXPECT_EQ(kPageOf8.up(16), 16);
}

class PageTableTest : public ::testing::Test {
 protected:
  // A handle at a new address, which becomes its home.
  PageTable::Handle settle(PageTable::Arena arena, std::int32_t pages) {
    const PageTable::Handle handle = table_.add_handle(pages);
    const Sectors address = table_.reserve(arena, pages);
    table_.map(handle, address);
    table_.move_home(handle, address);
    return handle;
  }
  std::vector<std::pair<Sectors, Sectors>> pieces(Sectors address, Sectors count) const {
    std::vector<std::pair<Sectors, Sectors>> found;
    EXPECT_TRUE(table_.for_each_piece(address, count, [&](Sectors home, Sectors length) {
      found.emplace_back(home, length);
      return true;
    }));
    return found;
  }

  PageTable table_{kPageOf8};
  PageTable::Arena arena_ = table_.add_arena();
};

TEST_F(PageTableTest, ThereAreNoMoreArenasThanAddresses) {
  while (table_.arenas() < PageTable::kMostArenas) arena_ = table_.add_arena();
  EXPECT_EQ(PageTable::arena_of(PageTable::begin_of(arena_)), arena_);
  EXPECT_LT(PageTable::begin_of(arena_), Sectors{1} << kAddressBits);
  EXPECT_THROW(static_cast<void>(table_.add_arena()), std::bad_alloc);
  EXPECT_EQ(table_.arenas(), PageTable::kMostArenas);
}

TEST_F(PageTableTest, AnAliasShowsTheBytesAtHome) {
  const Sectors begin = table_.begin_of(arena_);
  const auto first = settle(arena_, 2);
  const auto second = settle(arena_, 1);
  const Sectors window = table_.reserve(arena_, 3);
  table_.map(second, window);
  table_.map(first, window + 8);
  EXPECT_EQ(table_.at_home(window + 3), begin + 16 + 3);
  EXPECT_EQ(table_.at_home(window + 8 + 11), begin + 11);
  EXPECT_EQ(table_.mapping_begin(window + 8 + 11), window + 8);
  using Pieces = std::vector<std::pair<Sectors, Sectors>>;
  EXPECT_EQ(pieces(begin + 3, 18), (Pieces{{begin + 3, 18}}));
  EXPECT_EQ(pieces(window + 5, 10), (Pieces{{begin + 21, 3}, {begin, 7}}));
  table_.move_home(first, window + 8);
  EXPECT_EQ(pieces(begin, 24), (Pieces{{window + 8, 16}, {begin + 16, 8}}));
  EXPECT_EQ(table_.home_of(first), window + 8);
  table_.audit();
}

TEST_F(PageTableTest, AMappingIsCoveredByARangeThatHasAllOfIt) {
  settle(arena_, 2);
  settle(arena_, 1);
  settle(arena_, 2);
  const Sectors begin = PageTable::begin_of(arena_);
  EXPECT_TRUE(table_.covers_any(begin, 16)) << "the first, from edge to edge";
  EXPECT_FALSE(table_.covers_any(begin, 15));
  EXPECT_FALSE(table_.covers_any(begin + 1, 22)) << "the first lacks a sector, the second, too";
  EXPECT_TRUE(table_.covers_any(begin + 1, 23)) << "the second one is whole";
  EXPECT_FALSE(table_.covers_any(begin + 17, 22)) << "the second begins before, the third ends behind";
  EXPECT_TRUE(table_.covers_any(begin + 17, 23));
}

TEST_F(PageTableTest, VisitingEndsWhenToldSo) {
  const auto first = settle(arena_, 1);
  settle(arena_, 1);
  const Sectors window = table_.reserve(arena_, 1);
  table_.map(first, window);
  int visits = 0;
  EXPECT_FALSE(table_.for_each_piece(table_.begin_of(arena_) + 8, 16, [&](Sectors, Sectors) {
    ++visits;
    return false;
  }));
  EXPECT_EQ(visits, 1);
}

TEST_F(PageTableTest, ReservedAddressesAreEmptyUntilMappedAndGoBackFromTheEnd) {
  settle(arena_, 1);
  const Sectors begin = table_.begin_of(arena_);
  const Sectors first = table_.reserve(arena_, 2);
  const Sectors second = table_.reserve(arena_, 1);
  EXPECT_TRUE(table_.is_mapped(begin, 8));
  EXPECT_FALSE(table_.is_mapped(begin, 9));
  table_.cancel(first, 2);  // others lie behind
  EXPECT_EQ(table_.end_of(arena_), second + 8);
  table_.cancel(second, 1);
  EXPECT_EQ(table_.end_of(arena_), second);
  EXPECT_FALSE(table_.is_mapped(second, 1));
  EXPECT_FALSE(table_.is_mapped(begin - 1, 1));
  EXPECT_FALSE(table_.is_mapped(table_.begin_of(7), 1));
  table_.audit();
}

TEST_F(PageTableTest, NumbersOfRemovedHandlesAreUsedAgain) {
  settle(arena_, 4);
  const auto planned = table_.add_handle(2);
  EXPECT_EQ(table_.pages(), 6);
  table_.remove_handle(planned);
  EXPECT_EQ(table_.pages(), 4);
  EXPECT_EQ(table_.add_handle(1), planned);
  EXPECT_EQ(table_.sectors_of(planned), 8);
}

TEST_F(PageTableTest, TheAuditSeesAHomeThatIsNotThere) {
  const auto handle = settle(arena_, 2);
  settle(arena_, 2);
  table_.move_home(handle, table_.begin_of(arena_) + 16);
  EXPECT_THROW(table_.audit(), std::logic_error);
  table_.move_home(handle, table_.begin_of(arena_) + 100 * 8);
  EXPECT_THROW(table_.audit(), std::logic_error);
}

// Against a table of single sectors: which byte of which handle shows where.
TEST_F(PageTableTest, RandomMappingsAgreeWithATableOfSectors) {
  std::mt19937_64 random(20261121);
  const PageTable::Arena other = table_.add_arena();
  struct Shown {
    PageTable::Handle handle;
    Sectors offset;
  };
  std::vector<std::vector<Shown>> shown(2);
  std::vector<PageTable::Handle> handles;
  for (int round = 0; round < 400; ++round) {
    const PageTable::Arena arena = random() % 2 == 0 ? arena_ : other;
    const bool is_new = handles.empty() || random() % 3 == 0;
    if (is_new) handles.push_back(table_.add_handle(1 << (random() % 3)));
    const auto handle = is_new ? handles.back() : handles[random() % handles.size()];
    const Sectors address = table_.reserve(arena, table_.pages_of(handle));
    table_.map(handle, address);
    if (is_new || random() % 2 == 0) table_.move_home(handle, address);
    for (Sectors i = 0; i < table_.sectors_of(handle); ++i)
      shown[static_cast<std::size_t>(arena)].push_back({handle, i});
    const auto& bytes = shown[static_cast<std::size_t>(arena)];
    const Sectors begin = static_cast<Sectors>(random() % bytes.size());
    const Sectors count = 1 + static_cast<Sectors>(random() % (bytes.size() - static_cast<std::size_t>(begin)));
    std::vector<Sectors> expected;
    for (Sectors i = begin; i < begin + count; ++i) {
      const auto& [owner, offset] = bytes[static_cast<std::size_t>(i)];
      expected.push_back(table_.home_of(owner) + offset);
    }
    std::vector<Sectors> found;
    for (const auto& [home, length] : pieces(table_.begin_of(arena) + begin, count))
      for (Sectors i = 0; i < length; ++i) found.push_back(home + i);
    ASSERT_EQ(found, expected) << "round " << round;
  }
  table_.audit();
}

}  // namespace
}  // namespace cistern
