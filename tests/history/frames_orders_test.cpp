// Frames that a table gives up while a copy of it is read: every order of two threads' steps, to a bound.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>

#include "stats/raw_frames.h"
#include "tests/allocator/delaying_processors.h"
#include "tests/allocator/every_order.h"
#include "tests/races/choices.h"

namespace cistern {
namespace testing {
namespace {

// What became of frames, which are freed in the end: so that who still reads them does no harm.
class WatchedFrames {
 public:
  WatchedFrames() { current = this; }
  ~WatchedFrames() {
    current = nullptr;
    for (std::uintptr_t* const words : freed_) delete[] words;
  }
  WatchedFrames(const WatchedFrames&) = delete;
  WatchedFrames& operator=(const WatchedFrames&) = delete;

  void free(std::uintptr_t* words) {
    if (is_read.load(std::memory_order_relaxed) || !freed_.insert(words).second) ++wrong_;
  }
  [[nodiscard]] std::size_t freed() const { return freed_.size(); }
  // Times that frames were freed while they were read, as far as who freed them could see, or twice.
  [[nodiscard]] int wrong() const { return wrong_; }

  DelayingProcessors::Atomic<bool> is_read{true};
  static inline WatchedFrames* current = nullptr;

 private:
  std::set<std::uintptr_t*> freed_;
  int wrong_ = 0;
};

}  // namespace
}  // namespace testing

using DelayedFramesHold = BasicFramesHold<testing::DelayingProcessors>;

template <>
void DelayedFramesHold::free(std::uintptr_t* words) noexcept {
  while (words != nullptr) {
    auto* const next = reinterpret_cast<std::uintptr_t*>(words[0]);
    testing::WatchedFrames::current->free(words);
    words = next;
  }
}

namespace {

using testing::in_every_order;

constexpr std::uintptr_t kFrame = 0x1234;

RawFrames some_frames() { return {&kFrame, 1}; }

struct TableWorld {
  testing::WatchedFrames frames;
  DelayedFramesHold table = DelayedFramesHold::make();
  DelayedFramesHold copy = table.share();
};

template <class Table, class Copy>
void expect_freed(std::size_t freed, const Table& table, const Copy& copy) {
  in_every_order(
      4, [] { return std::make_unique<TableWorld>(); }, table, copy,
      [freed](TableWorld& world, const Choices& order) {
        EXPECT_EQ(world.frames.wrong(), 0) << order;
        EXPECT_EQ(world.frames.freed(), freed) << order;
      });
}

void read_and_let_go(TableWorld& world) {
  world.frames.is_read.store(false, std::memory_order_relaxed);
  world.copy.reset();
}

TEST(FramesHoldInterleaving, WhatATableGivesUpIsFreedBehindItsReaders) {
  expect_freed(
      3,
      [](TableWorld& world) {
        for (int i = 0; i < 3; ++i) world.table.give_up(some_frames());
        world.table.reset();
      },
      read_and_let_go);
}

// The last hold frees it, whose ever it is.
TEST(FramesHoldInterleaving, ATableThatGoesLeavesItToItsReaders) {
  expect_freed(
      1,
      [](TableWorld& world) {
        world.table.give_up(some_frames());
        world.table.reset();
      },
      read_and_let_go);
}

}  // namespace
}  // namespace cistern
