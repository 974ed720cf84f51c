// Every order in which up to six pending events may complete, in every scenario of the
// allocator: at each place where a scenario lets streams step, any number of them does, in any
// order. Judged by the model, the heap's own check, and the race detector, which sees each
// block's kernels.

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/property.h"
#include "tests/races/explored_world.h"

namespace cistern {
namespace {

struct Scenario {
  const char* name;
  std::size_t capacity_mebibytes;
  const char* options;
  bool with_model;
  std::function<void(ExploredWorld&)> run;
};
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

// A block that `readers` streams used is freed; its owner asks for as much again and again.
void used_by(ExploredWorld& world, std::size_t readers) {
  void* block = world.take(3 * kMega);
  for (std::size_t reader = 1; reader <= readers; ++reader) world.use(block, reader);
  world.give(block);
  world.let_streams_step();
  void* probe = world.take(3 * kMega);
  world.give(probe);
  if (readers <= 4) world.let_streams_step();
  static_cast<void>(world.take(3 * kMega));
}

// Three blocks that share their readers, freed one after the other.
void queues_by_stream(ExploredWorld& world) {
  void* first = world.take(12 * kMega);
  void* second = world.take(14 * kMega);
  void* third = world.take(16 * kMega);
  world.use(first, 1);
  world.use(first, 2);
  world.give(first);
  world.use(second, 2);
  world.use(second, 3);
  world.give(second);
  world.use(third, 1);
  world.use(third, 3);
  world.give(third);
  world.let_streams_step();
  for (std::size_t size : {12, 14, 16}) static_cast<void>(world.take(size * kMega));
}

// Frees that name their last stream, between which other streams go on.
void freed_with_a_last_use(ExploredWorld& world) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 3; ++i) blocks.push_back(world.take(kMega / 2));
  for (std::size_t i = 0; i < 3; ++i) {
    world.use(blocks[i], i + 1, false);
    world.give(blocks[i], static_cast<int>(i) + 1);
    world.let_streams_step();
  }
  static_cast<void>(world.take(kMega));
  static_cast<void>(world.take(kMega / 2));
}

// A block changes hands: freed on one stream, used and freed on the next.
void handed_on_and_on(ExploredWorld& world) {
  for (std::size_t reader = 1; reader <= 5; ++reader) {
    void* block = world.take(12 * kMega);
    world.use(block, reader);
    world.give(block);
    world.let_streams_step();
  }
}

void flush_with_pending_frees(ExploredWorld& world) {
  void* first = world.take(12 * kMega);
  void* second = world.take(kMega / 2);
  for (std::size_t reader = 1; reader <= 3; ++reader) world.use(first, reader);
  for (std::size_t reader = 2; reader <= 4; ++reader) world.use(second, reader);
  world.give(first);
  world.give(second);
  world.let_streams_step();
  world.empty_cache();
  world.let_streams_step();
  static_cast<void>(world.take(12 * kMega));
  static_cast<void>(world.take(kMega / 2));
}

// The device is full of what is pending: requests flush, or fail, as the model says.
void full_device(ExploredWorld& world) {
  void* first = world.take(30 * kMega);
  void* second = world.take(24 * kMega);
  for (std::size_t reader = 1; reader <= 3; ++reader) world.use(first, reader);
  for (std::size_t reader = 3; reader <= 5; ++reader) world.use(second, reader);
  world.give(first);
  world.give(second);
  world.let_streams_step();
  void* third = world.take(40 * kMega);
  static_cast<void>(world.take(60 * kMega));
  world.give(third);
  static_cast<void>(world.take(40 * kMega));
}

void private_pool(ExploredWorld& world) {
  std::optional<MemPool> pool(std::in_place, world.allocator);
  world.model().make_mem_pool(9, {});
  void* inside = world.take(12 * kMega, 0, &*pool, 9);
  void* outside = world.take(12 * kMega);
  for (std::size_t reader = 1; reader <= 4; ++reader) world.use(inside, reader);
  world.use(outside, 2);
  world.give(inside);
  world.give(outside);
  world.let_streams_step();
  static_cast<void>(world.take(12 * kMega));
  world.give(world.take(12 * kMega, 0, &*pool, 9));
  world.let_streams_step();
  pool.reset();
  world.model().drop_mem_pool(9);
  static_cast<void>(world.take(12 * kMega));
}

