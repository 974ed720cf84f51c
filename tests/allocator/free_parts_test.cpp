// The index of what free runs offer: what a walk over all of them finds.

#include "allocator/free_parts.h"
#include "tests/allocator/page_sizes.h"
#include "tests/allocator/plain_free_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace cistern {
namespace {

class FreePartsTest : public ::testing::Test {
 protected:
  explicit FreePartsTest(std::int64_t pages_of_long = FreeParts::kPagesOfLong) : parts_(table_, pages_of_long) {}

  using Numbers = std::vector<PageTable::Handle>;

  PageTable::Handle settle(std::int32_t pages) {
    const auto handle = table_.add_handle(pages);
    bring(handle);
    return handle;
  }
  // The handle is mapped somewhere else, which is its home.
  void bring(PageTable::Handle handle) {
    const Sectors address = table_.reserve(arena_, table_.pages_of(handle));
    table_.map(handle, address);
    table_.move_home(handle, address);
  }
  [[nodiscard]] DonorSearch search(const DonorRequest& request) {
    runs_.find_parts();
    return {parts_, runs_, table_, request};
  }
  [[nodiscard]] Numbers donors(const DonorRequest& request, std::int64_t pages, bool may_exceed) {
    DonorSearch found = search(request);
    Numbers numbers;
    for (const FreeHandle& handle : found.choose(pages)) {
      EXPECT_EQ(handle.pages, table_.pages_of(handle.handle));
      EXPECT_EQ(handle.address, table_.home_of(handle.handle));
      numbers.push_back(handle.handle);
      pages -= handle.pages;
    }
    if (may_exceed && pages > 0)
      if (const auto larger = found.first_left()) numbers.push_back(larger->handle);
    return numbers;
  }
  [[nodiscard]] Numbers all_donors(const DonorRequest& request) {
    return donors(request, std::numeric_limits<std::int64_t>::max(), false);
  }
  [[nodiscard]] PlainFragments fragments(StreamNumber stream, bool of_all_streams) {
    runs_.find_parts();
    return {all_of(parts_.endings(stream, of_all_streams)), all_of(parts_.beginnings(stream, of_all_streams))};
  }

