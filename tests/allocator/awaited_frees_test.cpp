// The few frees that a stream waits for by itself: in which order they are asked, and what stays.
#include "allocator/awaited_frees.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
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
    frees_[list].add(0, {nullptr, stream}, &blocks_[number], added_++);
    if (number != 0) frees_[list].find(&blocks_[number])->event = event(number);
  }
  template <std::size_t kLists>
  CUresult poll_lists(std::span<AwaitedFrees* const, kLists> lists, bool completes) {
    return AwaitedFrees::Merged<kLists>(lists).poll(api_, pool_, [&](std::size_t list, Block& block) {
      EXPECT_NE(lists[list]->find(&block), nullptr);
      if (completes) completed_.push_back(static_cast<std::uintptr_t>(&block - blocks_.data()));
      return completes;
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
  std::map<std::uintptr_t, CUresult> results_;
  Numbers asked_;
  Numbers completed_;
  std::uint64_t added_ = 0;
  std::array<AwaitedFrees, 3> frees_;
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
  frees_[0].find(&blocks_[0])->event = event(2);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{0, 1}));
  EXPECT_EQ(frees_[0].find(&blocks_[0]), nullptr);
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
  EXPECT_TRUE(frees_[0].has_room());
  add(2, 5);
  EXPECT_FALSE(frees_[0].has_room());
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

}  // namespace
}  // namespace cistern
