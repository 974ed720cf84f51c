// The few frees that a stream waits for by itself: in which order they are asked, and what stays.
#include "allocator/awaited_frees.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace cistern {
namespace {

// Events are their numbers; a driver that says of each what the test says.
class AwaitedFreesTest : public ::testing::Test {
 protected:
  AwaitedFreesTest() {
    api_.event_query = {this, [](void* self, CUevent event) {
                          auto& test = *static_cast<AwaitedFreesTest*>(self);
                          const auto number = reinterpret_cast<std::uintptr_t>(event);
                          test.asked_.push_back(number);
                          return test.results_[number];
                        }};
    api_.event_destroy = {this, [](void*, CUevent) { return CUDA_SUCCESS; }};
    for (AwaitedFrees& frees : frees_) frees.set_promised(AwaitedFrees::kMost);
  }
  [[nodiscard]] static CUevent event(std::uintptr_t number) { return reinterpret_cast<CUevent>(number); }
  void add(std::uintptr_t number, std::uint64_t stream, std::size_t list = 0) {
    add_event(number, number, stream, list);
    frees_[list].begin(&blocks_[number]);
  }
  // The block of that number waits for that event; for number 0 it is being recorded.
  void add_event(std::size_t block, std::uintptr_t number, std::uint64_t stream, std::size_t list = 0) {
    blocks_[block].address = 512 * (block + 1);
    recordings_[block].address = blocks_[block].address;
    recordings_[block].block = &blocks_[block];
    frees_[list].add(0, {nullptr, stream}, recordings_[block], added_++, 0);
    if (number != 0) recorded(block, stream, number, list);
  }
  void recorded(std::size_t block, std::uint64_t stream, std::uintptr_t number, std::size_t list = 0) {
    AwaitedFrees::Entry* const entry = frees_[list].find(recordings_[block], {nullptr, stream});
    ASSERT_NE(entry, nullptr);
    entry->event = event(number);
    entry->recording = nullptr;
  }
  template <std::size_t kLists>
  CUresult poll_lists(std::span<AwaitedFrees* const, kLists> lists, bool completes) {
    return AwaitedFrees::Merged<kLists>(lists).poll(
        api_, pool_, [&](const AwaitedFrees::Entry& entry) { return behind_.contains(entry.stream.id); },
        [&](std::size_t list, const AwaitedFrees::Entry& entry) {
          EXPECT_EQ(lists[list]->block_at(entry.address), entry.block);
          if (!completes) return false;
          completed_.push_back(static_cast<std::uintptr_t>(entry.block - blocks_.data()));
          if (!lists[list]->has_others(entry)) lists[list]->end(entry.block);
          return true;
        });
  }
  CUresult poll(bool completes = true) {
    const std::array<AwaitedFrees* const, 1> first = {frees_.data()};
    return poll_lists<1>(first, completes);
  }
  CUresult poll_all(bool completes = true) {
    const std::array<AwaitedFrees*, 3> all = {frees_.data(), &frees_[1], &frees_[2]};
    return poll_lists<std::dynamic_extent>(all, completes);
  }
  using Numbers = std::vector<std::uintptr_t>;

  DriverApi api_;
  EventPool pool_{api_};
  std::vector<Block> blocks_ = std::vector<Block>(AwaitedFrees::kMost + 1);
  std::array<AwaitedFrees::Recording, AwaitedFrees::kMost + 1> recordings_;
  std::map<std::uintptr_t, CUresult> results_;
  std::set<std::uint64_t> behind_;  // streams whose events are not asked for
  Numbers asked_;
  Numbers completed_;
  std::uint64_t added_ = 0;
  std::array<AwaitedFrees::Storage, 3> storage_{};
  std::array<AwaitedFrees, 3> frees_{AwaitedFrees(storage_[0]), AwaitedFrees(storage_[1]), AwaitedFrees(storage_[2])};
};

TEST_F(AwaitedFreesTest, StreamsAreAskedByDescendingIdAndEachInTheOrderOfItsFrees) {
  add(1, 5);
  add(2, 9);
  add(3, 5);
  add(4, 7);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{2, 4, 1, 3}));
  EXPECT_TRUE(frees_[0].empty());
}

TEST_F(AwaitedFreesTest, AStreamsFirstEventThatIsNotDoneHidesItsOtherOnesAlone) {
  add(1, 5);
  add(2, 5);
  add(3, 3);
  results_[1] = CUDA_ERROR_NOT_READY;
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(asked_, (Numbers{1, 3}));
  EXPECT_EQ(completed_, (Numbers{3}));
  results_[1] = CUDA_SUCCESS;
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{3, 1, 2}));
}

TEST_F(AwaitedFreesTest, AnEventThatIsBeingRecordedIsNotAskedFor) {
  add(0, 5);
  add(1, 5);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_TRUE(asked_.empty());
  recorded(0, 5, 2);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{0, 1}));
  EXPECT_EQ(frees_[0].find(recordings_[0], {nullptr, 5}), nullptr);
}