  PageTable table_{kPageOf8};
  PageTable::Arena arena_ = table_.add_arena();
  Sectors base_ = PageTable::begin_of(arena_);
  FreeParts parts_;
  FreeRuns runs_{&parts_};
};

TEST_F(FreePartsTest, WholeHandlesOwnFirstThenLargeThenOfSmallRuns) {
  for (const int pages : {1, 1, 4, 1, 2, 1}) settle(pages);  // at pages 0, 1, 2, 6, 7, 9
  runs_.give(base_ + 3, 13, 0);                              // 1 whole, 0 in part
  runs_.give(base_ + 16, 24, 1);                             // 2, but for its last page
  runs_.give(base_ + 48, 32, 0);                             // 3, 4 and 5
  EXPECT_EQ(all_donors({0, true}), (Numbers{4, 1, 3, 5}));
  runs_.give(base_ + 40, 8, 1);
  EXPECT_EQ(all_donors({0, true}), (Numbers{4, 1, 3, 5, 2}));
  EXPECT_EQ(all_donors({0, false}), (Numbers{4, 1, 3, 5}));
  EXPECT_EQ(all_donors({1, true}), (Numbers{2, 4, 1, 3, 5}));
  EXPECT_EQ(all_donors({0, true, base_ + 48, base_ + 56}), (Numbers{4, 1, 5, 2}));
  EXPECT_EQ(all_donors({0, true, 0, 0, {4, 2}}), (Numbers{1, 3, 5}));
}

TEST_F(FreePartsTest, DonorsAreNoLargerThanWhatIsMissingUnlessNothingElse) {
  for (const int pages : {8, 2, 2, 1}) settle(pages);
  runs_.give(base_, 13 * 8, 0);
  EXPECT_EQ(donors({0}, 3, true), (Numbers{1, 3}));
  EXPECT_EQ(donors({0}, 5, true), (Numbers{1, 2, 3}));
  EXPECT_EQ(donors({0}, 6, false), (Numbers{1, 2, 3}));
  EXPECT_EQ(donors({0}, 6, true), (Numbers{1, 2, 3, 0}));
  EXPECT_EQ(donors({0}, 0, true), Numbers());
}

TEST_F(FreePartsTest, AHandleThatIsFreeInPartsOfSeveralStreamsIsOfAllStreams) {
  for (const int pages : {1, 1, 1}) settle(pages);
  runs_.give(base_ + 8, 3, 0);
  runs_.give(base_ + 13, 3, 1);
  EXPECT_EQ(all_donors({0, true}), Numbers());
  runs_.give(base_ + 11, 2, 2);
  EXPECT_EQ(all_donors({0, true}), (Numbers{1}));
  EXPECT_EQ(all_donors({0, false}), Numbers());
  runs_.give(base_ + 16, 8, 1);
  EXPECT_EQ(all_donors({0, true}), (Numbers{2, 1})) << "a run of 11 sectors goes before 16 side by side";
  runs_.take(base_ + 12, 1);
  EXPECT_EQ(all_donors({0, true}), (Numbers{2}));
  runs_.give(base_ + 12, 1, 2);
  runs_.give(base_, 8, 0);
  EXPECT_EQ(all_donors({2, true}), (Numbers{0, 2, 1}));
  runs_.take(base_ + 4, 6);  // from the one into the other
  EXPECT_EQ(all_donors({2, true}), (Numbers{2}));
}

TEST_F(FreePartsTest, FragmentsAtTheEdgesOfHandles) {
  for (const int pages : {1, 1, 2}) settle(pages);
  runs_.give(base_ + 3, 8, 0);   // the end of 0, the beginning of 1
  runs_.give(base_ + 13, 2, 0);  // the middle of 1
  runs_.give(base_ + 16, 5, 1);  // the beginning of 2
  runs_.give(base_ + 22, 6, 0);  // around the edge inside 2
  PlainFragments found = fragments(0, false);
  EXPECT_EQ(found.endings, (std::vector<Fragment>{{5, base_ + 3, {0, 0}}}));
  EXPECT_EQ(found.beginnings, (std::vector<Fragment>{{3, base_ + 8, {1, 0}}}));
  found = fragments(0, true);
  EXPECT_EQ(found.beginnings, (std::vector<Fragment>{{3, base_ + 8, {1, 0}}, {5, base_ + 16, {2, 0}}}));
}

TEST_F(FreePartsTest, TheSizesOfFragmentsAreFoundOneAfterTheOther) {
  std::mt19937_64 random(20261123);
  const PageSize page(13);  // more sizes than one word has words
  Fragments::Room room = Fragments::room_for(page, 2);
  Fragments fragments(page, std::pmr::get_default_resource(), room, 1);
  std::set<Fragment> plain;
  for (int round = 0; round < 3000; ++round) {
    const Fragment part{
        static_cast<Sectors>(1 + random() % (round % 2 == 0 ? 8191 : 70)), static_cast<Sectors>(random() % 4), {}};
    if (plain.insert(part).second) {
      fragments.add(part);
    } else {
      plain.erase(part);
      fragments.remove(part);
    }
    if (random() % 4 == 0 && !plain.empty()) {
      const Fragment gone = *plain.begin();
      plain.erase(gone);
      fragments.remove(gone);
    }
    const auto from = static_cast<Sectors>(random() % 9000);
    const auto next = plain.lower_bound({from, 0, {}});
    ASSERT_EQ(fragments.size_from(from), next == plain.end() ? std::nullopt : std::optional(next->sectors));
    if (next != plain.end()) {
      ASSERT_EQ(*fragments.first_of(next->sectors, 0), *next);
    }
    ASSERT_EQ(fragments.size(), plain.size());
    fragments.audit();
  }
}

// The parameter: from how many pages on a run is long.
class FreePartsOfLongRuns : public FreePartsTest, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  FreePartsOfLongRuns() : FreePartsTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Pages, FreePartsOfLongRuns, ::testing::Values(0, 3, FreeParts::kPagesOfLong));

