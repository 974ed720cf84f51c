// The same operations give the same statistics on the process's device and on a simulated one.

#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gpu/heap_on_device.h"

namespace cistern {
namespace {

// A fixed script: allocations of many sizes on two streams, frees in an order of their own,
// use on the other stream, a flush now and then. What is pending is waited for before the next
// allocation, since how soon a device gets there is not the same everywhere.
class Script {
 public:
  Script(CachingAllocator& allocator, StreamHandle one, StreamHandle other)
      : allocator_(allocator), streams_{one, other} {}

  // `wait` waits for both streams. Returns the flat statistics after every 16th operation.
  template <class Wait>
  std::vector<MemoryStats> run(Wait wait) {
    std::vector<MemoryStats> seen;
    for (int operation = 0; operation < 640; ++operation) {
      const std::uint64_t draw = next();
      if (live_.size() < 40 && draw % 8 < 5) {
        live_.push_back(allocator_.allocate(size(), streams_[draw / 8 % 2]));
      } else if (!live_.empty()) {
        const auto block = live_.begin() + static_cast<std::ptrdiff_t>(draw / 16 % live_.size());
        if (draw % 8 == 7) allocator_.record_stream(*block, streams_[draw / 8 % 2]);
        allocator_.deallocate(*block);
        live_.erase(block);
        wait();
      }
      if (operation % 160 == 159) allocator_.empty_cache();
      if (operation % 16 == 15) seen.push_back(allocator_.memory_stats());
    }
    for (void* block : live_) allocator_.deallocate(block);
    allocator_.check();
    seen.push_back(allocator_.memory_stats());
    return seen;
  }

 private:
  std::uint64_t next() { return state_ = state_ * 6364136223846793005u + 1442695040888963407u, state_ >> 33; }
  // Small, medium and large ones; hardly two alike, so that the choice among equals, which
  // goes by address, does not show.
  std::size_t size() {
    const std::uint64_t kind = next() % 3;
    const std::size_t most = kind == 0 ? 512 << 10 : kind == 1 ? 9 * kMiB : 40 * kMiB;
    return 1 + next() % most;
  }

  CachingAllocator& allocator_;
  StreamHandle streams_[2];
  std::vector<void*> live_;
  std::uint64_t state_ = 2024;
};

std::string differences(const MemoryStats& a, const MemoryStats& b) {
  std::ostringstream text;
  const auto left = a.flat(), right = b.flat();
  for (const auto& [name, value] : left) {
    if (right.at(name) != value) text << name << ": " << value << " and " << right.at(name) << "\n";
  }
  return text.str();
}

void expect_same(const AllocatorOptions& options, std::int64_t least_allocations) {
  initialize();
  const Stream one = Stream::create(), other = Stream::create();
  CachingAllocator on_device({.options = options});
  const auto here = Script(on_device, one.native_handle(), other.native_handle()).run([&] {
    one.synchronize();
    other.synchronize();
  });

  SimulatedDriver driver({.capacity_bytes = 8 * kGiB});
  CachingAllocator simulated({.driver = &driver.api(), .options = options});
  const StreamHandle first = driver.create_stream(), second = driver.create_stream();
  const auto there = Script(simulated, first, second).run([&] { driver.run_until_idle(); });

  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    ASSERT_EQ(here[i], there[i]) << "after operation " << 16 * (i + 1) << ":\n" << differences(here[i], there[i]);
  }
  EXPECT_GT(here.back().num_device_alloc, least_allocations);
}

TEST(SameStatistics, OnTheProcesssDeviceAndOnASimulatedOne) { expect_same({}, 20); }

TEST(SameStatistics, WithExpandableSegmentsToo) {
  if (!device_capabilities().virtual_memory) GTEST_SKIP() << "the device has no virtual memory management";
  expect_same(AllocatorOptions::parse("expandable_segments:True"), 10);
}

}  // namespace
}  // namespace cistern
