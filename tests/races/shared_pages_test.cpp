// Threads whose streams serve themselves in the same paged memory: its records are all streams', and an audit finds
// what two changed at once.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

constexpr int kThreads = 2;
constexpr std::array<std::size_t, 5> kSizes = {96 * 1024, 4 * kMega, 160 * 1024, 2 * kMega, 640 * 1024};

class SharedPages : public ::testing::Test {
 protected:
  // Each thread has pages, and room below the peak, before any begins: what it does then takes no other lock.
  void run(const std::function<void(int, StreamHandle)>& work) {
    std::vector<StreamHandle> streams;
    for (int i = 0; i < kThreads; ++i) streams.push_back(driver_.create_stream());
    std::vector<std::vector<void*>> blocks(kThreads);
    for (int i = 0; i < kThreads; ++i)
      for (int block = 0; block < 64; ++block) blocks[i].push_back(allocator_.allocate(8 * kMega, streams[i]));
    for (const auto& of_thread : blocks)
      for (void* block : of_thread) allocator_.deallocate(block);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { work(i, streams[i]); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 0);
    EXPECT_NO_THROW(allocator_.check());
  }
  void pass(std::size_t bytes, StreamHandle stream) { allocator_.deallocate(allocator_.allocate(bytes, stream)); }

  SimulatedDriver driver_{{.capacity_bytes = std::size_t{2} << 30, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:paged,stream_hand_over:done")}};
};

// A free stands until another request comes.
TEST_F(SharedPages, FreesThatStoodAreCarriedOut) {
  run([&](int number, StreamHandle stream) {
    std::mt19937 random(static_cast<std::uint32_t>(number));
    for (long i = 0; i < scaled(200000); ++i) {
      const std::size_t bytes = kSizes[random() % kSizes.size()];
      for (int times = 0; times < 3; ++times) pass(bytes, stream);
    }
  });
}

// Each thread has two streams, and leaves no free to a later turn.
TEST_F(SharedPages, FreesOfThreadsWithSeveralStreamsAreCarriedOutAtOnce) {
  run([&](int number, StreamHandle stream) {
    std::mt19937 random(static_cast<std::uint32_t>(number));
    const std::array<StreamHandle, 2> streams = {stream, driver_.create_stream()};
    std::array<void*, 20> blocks{};
    for (long i = 0; i < scaled(200000); ++i) {
      void*& block = blocks[random() % blocks.size()];
      allocator_.deallocate(block);
      block = allocator_.allocate(kSizes[random() % kSizes.size()], streams[random() % streams.size()]);
    }
    for (void* block : blocks) allocator_.deallocate(block);
  });
}

// Steps that came again are pending until another comes.
TEST_F(SharedPages, StepsThatWereFollowedAreCarriedOut) {
  run([&](int number, StreamHandle stream) {
    std::mt19937 random(static_cast<std::uint32_t>(number));
    for (long part = 0; part < scaled(1500); ++part) {
      for (int round = 0; round < 60; ++round) {
        std::array<void*, kSizes.size()> blocks{};
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          blocks[i] = allocator_.allocate(kSizes[i], stream);
          if (random() % 16 == 0) pass(kMega * (1 + random() % 3), stream);  // a detour
        }
        for (void* block : blocks) allocator_.deallocate(block);
      }
    }
  });
}

}  // namespace
}  // namespace cistern