// Bytes come free and are taken in random pieces by three streams, and in the end handles find other homes, which lie
// apart.
TEST_P(FreePartsOfLongRuns, RandomProgramsFindWhatAWalkOverAllRunsFinds) {
  std::mt19937_64 random(20261123);
  const auto below = [&](Sectors most) { return static_cast<Sectors>(random() % static_cast<std::uint64_t>(most)); };
  std::vector<PageTable::Handle> handles;
  for (int i = 0; i < 24; ++i) handles.push_back(settle(1 << random() % 4));
  parts_.provide(handles.size());
  for (int round = 0; round < 12000; ++round) {
    const PageTable::Handle handle = handles[random() % handles.size()];
    const Sectors home = table_.home_of(handle);
    const Sectors sectors = table_.sectors_of(handle);
    const Sectors begin = home + (random() % 2 == 0 ? 0 : below(sectors));
    const Sectors count = random() % 2 == 0 ? home + sectors - begin : 1 + below(home + sectors - begin);
    bool is_taken = true;
    for (Sectors at = begin; at < begin + count; ++at) is_taken = is_taken && !runs_.is_free(at, 1);
    if (is_taken)
      runs_.give(begin, count, static_cast<StreamNumber>(random() % 8 == 0 ? 1 + random() % 2 : 0));
    else if (random() % (round % 3000 < 1500 ? 3 : 30) == 0 && runs_.is_free(begin, count))
      runs_.take(begin, count);
    if (round >= 6000 && random() % 16 == 0 && runs_.is_free(home, sectors)) {
      runs_.take(home, sectors);
      bring(handle);
      if (random() % 4 != 0) runs_.give(table_.home_of(handle), sectors, 0);
    }
    // All is looked for now after each change, now after some or many: an audit of a placement looks for it, too.
    if (random() % std::array{1, 8, 300}[static_cast<std::size_t>(round / 1000 % 3)] != 0) continue;
    runs_.audit();
    runs_.find_parts();
    parts_.audit(runs_);

    DonorRequest request{static_cast<StreamNumber>(random() % 3), random() % 2 == 0};
    if (const auto run = runs_.ending_at(home + sectors, request.stream); run && random() % 2 == 0) {
      request.kept_end = run->end();
      request.kept_begin = request.kept_end - 1 - below(run->sectors);
    }
    if (random() % 4 == 0) request.kept[random() % 2] = handle;
    const auto plain = plain_free_handles(runs_, table_, request);
    ASSERT_EQ(all_donors(request), plain) << "round " << round;
    const auto pages = static_cast<std::int64_t>(random() % 40);
    const bool may_exceed = random() % 2 == 0;
    ASSERT_EQ(donors(request, pages, may_exceed), plain_donors(plain, table_, pages, may_exceed)) << "round " << round;

    const PlainFragments parts = plain_fragments(runs_, table_, request.stream, request.of_all_streams);
    const PlainFragments found = fragments(request.stream, request.of_all_streams);
    ASSERT_EQ(found.endings, parts.endings) << "round " << round;
    ASSERT_EQ(found.beginnings, parts.beginnings) << "round " << round;
  }
}

// More than are noted one by one.
TEST_F(FreePartsTest, WhatManyRunsThatCameAtOnceOfferIsFound) {
  for (int i = 0; i < 1000; ++i) {
    const Sectors home = table_.home_of(settle(1));
    parts_.provide(static_cast<std::size_t>(i) + 1);
    runs_.give(home + (i % 2 == 0 ? 0 : 5), 3, 0);
  }
  for (int round = 0; round < 2; ++round) {
    const PlainFragments found = fragments(0, false);
    EXPECT_EQ(found.endings.size(), 500U);
    EXPECT_EQ(found.beginnings.size(), 500U);
    parts_.audit(runs_);
  }
}

// Room for runs grows by half, and room to note them as it is asked for: no more are noted than there is room for.
TEST_F(FreePartsTest, NoMoreRunsAreNotedThanThereIsRoomFor) {
  for (Sectors i = 0; i < 120'000; ++i) runs_.give(base_ + 2 * i, 1, 0);
  runs_.audit();
}

TEST_F(FreePartsTest, TheAuditMissesNothing) {
  for (const int pages : {1, 2, 1}) settle(pages);
  runs_.give(base_ + 3, 27, 0);
  runs_.find_parts();
  EXPECT_NO_THROW(parts_.audit(runs_));
  FreeParts other(table_);
  FreeRuns less(&other);
  less.give(base_ + 3, 26, 0);
  EXPECT_THROW(other.audit(runs_), std::logic_error);
  EXPECT_THROW(parts_.audit(less), std::logic_error);
}

}  // namespace
}  // namespace cistern
