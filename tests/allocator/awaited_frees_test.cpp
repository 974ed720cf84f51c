// The few frees that a stream waits for by itself: in which order they are asked, and what stays.
#include "allocator/awaited_frees.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
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
    frees_.set_promised(AwaitedFrees::kMost);
  }
  [[nodiscard]] static CUevent event(std::uintptr_t number) { return reinterpret_cast<CUevent>(number); }
  void add(std::uintptr_t number, std::uint64_t stream) {
    frees_.add(0, {nullptr, stream}, &blocks_[number]);
    if (number != 0) frees_.find(&blocks_[number])->event = event(number);
  }
  CUresult poll(bool completes = true) {
    return frees_.poll(api_, pool_, [&](Block& block) {
      if (completes) completed_.push_back(static_cast<std::uintptr_t>(&block - blocks_.data()));
      return completes;
    });
  }
  using Numbers = std::vector<std::uintptr_t>;

  DriverApi api_;
  EventPool pool_{api_};
  std::vector<Block> blocks_ = std::vector<Block>(AwaitedFrees::kMost + 1);
  std::map<std::uintptr_t, CUresult> results_;
  Numbers asked_;
  Numbers completed_;
  AwaitedFrees frees_;
};

TEST_F(AwaitedFreesTest, StreamsAreAskedByDescendingIdAndEachInTheOrderOfItsFrees) {
  add(1, 5);
  add(2, 9);
  add(3, 5);
  add(4, 7);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{2, 4, 1, 3}));
  EXPECT_TRUE(frees_.empty());
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
  frees_.find(&blocks_[0])->event = event(2);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{0, 1}));
  EXPECT_EQ(frees_.find(&blocks_[0]), nullptr);
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
  EXPECT_EQ(frees_.entries().size(), 2U);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(completed_, (Numbers{1, 2, 3}));
}

TEST_F(AwaitedFreesTest, ThereIsRoomForWhatWasPromised) {
  frees_.set_promised(2);
  add(1, 5);
  EXPECT_TRUE(frees_.has_room());
  add(2, 5);
  EXPECT_FALSE(frees_.has_room());
}

TEST_F(AwaitedFreesTest, EventsOfCompletedFreesAreUsedAgain) {
  add(1, 5);
  EXPECT_EQ(frees_.take_idle_event(), nullptr);
  EXPECT_EQ(poll(), CUDA_SUCCESS);
  EXPECT_EQ(frees_.take_idle_event(), event(1));
  EXPECT_EQ(frees_.take_idle_event(), nullptr);
}

}  // namespace
}  // namespace cistern
