// Stacks and texts are counted as often as entries, blocks, segments and requests refer to them: after
// every step of random programs, and while the driver has the floor.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "stats/history.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

// A driver in the middle of whose calls the allocator verifies itself.
struct Verifying {
  explicit Verifying(const DriverApi& inner) : driver(inner), api(inner) {
    api.mem_alloc = {this, [](void* self, CUdeviceptr* pointer, std::size_t bytes) {
                       auto& me = *static_cast<Verifying*>(self);
                       me.verify();
                       return me.driver.mem_alloc(pointer, bytes);
                     }};
    api.mem_free = {this, [](void* self, CUdeviceptr pointer) {
                      auto& me = *static_cast<Verifying*>(self);
                      me.verify();
                      return me.driver.mem_free(pointer);
                    }};
    api.mem_map = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags) {
                     auto& me = *static_cast<Verifying*>(self);
                     me.verify();
                     return me.driver.mem_map(pointer, bytes, offset, handle, flags);
                   }};
    api.mem_unmap = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes) {
                       auto& me = *static_cast<Verifying*>(self);
                       me.verify();
                       return me.driver.mem_unmap(pointer, bytes);
                     }};
  }
  void verify() {
    if (allocator == nullptr) return;
    ++verified;
    try {
      allocator->check();
    } catch (const std::logic_error& error) {
      if (fault.empty()) fault = error.what();
    }
  }

  const DriverApi& driver;
  DriverApi api;
  CachingAllocator* allocator = nullptr;
  int verified = 0;
  std::string fault;  // the first
};

class Program {
 public:
  Program(const char* options, std::uint32_t seed)
      : random_(seed), allocator_({.driver = &verifying_.api, .options = AllocatorOptions::parse(options)}) {
    for (int i = 0; i < 2; ++i) streams_.push_back(driver_.create_stream());
    verifying_.allocator = &allocator_;
  }
  ~Program() { verifying_.allocator = nullptr; }

  void run(int steps) {
    change_options();
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      step(below(6));
      ASSERT_NO_THROW(allocator_.check());
      ASSERT_EQ(verifying_.fault, "") << "during a call of the driver";
    }
  }
  [[nodiscard]] int verified_during_calls() const { return verifying_.verified; }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }

  // From stacks of several depths.
  [[gnu::noinline]] void step(std::size_t depth) {
    if (depth != 0)
      step(depth - 1);
    else
      act();
    asm volatile("");
  }
  void act() {
    switch (below(32)) {
      case 0:
        allocator_.empty_cache();
        break;
      case 1:
        static_cast<void>(allocator_.trim(below(100) * kMega));
        break;
      case 2:
        change_options();
        break;
      case 3:
        allocator_.set_user_metadata(below(3) == 0 ? "" : "step " + std::to_string(below(8)));
        break;
      case 4:
        if (!live_.empty()) allocator_.annotate(pick(), below(4) == 0 ? "" : "block " + std::to_string(below(8)));
        break;
      case 5:
        driver_.occupy(any_stream(), 1ms);
        break;
      case 6:
        driver_.run_until_idle(any_stream());
        break;
      default:
        below(2) == 0 ? allocate() : free();
    }
  }
  void allocate() {
    try {
      const std::size_t bytes = 1 + below(below(3) == 0 ? 70 * kMega : 4 * kMega);
      live_.push_back(below(3) == 0 ? allocator_.allocate(bytes, any_stream()) : allocator_.allocate(bytes));
    } catch (const OutOfMemoryError&) {
    }
  }
  void free() {
    if (live_.empty()) return;
    void* block = pick();
    if (below(3) == 0) allocator_.record_stream(block, any_stream());
    live_.erase(std::find(live_.begin(), live_.end(), block));
    allocator_.deallocate(block);
  }
  void change_options() {
    HistoryOptions options;
    options.enabled = below(6) == 0   ? HistoryEnabled::none
                      : below(4) == 0 ? HistoryEnabled::state
                                      : HistoryEnabled::all;
    options.context = static_cast<HistoryContext>(below(4));
    options.max_entries = 1 + below(40);
    options.max_frames = 1 + below(20);
    options.max_stack_bytes = below(2) == 0 ? 2000 : 1 << 20;
    options.clear_history = below(3) == 0;
    allocator_.record_history(options);
  }
  void* pick() { return live_[below(live_.size())]; }
  StreamHandle any_stream() { return streams_[below(streams_.size())]; }

  std::mt19937 random_;
  SimulatedDriver driver_{SimulatedOptions{.capacity_bytes = 256 * kMega, .backing = Backing::none}};
  Verifying verifying_{driver_.api()};
  CachingAllocator allocator_;
  std::vector<StreamHandle> streams_;
  std::vector<void*> live_;
};

void run_programs(const char* options) {
  int verified = 0;
  const auto programs = static_cast<std::uint32_t>(scaled_programs(300));
  for (std::uint32_t seed = 1; seed <= programs && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program program(options, seed);
    program.run(200);
    verified += program.verified_during_calls();
  }
  EXPECT_GT(verified, 10) << "while a request that holds its stack waits for the driver";
}

void use(DeviceHistory& history, HistoryOptions options, HistoryRing ring) {
  DeviceHistory::Retired retired = history.set_options(options, std::move(ring));
  while (history.let_go_some(retired)) {
  }
}

TEST(HistoryReferences, OfEntriesThatComeWhileAnotherRingIsMadeAreCounted) {
  for (const bool clears : {false, true}) {
    DeviceHistory history;
    HistoryOptions options;
    options.max_entries = 20;
    use(history, options, HistoryRing(options.max_entries));
    const auto annotate = [&](int first, int last) {
      for (int i = first; i < last; ++i) history.annotate({}, share_text("text " + std::to_string(i)));
    };
    annotate(0, 10);
    options.max_entries = 5;
    options.clear_history = clears;
    const DeviceHistory::RingSize size = history.ring_for(options);
    HistoryRing ring(size.capacity, size.prepared);
    annotate(10, 15);
    use(history, options, std::move(ring));
    EXPECT_NO_THROW(history.check({}, 0));
    EXPECT_EQ(history.info().entries, clears ? 0U : 15U);
  }
}

TEST(HistoryReferences, OfATextThatIsPreparedAreCounted) {
  DeviceHistory history;
  const TextId first = history.prepare_text(share_text("first"));
  const TextId second = history.prepare_text(share_text("second"));
  EXPECT_NO_THROW(history.check({}, 0));
  history.use_text(first);
  EXPECT_NO_THROW(history.check({}, 0));
  history.drop_text(second);
  EXPECT_NO_THROW(history.check({}, 0));
  history.use_text(kNoText);
  EXPECT_NO_THROW(history.check({}, 0));
}

TEST(HistoryReferences, OfTheClassicPolicyAreCounted) { run_programs("oom_dump:off"); }
TEST(HistoryReferences, OfTheExpandablePolicyAreCounted) { run_programs("oom_dump:off,policy:expandable"); }
TEST(HistoryReferences, OfTheDirectPolicyAreCounted) { run_programs("oom_dump:off,policy:direct"); }

}  // namespace
}  // namespace cistern