void overflow_pool(ExploredWorld& world) {
  std::optional<MemPool> pool(std::in_place, world.allocator, MemPoolOptions{.use_on_oom = true});
  model::ModelPool settings;
  settings.use_on_oom = true;
  world.model().make_mem_pool(9, settings);
  void* inside = world.take(40 * kMega, 0, &*pool, 9);
  for (std::size_t reader = 1; reader <= 4; ++reader) world.use(inside, reader);
  world.give(inside);
  world.let_streams_step();
  if (void* outside = world.take(40 * kMega)) {
    world.use(outside, 5);
    world.give(outside);
    world.let_streams_step();
    static_cast<void>(world.take(30 * kMega));
  }
  pool.reset();
  world.model().drop_mem_pool(9);
}

// Blocks used before and in a capture, and freed in it.
void frees_put_off_by_a_capture(ExploredWorld& world) {
  void* before = world.take(12 * kMega);
  void* other = world.take(14 * kMega);
  for (std::size_t reader = 1; reader <= 3; ++reader) world.use(before, reader);
  world.use(other, 4);
  world.run(0);
  world.begin_capture({0, 1});
  world.use(other, 1);
  world.give(before);
  world.let_streams_step();
  world.give(other);
  void* inside = world.take(12 * kMega);
  world.use(inside, 1);
  world.give(inside);
  world.let_streams_step();
  world.end_capture();
  static_cast<void>(world.take(12 * kMega));
  world.let_streams_step();
  static_cast<void>(world.take(12 * kMega));
  static_cast<void>(world.take(14 * kMega));
}

// A destroyed stream's memory goes to another stream, behind what it still had queued.
void destroyed_stream(ExploredWorld& world) {
  void* block = world.take(12 * kMega, 1);
  void* pending = world.take(14 * kMega, 1);
  for (std::size_t reader = 2; reader <= 4; ++reader) world.use(pending, reader);
  world.give(block);
  world.give(world.take(12 * kMega, 1));  // work that is still queued when the stream ends
  world.give(pending);
  world.let_streams_step();
  world.end_stream(1);
  world.let_streams_step();
  static_cast<void>(world.take(12 * kMega, 0));
  static_cast<void>(world.take(14 * kMega, 2));
  world.let_streams_step();
  static_cast<void>(world.take(14 * kMega, 0));
}

// Handles are given again, memory is not: the new stream is ordered after nothing.
void reused_handles(ExploredWorld& world) {
  for (std::size_t number = 1; number <= 4; ++number) {
    world.give(world.take(12 * kMega, number));
    world.let_streams_step();
    if (number % 2 == 0)
      world.end_stream(number);
    else
      world.destroy_without_a_word(number);
  }
  static_cast<void>(world.take(12 * kMega, 5));
  static_cast<void>(world.take(12 * kMega, 6));
}

void chain_of_destroyed_streams(ExploredWorld& world) {
  for (std::size_t number = 1; number <= 5; ++number) {
    void* block = world.take(12 * kMega, number);
    ASSERT_NE(block, nullptr);
    world.give(block);
    world.end_stream(number);
    world.let_streams_step();
  }
  EXPECT_EQ(world.allocator.memory_stats().num_device_alloc, 1) << "each inherited from the one before";
}

void restored_checkpoint(ExploredWorld& world) {
  const MemPool pool(world.allocator);
  void* first = world.take(12 * kMega, 0, &pool);
  const PoolCheckpoint checkpoint = world.allocator.checkpoint_pool(0, pool.id());
  void* second = world.take(kMega / 2, 0, &pool);
  for (std::size_t reader = 1; reader <= 3; ++reader) world.use(first, reader);
  for (std::size_t reader = 3; reader <= 5; ++reader) world.use(second, reader);
  world.let_streams_step();
  const PoolRestored restored = world.allocator.restore_pool(0, checkpoint);
  EXPECT_EQ(restored.live, std::vector<void*>{first});
  world.driver.launch(world.stream(0), {}, {{first, 12 * kMega}}, std::chrono::milliseconds(1), [] {});
  EXPECT_EQ(world.take(kMega / 2, 0, &pool), second);
}

// Pages go back in the middle of an address range, and others come in their place.
void unmapped_and_mapped_again(ExploredWorld& world) {
  void* first = world.take(18 * kMega);
  void* second = world.take(24 * kMega);
  void* third = world.take(18 * kMega);
  for (std::size_t reader = 1; reader <= 3; ++reader) world.use(second, reader);
  world.give(second);
  world.let_streams_step();
  world.empty_cache();
  world.let_streams_step();
  void* fourth = world.take(22 * kMega);
  world.use(first, 4);
  world.give(first);
  world.give(fourth);
  world.let_streams_step();
  static_cast<void>(world.take(40 * kMega));
  world.give(third);
}

