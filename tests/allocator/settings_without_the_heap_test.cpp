// Whatever the settings, streams serve themselves: what a setting asks of a hit or a free it asks of the stream's walk.
#include <cistern/scope.h>

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
};

TEST_P(SettingsWithoutTheHeapsLockTest, PairsComeAndGo) {
  const StreamHandle stream = driver_.create_stream();
  const auto pairs = [&](int count) {
    for (int i = 0; i < count; ++i) allocator_.deallocate(allocator_.allocate(kKibi, stream));
  };
  EXPECT_TRUE(goes_on(
      [&] {
        make_room(stream, 128);
        pairs(100);
      },
      [&] { pairs(100); }));
}

TEST_P(SettingsWithoutTheHeapsLockTest, RandomSizesComeAndGo) {
  const StreamHandle stream = driver_.create_stream();
  std::mt19937_64 random(20261130);
  std::vector<void*> live(16, nullptr);
  EXPECT_TRUE(goes_on(
      [&] {
        make_room(stream, 128);
        replace(live, random, stream, 500);
      },
      [&] { replace(live, random, stream, 100); }));
  for (void* const block : live) allocator_.deallocate(block);
}

// Whose peaks, as those of all memory, are higher than what comes and goes.
class TagsWithoutTheHeapsLockTest : public SettingsWithoutTheHeapsLockTest {};

TEST_P(TagsWithoutTheHeapsLockTest, BlocksWithTagsComeAndGo) {
  const StreamHandle stream = driver_.create_stream();
  const auto work = [&](int count) {
    const TagScope scope("activations");
    for (; count > 0; --count) {
      void* const first = allocator_.allocate(kKibi, stream);
      const TagScope other("optimizer");
      void* const second = allocator_.allocate(2 * kKibi, stream);
      for (void* const block : {first, second}) allocator_.deallocate(block);
    }
  };
  for (const char* const tag : {"activations", "optimizer"}) {
    const TagScope scope(tag);
    make_room(stream, 128);
  }
  make_room(own_, 128);
  EXPECT_TRUE(goes_on([&] { work(1000); }, [&] { work(10); }));
}

INSTANTIATE_TEST_SUITE_P(Each, TagsWithoutTheHeapsLockTest,
                         ::testing::Values("policy:classic", "policy:expandable", "policy:paged"));
INSTANTIATE_TEST_SUITE_P(
    Each, SettingsWithoutTheHeapsLockTest,
    ::testing::Values("policy:expandable", "policy:classic,max_split_size_mb:20",
                      "policy:expandable,max_split_size_mb:64", "policy:paged,max_split_size_mb:20",
                      "policy:classic,garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
                      "policy:paged,garbage_collection_threshold:0.8,per_process_memory_fraction:0.9"));

}  // namespace
}  // namespace cistern
