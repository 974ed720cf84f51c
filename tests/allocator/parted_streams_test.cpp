// Streams whose steps vary, each at a time of its own: what they take of each other, and that they part.
#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/byte_units.h"

namespace cistern {
namespace {

class PartedStreams : public ::testing::Test {
 protected:
  static constexpr int kOperations = 400'000;
  static constexpr int kLook = 25'000;  // operations until somebody looks

  PartedStreams() {
    for (std::size_t& bytes : sizes_) bytes = (4 * kKibi << random_() % 13) + 512 * (random_() % 1000);
  }
  ~PartedStreams() override { allocator().check(); }
  virtual CachingAllocator& allocator() { return allocator_; }

  // A step takes blocks and frees them from the last to the first; each is of a length of its own.
  struct Program {
    StreamHandle stream;
    std::vector<void*> kept = {};
    double length = 0;
    bool goes_back = false;
  };
  void advance(Program& program) {
    if (program.goes_back) {
      allocator().deallocate(program.kept.back());
      program.kept.pop_back();
      program.goes_back = !program.kept.empty();
      return;
    }
    const std::size_t at = program.kept.size();
    if (at == 0) program.length = 0.25 + 0.75 * static_cast<double>(random_() % 4096) / 4096;
    const double bytes = program.length * static_cast<double>(sizes_[at]);
    program.kept.push_back(allocator().allocate(1 + static_cast<std::size_t>(bytes), program.stream));
    program.goes_back = at + 1 == sizes_.size();
  }
  void side_by_side(int operations) {
    for (int i = 0; i < operations; ++i) advance(programs_[random_() % programs_.size()]);
  }
  void in_turn(int operations) {
    std::size_t turn = 0;
    for (int i = 0; i < operations; ++i) {
      advance(programs_[turn]);
      if (programs_[turn].kept.empty()) turn = (turn + 1) % programs_.size();
    }
  }
  [[nodiscard]] std::int64_t hand_overs() {
    std::int64_t all = 0;
    for (const HandOverStats& stats : allocator().hand_over_stats()) all += stats.hand_overs;
    return all;
  }
  [[nodiscard]] bool are_apart() {
    std::size_t alone = 0;
    for (const StreamStats& stats : allocator().stream_stats())
      for (const Program& program : programs_)
        alone += stats.stands_alone && stats.stream == reinterpret_cast<std::intptr_t>(program.stream) ? 1 : 0;
    EXPECT_TRUE(alone == 0 || alone == programs_.size());
    return alone != 0;
  }
  void part() {
    for (int i = 0; i < kOperations && !are_apart(); i += kLook) side_by_side(kLook);
    EXPECT_TRUE(are_apart());
  }
  [[nodiscard]] std::int64_t reserved() { return allocator().memory_stats().reserved_bytes.all.current; }
  [[nodiscard]] std::int64_t most_live() { return allocator().memory_stats().allocated_bytes.all.peak; }

  std::mt19937_64 random_{20261128};
  std::array<std::size_t, 40> sizes_{};
  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};
  const DriverApi api_ = driver_.api();
  CachingAllocator allocator_{{.driver = &api_, .options = AllocatorOptions::parse("oom_dump:off,policy:paged")}};
  std::array<Program, 2> programs_{{{driver_.create_stream()}, {driver_.create_stream()}}};
};

TEST_F(PartedStreams, ThoseThatSaveNothingBySharingPart) {
  side_by_side(2 * kLook);
  const std::int64_t before = hand_overs();
  side_by_side(kLook);
  const std::int64_t while_sharing = hand_overs() - before;
  EXPECT_GT(while_sharing, 500);
  part();
  const std::int64_t reserved_when_parted = reserved();
  side_by_side(2 * kLook);
  const std::int64_t before_look = hand_overs();
  side_by_side(kLook);
  EXPECT_LT(hand_overs() - before_look, while_sharing / 20);
  EXPECT_TRUE(are_apart());
  constexpr std::int64_t kPage = 2 * kSignedMega;
  EXPECT_LE(reserved(), std::max(reserved_when_parted, most_live() / kPage * 9 / 8 * kPage) + 2 * kPage);
}

// Alone they would need twice as much.
TEST_F(PartedStreams, ThoseThatTakeTurnsDoNot) {
  in_turn(kOperations);
  EXPECT_GT(hand_overs(), 1000);
  EXPECT_FALSE(are_apart());
  EXPECT_LE(reserved(), most_live() * 3 / 2);
}

// What they had apart does not keep those from sharing that take turns later.
TEST_F(PartedStreams, ThoseThatCameToTakeTurnsHaveOthersBytesBeforeMoreIsCreated) {
  part();
  for (std::size_t& bytes : sizes_) bytes *= 3;
  in_turn(kLook);
  EXPECT_LE(reserved(), most_live() + most_live() / 4);
}

TEST_F(PartedStreams, EmptyingTheCacheBringsThemTogether) {
  part();
  allocator().empty_cache();
  EXPECT_FALSE(are_apart());
  const std::int64_t before = hand_overs();
  side_by_side(kLook);
  EXPECT_GT(hand_overs() - before, 200);
}

// It was stalled too often for that, and they are not.
TEST_F(PartedStreams, OneThatStandsAloneHasNoneOfTheirBytes) {
  const StreamHandle first = driver_.create_stream();
  const StreamHandle alone = driver_.create_stream();
  for (int round = 0; round < 20; ++round)
    for (const StreamHandle stream : {first, alone}) {
      void* const block = allocator().allocate(64 * kMega, stream);
      driver_.launch(stream, {}, {{block, 1024}}, std::chrono::milliseconds(10), [] {});
      allocator().deallocate(block);
    }
  driver_.run_until_idle();
  std::array<void*, 2> kept = {allocator().allocate(64 * kMega, first), allocator().allocate(64 * kMega, alone)};
  part();
  for (Program& program : programs_)
    while (!program.kept.empty()) advance(program);
  const std::int64_t before = reserved();
  void* const block = allocator().allocate(512 * kMega, alone);
  EXPECT_GE(reserved() - before, 512 * kSignedMega);
  for (void* const one : {block, kept[0], kept[1]}) allocator().deallocate(one);
}

TEST_F(PartedStreams, WhereALimitRefusesMoreTheyHaveOthersBytes) {
  part();
  const double all = static_cast<double>(4096 * kMega);
  allocator().set_memory_fraction(static_cast<double>(reserved()) / all);
  EXPECT_NO_THROW(side_by_side(4 * kLook));
}

class PartedStreamsThatWait : public PartedStreams {
 protected:
  CachingAllocator& allocator() override { return waiting_; }
  CachingAllocator waiting_{
      {.driver = &api_, .options = AllocatorOptions::parse("oom_dump:off,policy:paged,stream_hand_over:wait")}};
};

TEST_F(PartedStreamsThatWait, ThoseThatAreToWaitDoNotPart) {
  side_by_side(kOperations);
  EXPECT_FALSE(are_apart());
}

}  // namespace
}  // namespace cistern