// Blocks that others used, and that streams handed to each other, go back with time.
void decaying(ExploredWorld& world) {
  const auto look = [&world] {
    world.now += 400000000;
    world.allocator.deallocate(world.allocator.allocate(1000, world.stream(0)));
  };
  look();
  void* first = world.take(18 * kMega);
  void* second = world.take(24 * kMega, 1);
  world.use(first, 2);
  world.give(first);
  world.give(second);
  look();
  world.let_streams_step();
  for (int i = 0; i < 3; ++i) look();
  world.let_streams_step();
  void* third = world.take(40 * kMega, 3);
  look();
  world.let_streams_step();
  world.give(third);
  for (int i = 0; i < 8; ++i) look();
  world.let_streams_step();
  world.driver.run_until_idle();
  for (int i = 0; i < 8; ++i) look();
  EXPECT_GT(world.allocator.memory_stats().num_device_free, 0);
  static_cast<void>(world.take(40 * kMega, 1));
}

// A large block takes what two other streams have free, in handles and fragments, while they still work.
void gathered_from_streams(ExploredWorld& world) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 6; ++i) blocks.push_back(world.take(3 * kMega, i % 2));
  for (const std::size_t i : {0U, 1U, 4U}) world.give(blocks[i]);
  void* large = world.take(8 * kMega, 2);
  world.let_streams_step();
  for (const std::size_t i : {2U, 3U}) world.give(blocks[i]);
  if (large != nullptr) world.give(large);
  static_cast<void>(world.take(13 * kMega, 1));
}

