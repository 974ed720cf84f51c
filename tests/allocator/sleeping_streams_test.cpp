// Streams that were awake and fell asleep: what comes to them afterwards, and what they leave.
#include <cistern/history.h>

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/allocator/stream_hits_fixture.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

class SleepingStreamsTest : public StreamHitsTest {
 protected:
  static constexpr int kBlocks = 20000;

  // Else its entries take host memory.
  void turn_history_off() {
    HistoryOptions off;
    off.enabled = HistoryEnabled::none;
    allocator_.record_history(off);
  }
  // Host memory.
  [[nodiscard]] static std::ptrdiff_t in_use() {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<std::ptrdiff_t>(info.uordblks + info.hblkhd);
  }
  void fill_and_free(StreamHandle stream) {
    for (int i = 0; i < kBlocks; ++i) blocks_.push_back(allocator_.allocate(kKibi, stream));
    for (void* block : blocks_) allocator_.deallocate(block);
    blocks_.clear();
  }

  std::vector<void*> blocks_;
};

// Streams that do nothing give their place up, and what comes to them afterwards is not lost.
TEST_P(SleepingStreamsTest, ManyStreamsComeAndGoWithTheirFigures) {
  const int count = is_paged() ? 30 : 60;  // each has addresses of its own
  std::vector<StreamHandle> streams;
  std::vector<void*> blocks;
  for (int i = 0; i < count; ++i) {
    streams.push_back(driver_.create_stream());
    wake(streams.back());
    blocks.push_back(allocator_.allocate(kKibi * static_cast<std::size_t>(i + 1), streams.back()));
    allocator_.check();
  }
  EXPECT_EQ(stats().allocated_bytes.all.current, std::int64_t{kKibi} * count * (count + 1) / 2);
  on_another_thread([&] {
    for (void* block : blocks) allocator_.deallocate(block);
  });
  EXPECT_EQ(stats().allocation.all.current, 0);
  for (const StreamHandle stream : streams) wake(stream);
  expect_nothing_live();
  allocator_.empty_cache();
  EXPECT_EQ(stats().reserved_bytes.all.current, 0);
  for (const StreamHandle stream : streams) wake(stream);
  expect_nothing_live();
}

// What describes one stream's blocks describes another's later.
TEST_P(SleepingStreamsTest, StreamsShareTheHostMemoryOfTheirBlocks) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator does not tell what is in use";
  turn_history_off();
  blocks_.reserve(kBlocks);
  const std::ptrdiff_t before = in_use();
  wake(first_);
  fill_and_free(first_);
  const std::ptrdiff_t of_one = in_use();
  wake(second_);
  fill_and_free(second_);
  // Of paged memory also what is known of its places; the nodes of free runs lie in a table that `in_use` does not see.
  EXPECT_LT(in_use() - of_one, (of_one - before) * (is_paged() ? 3 : 2) / 4)
      << "the second's map of its live blocks, and what is known of places, no more";
  expect_nothing_live();
}

// What a stream had in use before it fell asleep serves the next one: streams that come one after the other take no
// more than their maps of live blocks, and rounds of steps that are not followed any more take nothing.
TEST_P(SleepingStreamsTest, WhoSleepsLeavesWhatItHadToOthers) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator does not tell what is in use";
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 200; ++i) streams.push_back(driver_.create_stream());
  // More than may be awake, and twice, for who was idle since the last look falls asleep.
  const auto wake_others = [&](StreamHandle stream) {
    for (int times = 0; times < 2; ++times)
      for (const StreamHandle other : streams)
        if (other != stream) wake(other);
    allocator_.empty_cache();
  };
  wake_others(nullptr);
  turn_history_off();
  blocks_.reserve(kBlocks);
  const auto burst = [&](StreamHandle stream) {
    for (int round = 0; round < 4; ++round) fill_and_free(stream);
    wake_others(stream);
  };
  const std::ptrdiff_t before = in_use();
  burst(streams[0]);
  const std::ptrdiff_t of_one = in_use() - before;
  for (std::size_t i = 1; i < 6; ++i) burst(streams[i]);
  EXPECT_LT(in_use() - before - of_one, 5 * of_one / 2);
  expect_nothing_live();
}

INSTANTIATE_TEST_SUITE_P(StreamHits, SleepingStreamsTest,
                         ::testing::Values(Policy::classic, Policy::expandable, Policy::paged),
                         [](const auto& policy) { return std::string(to_string(policy.param)); });

}  // namespace
}  // namespace cistern
