// A long random program, of sizes, streams and steps that vary: nothing that the heap keeps grows for ever. With
// CISTERN_TEST_SCALE=1 it has 100,000,000 operations.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

constexpr long kLong = 100'000'000;

long operations() {
  const long all = scaled(kLong);
  return all == kLong ? kLong : std::max(1L, scaled(kSanitized ? 3'000'000 : 5'000'000));
}

struct Kept {
  std::int64_t pages = 0;
  std::int64_t handles = 0;
  std::int64_t mappings = 0;
  std::int64_t unmapped = 0;  // so far
  std::int64_t reservations = 0;
  std::int64_t host_bytes = 0;  // of the process

  void take_largest(const Kept& other) {
    pages = std::max(pages, other.pages);
    handles = std::max(handles, other.handles);
    unmapped = std::max(unmapped, other.unmapped);
    mappings = std::max(mappings, other.mappings);
    reservations = std::max(reservations, other.reservations);
    host_bytes = std::max(host_bytes, other.host_bytes);
  }
};

class Soak {
 public:
  explicit Soak(const std::string& options, bool works = false)
      : works_(works),
        driver_({.capacity_bytes = 4096 * kMega,
                 .backing = Backing::none,
                 .event_lag_ticks = 16,
                 .races = works ? RaceMode::collect : RaceMode::off}),
        allocator_({.driver = &driver_.api(),
                    .options = AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))}) {
    for (int i = 0; i < 4; ++i) streams_.push_back(i == 0 ? nullptr : driver_.create_stream());
  }

  // So many operations, and the most that was kept meanwhile.
  Kept run(long count) {
    Kept most;
    while (count > 0) {
      count -= step();
      if (++steps_ % 64 == 0) most.take_largest(kept());
      if (steps_ % 4096 == 0) allocator_.check();
    }
    return most;
  }
  [[nodiscard]] std::vector<RaceReport> race_reports() { return driver_.race_reports(); }
  [[nodiscard]] CachingAllocator& allocator() { return allocator_; }

 private:
  struct Block {
    void* address;
    std::size_t stream;
  };

  // Some blocks outlive the step; sizes are much the same in one step, and others in the next.
  long step() {
    long count = 0;
    const bool is_large = random_() % 2 == 0;
    const double base = std::exp2((is_large ? 19 : 9) + static_cast<double>(random_() % 500) / 100);
    const std::size_t most = 4 + random_() % 12;
    while (live_.size() < most) {
      const double share = 0.25 + static_cast<double>(random_() % 400) / 100;
      const auto bytes = std::min(static_cast<std::size_t>(base * share), 12 * kMega);
      const std::size_t stream = random_() % 4;
      live_.push_back({allocator_.allocate(std::max<std::size_t>(1, bytes), streams_[stream]), stream});
      ++count;
      if (works_)
        driver_.launch(streams_[stream], {}, {{live_.back().address, std::max<std::size_t>(1, bytes)}}, 1us, [] {});
      if (random_() % 16 == 0) use(live_.back());
    }
    const std::size_t left = random_() % 5;
    while (live_.size() > left) {
      std::swap(live_[random_() % live_.size()], live_.back());
      allocator_.deallocate(live_.back().address);
      live_.pop_back();
      ++count;
    }
    if (random_() % 4 == 0) driver_.run_until_idle();
    for (int i = 0; i < 8; ++i) driver_.tick();
    return count;
  }
  void use(const Block& block) {
    const StreamHandle user = streams_[(block.stream + 1) % 4];
    driver_.occupy(user, 1us);
    allocator_.record_stream(block.address, user);
  }
  [[nodiscard]] Kept kept() const {
    const auto of = [this](const char* made, const char* gone) {
      return static_cast<std::int64_t>(driver_.calls(made)) - static_cast<std::int64_t>(driver_.calls(gone));
    };
    const auto pages = static_cast<std::int64_t>(driver_.used_bytes() / (2 * kMega));
    return {pages,
            of("cuMemCreate", "cuMemRelease"),
            of("cuMemMap", "cuMemUnmap"),
            static_cast<std::int64_t>(driver_.calls("cuMemUnmap")),
            of("cuMemAddressReserve", "cuMemAddressFree"),
            static_cast<std::int64_t>(mallinfo2().uordblks)};
  }

  bool works_;  // on each block, on its stream
  SimulatedDriver driver_;
  CachingAllocator allocator_;
  std::vector<StreamHandle> streams_;
  std::mt19937_64 random_{20261123};
  std::vector<Block> live_;
  long steps_ = 0;
};

TEST(Soak, NothingGrowsInPagedMemory) {
  Soak soak("oom_dump:off,policy:paged");
  const long count = operations();
  const Kept first = soak.run(count / 2);
  const Kept second = soak.run(count - count / 2);
  std::printf(
      "%ld operations: at most %lld, then %lld handles; %lld, %lld mappings; %lld, %lld reservations; %lld, %lld "
      "bytes\n",
      count, static_cast<long long>(first.handles), static_cast<long long>(second.handles),
      static_cast<long long>(first.mappings), static_cast<long long>(second.mappings),
      static_cast<long long>(first.reservations), static_cast<long long>(second.reservations),
      static_cast<long long>(first.host_bytes), static_cast<long long>(second.host_bytes));
  EXPECT_LE(second.handles, first.handles + first.handles / 4);
  // What page_retirement.cpp allows, and a quarter for what is mapped while it is under way.
  const std::int64_t most_mapped = std::max<std::int64_t>(4096, 64 * second.pages) * 5 / 4;
  EXPECT_LE(first.mappings, most_mapped);
  EXPECT_LE(second.mappings, most_mapped);
  EXPECT_GT(second.unmapped, 0) << "none were given up: a longer program is needed";
  EXPECT_LE(second.reservations, 8);  // of four streams
  if (!kSanitized) {
    EXPECT_LE(second.host_bytes, static_cast<std::int64_t>(64 * kMega)) << "the log, when it is full";
  }
  soak.allocator().check();
}

// What stood for a stream that is over stands for one that comes.
TEST(Soak, StreamsThatComeAndGoLeaveNothingInPagedMemory) {
  SimulatedDriver driver({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:paged")});
  const auto host_bytes_after = [&](int streams) {
    for (; streams > 0; --streams) {
      const StreamHandle stream = driver.create_stream();
      allocator.deallocate(allocator.allocate(kMega, stream));
      allocator.release_stream(stream);
      allocator.empty_cache();
      driver.destroy_stream(stream);
    }
    return static_cast<std::int64_t>(mallinfo2().uordblks);
  };
  const std::int64_t first = host_bytes_after(500);
  const std::int64_t second = host_bytes_after(1500);
  std::printf("%lld, then %lld bytes\n", static_cast<long long>(first), static_cast<long long>(second));
  if (!kSanitized) {
    EXPECT_LE(second, first + static_cast<std::int64_t>(kMega)) << "what stands for a stream takes some 4 KiB";
  }
  allocator.check();
}

// The race detector sees an unmap that overtakes work.
TEST(Soak, MappingsAreGivenUpBehindTheWorkThatUsedThem) {
  Soak soak("oom_dump:off,policy:paged", true);
  EXPECT_GT(soak.run(150'000).unmapped, 0) << "none were given up: a longer program is needed";
  for (const RaceReport& report : soak.race_reports()) ADD_FAILURE() << report.to_string();
  soak.allocator().check();
}

}  // namespace
}  // namespace cistern
