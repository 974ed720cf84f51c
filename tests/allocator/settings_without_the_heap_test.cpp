// Whatever the settings, streams serve themselves: what a setting asks of a hit or a free it asks of the stream's walk.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/allocator/without_the_heaps_lock.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class SettingsWithoutTheHeapsLockTest : public WithoutTheHeapsLockTest,
                                        public ::testing::WithParamInterface<const char*> {
 protected:
  SettingsWithoutTheHeapsLockTest() : WithoutTheHeapsLockTest(GetParam()) {}
  // Far below the peaks.
  void make_room(StreamHandle stream) {
    std::vector<void*> blocks;
    for (int i = 0; i < 128; ++i) blocks.push_back(allocator_.allocate(256 * kKibi, stream));
    for (void* const block : blocks) allocator_.deallocate(block);
  }
};

TEST_P(SettingsWithoutTheHeapsLockTest, PairsComeAndGo) {
  const StreamHandle stream = driver_.create_stream();
  const auto pairs = [&](int count) {
    for (int i = 0; i < count; ++i) allocator_.deallocate(allocator_.allocate(kKibi, stream));
  };
  EXPECT_TRUE(goes_on(
      [&] {
        make_room(stream);
        pairs(100);
      },
      [&] { pairs(100); }));
}

TEST_P(SettingsWithoutTheHeapsLockTest, RandomSizesComeAndGo) {
  const StreamHandle stream = driver_.create_stream();
  std::mt19937_64 random(20261130);
  std::vector<void*> live(16, nullptr);
  const auto replace = [&](int count) {
    for (; count > 0; --count) {
      void*& block = live[random() % live.size()];
      if (block != nullptr) allocator_.deallocate(block);
      block = allocator_.allocate(1 + random() % (256 * kKibi), stream);
    }
  };
  EXPECT_TRUE(goes_on(
      [&] {
        make_room(stream);
        replace(500);
      },
      [&] { replace(100); }));
  for (void* const block : live) allocator_.deallocate(block);
}

INSTANTIATE_TEST_SUITE_P(
    Each, SettingsWithoutTheHeapsLockTest,
    ::testing::Values("policy:expandable", "policy:classic,max_split_size_mb:20",
                      "policy:expandable,max_split_size_mb:64", "policy:paged,max_split_size_mb:20",
                      "policy:classic,garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
                      "policy:paged,garbage_collection_threshold:0.8,per_process_memory_fraction:0.9"));

}  // namespace
}  // namespace cistern