TEST_F(AwaitedFreesTest, WhatFailsOrIsNotTakenEndsTheRoundAndStaysWithTheRest) {
  add(1, 9);
  add(2, 5);
  add(3, 3);
  results_[2] = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_EQ(poll(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(completed_, (Numbers{1}));
  results_[2] = CUDA_SUCCESS;
  EXPECT_EQ(poll(false), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(frees_[0].entries().size(), 2U);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{1, 2, 3}));
}

TEST_F(AwaitedFreesTest, ThereIsRoomForWhatWasPromised) {
  frees_[0].set_promised(2);
  add(1, 5);
  EXPECT_EQ(frees_[0].room(), 1U);
  add(2, 5);
  EXPECT_EQ(frees_[0].room(), 0U);
}

TEST_F(AwaitedFreesTest, EventsOfCompletedFreesAreUsedAgain) {
  add(1, 5);
  EXPECT_EQ(frees_[0].take_idle_event(), nullptr);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(frees_[0].take_idle_event(), event(1));
  EXPECT_EQ(frees_[0].take_idle_event(), nullptr);
}

TEST_F(AwaitedFreesTest, ListsOfSeveralStreamsAreAskedAsOne) {
  add(1, 5, 0);
  add(2, 9, 1);
  add(3, 5, 2);
  add(4, 5, 1);
  add(5, 7, 0);
  EXPECT_EQ(poll_all(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{2, 5, 1, 3, 4}));
  for (AwaitedFrees& frees : frees_) {
    EXPECT_TRUE(frees.empty());
    EXPECT_TRUE(frees.has_idle_event());
  }
}

TEST_F(AwaitedFreesTest, WhatAStreamIsNotDoneWithHidesItsLaterEventsInAllLists) {
  add(1, 5, 1);
  add(2, 5, 0);
  add(3, 3, 2);
  add(4, 5, 1);
  results_[1] = CUDA_ERROR_NOT_READY;
  EXPECT_EQ(poll_all(), CUDA_SUCCESS);
  EXPECT_EQ(asked_, (Numbers{1, 3}));
  EXPECT_EQ(frees_[0].entries().size(), 1U);
  EXPECT_EQ(frees_[1].entries().size(), 2U);
  EXPECT_TRUE(frees_[2].empty());
  results_[1] = CUDA_SUCCESS;
  EXPECT_EQ(poll_all(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{3, 1, 2, 4}));
}

TEST_F(AwaitedFreesTest, WhatEndsTheRoundOfSeveralListsLeavesTheRestInEach) {
  add(1, 9, 0);
  add(2, 5, 1);
  add(3, 3, 0);
  add(4, 5, 2);
  results_[2] = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_EQ(poll_all(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(completed_, (Numbers{1}));
  results_[2] = CUDA_SUCCESS;
  EXPECT_EQ(poll_all(false), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(poll_all(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{1, 2, 4, 3}));
}

TEST_F(AwaitedFreesTest, StreamsThatAreKnownNotToBeDoneAreNotAsked) {
  add(1, 9);
  add(2, 5);
  behind_ = {9};
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(asked_, (Numbers{2}));
  behind_ = {};
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{2, 1}));
}

TEST_F(AwaitedFreesTest, ABlockThatTwoUsedIsDoneWithItsLastEvent) {
  add_event(1, 1, 9);
  add_event(1, 2, 5);
  frees_[0].begin(&blocks_[1]);
  EXPECT_TRUE(frees_[0].has_others(frees_[0].entries().front()));
  results_[2] = CUDA_ERROR_NOT_READY;
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(frees_[0].blocks().size(), 1U);
  EXPECT_FALSE(frees_[0].has_others(frees_[0].entries().front()));
  results_[2] = CUDA_SUCCESS;
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_TRUE(frees_[0].blocks().empty());
}

// As after steps that were followed: entries have addresses alone, and recordings no block.
TEST_F(AwaitedFreesTest, BlocksAreKnownByTheirAddressesAgain) {
  add_event(1, 1, 9);
  add_event(1, 2, 5);
  add_event(2, 0, 7);
  EXPECT_FALSE(frees_[0].know_blocks()) << "there are none";
  std::array<Block, 2> others;
  others[0].address = recordings_[1].address;
  others[1].address = recordings_[2].address;
  recordings_[2].block = nullptr;
  for (Block& block : others) frees_[0].begin(&block);
  EXPECT_TRUE(frees_[0].know_blocks());
  EXPECT_EQ(others[0].pending_events, 2U);
  EXPECT_EQ(others[1].pending_events, 1U);
  EXPECT_EQ(recordings_[2].block, &others[1]);
  EXPECT_EQ(frees_[0].block_at(others[1].address), &others[1]);
  EXPECT_EQ(frees_[0].block_at(512), nullptr);
  EXPECT_EQ(frees_[0].entries().front().block, &others[0]);
}

// In the middle of a round, when one stays in another place than it was: as where steps end with the third.
TEST_F(AwaitedFreesTest, OneThatStaysIsKnownOnceWhileOthersAreAskedFor) {
  add(1, 9);
  add(2, 5);
  add(3, 3);
  results_[2] = CUDA_ERROR_NOT_READY;
  const std::array<AwaitedFrees* const, 1> lists = {frees_.data()};
  const auto completed = [&](std::size_t, const AwaitedFrees::Entry& entry) {
    EXPECT_TRUE(frees_[0].know_blocks());
    EXPECT_EQ(blocks_[2].pending_events, 1U);
    frees_[0].end(entry.block);
    return true;
  };
  const auto is_behind = [](const AwaitedFrees::Entry&) { return false; };
  EXPECT_EQ(AwaitedFrees::Merged<1>(lists).poll(api_, pool_, is_behind, completed), CUDA_SUCCESS);
  EXPECT_EQ(frees_[0].blocks().size(), 1U);
}

}  // namespace
}  // namespace cistern
