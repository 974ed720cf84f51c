// The history of random programs, read forwards, ends in the segments and blocks of the snapshot,
// and its entries are as many as the statistics counted.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/byte_units.h"
#include "tests/history/trace_replay.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class RandomProgram {
 public:
  explicit RandomProgram(std::uint32_t seed)
      : random_(seed),
        driver_({.capacity_bytes = 128 * kMega, .backing = Backing::none}),
        allocator_({.driver = &driver_.api(),
                    .options = AllocatorOptions::parse(options_of(seed), AllocatorOptions::parse("policy:classic"))}) {
    allocator_.record_history({.context = HistoryContext::none});
    streams_ = {nullptr, driver_.create_stream(), driver_.create_stream()};
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
  }
  [[nodiscard]] Snapshot snapshot() const { return allocator_.snapshot(); }

 private:
  static const char* options_of(std::uint32_t seed) {
    constexpr std::array<const char*, 6> kOptions{
        "oom_dump:off",
        "oom_dump:off,max_split_size_mb:21",
        "oom_dump:off,per_process_memory_fraction:0.8,garbage_collection_threshold:0.5",
        "oom_dump:off,policy:direct",
        "oom_dump:off,policy:expandable",
        "oom_dump:off,policy:expandable,pytorch_rules:2.4"};
    return kOptions[seed % kOptions.size()];
  }
  std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_); }
  StreamHandle stream() { return streams_[below(streams_.size())]; }
  std::size_t size() {
    constexpr std::array<std::size_t, 4> kScales{2000, kMega, 12 * kMega, 60 * kMega};
    return 1 + below(kScales[below(kScales.size())]);
  }

  void step() {
    switch (below(16)) {
      case 0:
        allocator_.empty_cache();
        break;
      case 1:
        static_cast<void>(allocator_.trim(below(128 * kMega)));
        break;
      case 2:
        driver_.run_until_idle();
        break;
      case 3:
        toggle_pool();
        break;
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        release();
        break;
      default:
        request();
    }
  }
  void request() {
    try {
      live_.push_back(allocator_.allocate(size(), stream()));
    } catch (const OutOfMemoryError&) {
      release();
    }
  }
  void release() {
    if (live_.empty()) return;
    const std::size_t i = below(live_.size());
    if (below(3) == 0) {
      const StreamHandle user = stream();
      driver_.occupy(user, 1ms);
      allocator_.record_stream(live_[i], user);
    }
    allocator_.deallocate(live_[i]);
    live_[i] = live_.back();
    live_.pop_back();
  }
  void toggle_pool() {
    const PoolId id{0, 1 + pools_};
    if (!pool_is_open_) {
      allocator_.begin_allocate_to_pool(0, id, PoolFilter::every_stream());
    } else {
      allocator_.end_allocate_to_pool(0, id);
      allocator_.release_pool(0, id);
      ++pools_;
    }
    pool_is_open_ = !pool_is_open_;
  }

  std::mt19937 random_;
  SimulatedDriver driver_;
  CachingAllocator allocator_;
  std::vector<StreamHandle> streams_;
  std::vector<void*> live_;
  std::uint64_t pools_ = 0;
  bool pool_is_open_ = false;
};

TEST(HistoryOfRandomPrograms, ReadForwardsEndsInTheSnapshot) {
  const auto programs = static_cast<std::uint32_t>(scaled_programs(2000));
  std::int64_t entries = 0;
  for (std::uint32_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed);
    program.run(200);
    const Snapshot snapshot = program.snapshot();
    TraceReplay replay(snapshot.device_traces.at(0));
    ASSERT_EQ(replay.difference_from(snapshot), "");
    const MemoryStats& stats = snapshot.device_stats.at(0);
    ASSERT_EQ(replay.counts[TraceAction::alloc], stats.allocation.all.allocated);
    ASSERT_EQ(replay.counts[TraceAction::free_requested], stats.allocation.all.freed);
    ASSERT_EQ(replay.counts[TraceAction::free_completed], stats.active.all.freed);
    ASSERT_EQ(replay.counts[TraceAction::segment_alloc] + replay.counts[TraceAction::segment_map],
              stats.num_device_alloc);
    ASSERT_EQ(replay.counts[TraceAction::segment_free] + replay.counts[TraceAction::segment_unmap],
              stats.num_device_free);
    ASSERT_EQ(replay.counts[TraceAction::oom], stats.num_ooms);
    entries += static_cast<std::int64_t>(snapshot.device_traces[0].size());
  }
  RecordProperty("entries", std::to_string(entries));
}

}  // namespace
}  // namespace cistern
