// Frees in paged memory that wait for another stream, with the lock of their own stream alone: what comes of them is
// what the heap makes of them.
#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/simulated.h>
#include <cistern/stats.h>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

// One of two heaps that do the same; where stacks are gathered each request and each free takes the heap's lock.
class Side {
 public:
  Side(const std::string& options, bool takes_the_heaps_lock)
      : allocator_(
            {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:paged" + options)}) {
    for (StreamHandle& stream : streams_) stream = driver_.create_stream();
    HistoryOptions history;
    history.max_entries = 16;
    if (takes_the_heaps_lock) allocator_.record_history(history);
  }
  void allocate(std::size_t bytes, std::size_t stream) {
    live_.push_back(allocator_.allocate(bytes, streams_[stream]));
  }
  void record(std::size_t pick, std::size_t stream) {
    if (!live_.empty()) allocator_.record_stream(live_[pick % live_.size()], streams_[stream]);
  }
  void free(std::size_t pick) {
    if (live_.empty()) return;
    const auto chosen = live_.begin() + static_cast<std::ptrdiff_t>(pick % live_.size());
    allocator_.deallocate(*chosen);
    live_.erase(chosen);
  }
  [[nodiscard]] std::size_t last() const { return live_.size() - 1; }
  [[nodiscard]] std::int64_t live() const { return static_cast<std::int64_t>(live_.size()); }
  void occupy(std::size_t stream) { driver_.occupy(streams_[stream], 1ms); }
  void finish(std::size_t stream) { driver_.run_until_idle(streams_[stream]); }
  // Where the last block lies, from the first one on.
  [[nodiscard]] std::int64_t last_place() {
    if (live_.empty()) return 0;
    if (first_ == nullptr) first_ = static_cast<char*>(live_.back());
    return static_cast<char*>(live_.back()) - first_;
  }
  [[nodiscard]] std::vector<std::int64_t> figures() const {
    const MemoryStats now = allocator_.memory_stats();
    std::vector<std::int64_t> all;
    for (const Stat* stat : {&now.allocation.all, &now.active.all, &now.allocated_bytes.all, &now.active_bytes.all,
                             &now.requested_bytes.all, &now.reserved_bytes.all})
      all.insert(all.end(), {stat->current, stat->peak, stat->allocated, stat->freed});
    return all;
  }
  void check() const { allocator_.check(); }

 private:
  SimulatedDriver driver_{{.capacity_bytes = 1024 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_;
  std::array<StreamHandle, 3> streams_{};
  std::vector<void*> live_;
  const char* first_ = nullptr;
};

class PagedWaitsTest : public ::testing::TestWithParam<const char*> {};

// Blocks of one stream, which two others use, for a while or not: in rounds that come again and in others.
TEST_P(PagedWaitsTest, PlacesAndFiguresAreThoseOfTheHeap) {
  const long programs = scaled_programs(300);
  for (long program = 0; program < programs; ++program) {
    std::mt19937_64 random(20261126 + static_cast<std::uint64_t>(program));
    Side by_stream(GetParam(), false);
    Side by_heap(GetParam(), true);
    const auto both = [&](auto&& act) {
      act(by_stream);
      act(by_heap);
    };
    const std::array<std::size_t, 6> sizes = {kKibi, 3 * kKibi, 200 * kKibi, kMega, 2 * kMega, 5 * kMega};
    for (int step = 0; step < 400; ++step) {
      const std::size_t bytes = sizes[random() % sizes.size()];
      const std::size_t pick = random();
      const std::size_t user = 1 + random() % 2;
      switch (random() % 16) {
        case 0:
          both([&](Side& side) { side.occupy(user); });
          break;
        case 1:
          both([&](Side& side) { side.finish(user); });
          break;
        case 2:
        case 3:
          both([&](Side& side) { side.record(pick, user); });
          break;
        case 4:
        case 5:
        case 6:
          both([&](Side& side) { side.free(pick); });
          break;
        case 7:
        case 8:
        case 9:  // the block that came last goes, and may come again
          both([&](Side& side) {
            side.allocate(bytes, 0);
            side.record(side.last(), user);
            if (pick % 4 != 0) side.free(side.last());
          });
          break;
        default:
          both([&](Side& side) { side.allocate(bytes, 0); });
          if (step % 8 < 5) both([&](Side& side) { side.free(pick); });
      }
      ASSERT_EQ(by_stream.last_place(), by_heap.last_place()) << "program " << program << ", step " << step;
      if (step % 50 == 49) {
        ASSERT_EQ(by_stream.figures(), by_heap.figures()) << "program " << program << ", step " << step;
      }
    }
    both([](Side& side) { side.check(); });
  }
}

// Blocks of three streams, each used by the others: requests of one complete what another freed, with both locks. Which
// bytes they get depends on whose frees stand, so the figures alone are known.
TEST_P(PagedWaitsTest, StreamsThatFreeBehindEachOtherCountEachBlockOnce) {
  const long programs = scaled_programs(300);
  for (long program = 0; program < programs; ++program) {
    std::mt19937_64 random(20261127 + static_cast<std::uint64_t>(program));
    Side side(GetParam(), false);
    for (int step = 0; step < 400; ++step) {
      const std::size_t bytes = kKibi << random() % 13;
      const std::size_t owner = random() % 3;
      const std::size_t user = (owner + 1 + random() % 2) % 3;
      switch (random() % 10) {
        case 0:
          side.occupy(user);
          break;
        case 1:
          side.finish(user);
          break;
        case 2:
        case 3:
          side.record(random(), user);
          side.free(random());
          break;
        case 4:
          side.free(random());
          break;
        default:  // the block that came last goes, and may come again
          side.allocate(bytes, owner);
          side.record(side.last(), user);
          if (random() % 4 != 0) side.free(side.last());
      }
      if (step % 40 != 39) continue;
      side.check();
      ASSERT_EQ(side.figures().front(), side.live()) << "program " << program << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, PagedWaitsTest,
                         ::testing::Values("", ",stream_hand_over:wait", ",stream_hand_over:done",
                                           ",stream_hand_over:never"),
                         [](const auto& policy) {
                           const std::string options = policy.param;
                           return options.empty() ? std::string("fair") : options.substr(options.find(':') + 1);
                         });

}  // namespace
}  // namespace cistern