const std::vector<Scenario> kScenarios = {
    {"UsedByOneStream", 512, "", true, [](ExploredWorld& world) { used_by(world, 1); }},
    {"UsedByTwoStreams", 512, "", true, [](ExploredWorld& world) { used_by(world, 2); }},
    {"UsedByThreeStreams", 512, "", true, [](ExploredWorld& world) { used_by(world, 3); }},
    {"UsedByFourStreams", 512, "", true, [](ExploredWorld& world) { used_by(world, 4); }},
    {"UsedByFiveStreams", 512, "", true, [](ExploredWorld& world) { used_by(world, 5); }},
    {"UsedBySixStreams", 512, "", true, [](ExploredWorld& world) { used_by(world, 6); }},
    {"QueuesByStream", 512, "", true, queues_by_stream},
    {"FreedWithALastUse", 512, "", true, freed_with_a_last_use},
    {"HandedOnAndOn", 512, "", true, handed_on_and_on},
    {"FlushWithPendingFrees", 512, "", true, flush_with_pending_frees},
    {"FullDevice", 64, "", true, full_device},
    {"FullDeviceSearchedAgain", 64, "research_after_flush:True", true, full_device},
    {"Limit", 512, "per_process_memory_fraction:0.125", true, full_device},
    {"SplitLimit", 64, "max_split_size_mb:24", true, full_device},
    {"PrivatePool", 512, "", true, private_pool},
    {"OverflowPool", 64, "", true, overflow_pool},
    {"FreesPutOffByACapture", 512, "", true, frees_put_off_by_a_capture},
    {"FreesPutOffByACaptureUnder24", 512, "pytorch_rules:2.4", true, frees_put_off_by_a_capture},
    {"DestroyedStream", 512, "", false, destroyed_stream},
    {"ReusedHandles", 512, "", false, reused_handles},
    {"ChainOfDestroyedStreams", 512, "", false, chain_of_destroyed_streams},
    {"RestoredCheckpoint", 512, "", false, restored_checkpoint},
    {"ExpandableUsedByFourStreams", 512, "expandable_segments:True", true,
     [](ExploredWorld& world) { used_by(world, 4); }},
    {"ExpandableQueuesByStream", 512, "expandable_segments:True", true, queues_by_stream},
    {"ExpandableFlushWithPendingFrees", 512, "expandable_segments:True", true, flush_with_pending_frees},
    {"ExpandableFullDevice", 64, "expandable_segments:True", true, full_device},
    {"ExpandableLimit", 512, "expandable_segments:True,per_process_memory_fraction:0.125", true, full_device},
    {"ExpandablePrivatePool", 512, "expandable_segments:True", true, private_pool},
    {"ExpandableFreesPutOffByACapture", 512, "expandable_segments:True", true, frees_put_off_by_a_capture},
    {"ExpandableDestroyedStream", 512, "expandable_segments:True", false, destroyed_stream},
    {"ExpandableReusedHandles", 512, "expandable_segments:True", false, reused_handles},
    {"ExpandableChainOfDestroyedStreams", 512, "expandable_segments:True", false, chain_of_destroyed_streams},
    {"ExpandableRestoredCheckpoint", 512, "expandable_segments:True", false, restored_checkpoint},
    {"AsyncUsedByFourStreams", 512, "policy:async", false, [](ExploredWorld& world) { used_by(world, 4); }},
    {"AsyncQueuesByStream", 512, "policy:async", false, queues_by_stream},
    {"AsyncFreedWithALastUse", 512, "policy:async", false, freed_with_a_last_use},
    {"AsyncHandedOnAndOn", 512, "policy:async", false, handed_on_and_on},
    {"AsyncFlushWithPendingFrees", 512, "policy:async", false, flush_with_pending_frees},
    {"AsyncFullDevice", 64, "policy:async", false, full_device},
    {"AsyncPrivatePool", 512, "policy:async", false, private_pool},
    {"AsyncFreesPutOffByACapture", 512, "policy:async", false, frees_put_off_by_a_capture},
    {"AsyncDestroyedStream", 512, "policy:async", false, destroyed_stream},
    {"AsyncReusedHandles", 512, "policy:async", false, reused_handles},
    {"PagedUsedByFourStreams", 512, "policy:paged", false, [](ExploredWorld& world) { used_by(world, 4); }},
    {"PagedQueuesByStream", 512, "policy:paged", false, queues_by_stream},
    {"PagedFreedWithALastUse", 512, "policy:paged", false, freed_with_a_last_use},
    {"PagedHandedOnAndOn", 512, "policy:paged", false, handed_on_and_on},
    {"PagedFlushWithPendingFrees", 512, "policy:paged", false, flush_with_pending_frees},
    {"PagedFullDevice", 64, "policy:paged", false, full_device},
    {"PagedLimit", 512, "policy:paged,per_process_memory_fraction:0.125", false, full_device},
    {"PagedPrivatePool", 512, "policy:paged", false, private_pool},
    {"PagedOverflowPool", 64, "policy:paged", false, overflow_pool},
    {"PagedFreesPutOffByACapture", 512, "policy:paged", false, frees_put_off_by_a_capture},
    {"PagedDestroyedStream", 512, "policy:paged", false, destroyed_stream},
    {"PagedReusedHandles", 512, "policy:paged", false, reused_handles},
    {"PagedChainOfDestroyedStreams", 512, "policy:paged", false, chain_of_destroyed_streams},
    {"PagedRestoredCheckpoint", 512, "policy:paged", false, restored_checkpoint},
    {"PagedUnmappedAndMappedAgain", 512, "policy:paged", false, unmapped_and_mapped_again},
    {"PagedDecaying", 64, "policy:paged,decay_ms:1000", false, decaying},
    {"PagedGatheredFromStreams", 24, "policy:paged", false, gathered_from_streams},
    {"UnmappedAndMappedAgain", 512, "expandable_segments:True", true, unmapped_and_mapped_again},
};

class CompletionOrders : public ::testing::TestWithParam<Scenario> {};

TEST_P(CompletionOrders, NoneBreaksTheScenario) {
  const Scenario& scenario = GetParam();
  Choices choices;
  int runs = 0;
  do {
    SCOPED_TRACE(choices.to_string());
    ExploredWorld world(choices, scenario.capacity_mebibytes * kMega, scenario.options, scenario.with_model);
    scenario.run(world);
    world.judge();
    world.driver.run_until_idle();
    world.judge();
    ++runs;
  } while (!HasFailure() && runs < kMostOrders && choices.advance());
  RecordProperty("orders", runs);
  if (!HasFailure()) std::printf("%s: %d orders\n", scenario.name, runs);
}

INSTANTIATE_TEST_SUITE_P(EveryScenario, CompletionOrders, ::testing::ValuesIn(kScenarios),
                         [](const ::testing::TestParamInfo<Scenario>& parameter) {
                           return std::string(parameter.param.name);
                         });

}  // namespace
}  // namespace cistern
