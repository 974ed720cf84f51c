// Paged memory on devices that are full, in random programs over streams: no two blocks share a byte, what is reserved
// stays within the bound of docs/paged-policy.md, and nothing is refused that could be had.

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "mapped_memory.h"
#include "tests/allocator/paged_bound.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

[[maybe_unused]] const bool configured = configure_properties("PagedModel", 1500, 160);

constexpr std::size_t kPageBytes = 2 * kMega;
constexpr int kStreams = 3;

enum class Action { allocate, free, record, occupy, finish, empty_cache, trim };

struct Step {
  Action action = Action::allocate;
  std::size_t bytes = 0;
  int stream = 0;
  std::size_t pick = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  static const char* const names[] = {"allocate", "free", "record", "occupy", "finish", "empty cache", "trim"};
  return out << names[static_cast<int>(step.action)] << " (bytes " << step.bytes << ", stream " << step.stream
             << ", pick " << step.pick << ")";
}

rc::Gen<Step> any_step() {
  const auto action = rc::gen::weightedElement<Action>({{40, Action::allocate},
                                                        {25, Action::free},
                                                        {8, Action::record},
                                                        {8, Action::occupy},
                                                        {8, Action::finish},
                                                        {1, Action::empty_cache},
                                                        {2, Action::trim}});
  const auto bytes = rc::gen::oneOf(
      rc::gen::inRange<std::size_t>(1, kMega), rc::gen::inRange<std::size_t>(kMega, 9 * kMega),
      rc::gen::inRange<std::size_t>(8 * kMega, 40 * kMega),
      rc::gen::element<std::size_t>(1, 512, kPageBytes - 512, kPageBytes, kPageBytes + 1, 3 * kMega, 5 * kMega));
  return rc::gen::build<Step>(rc::gen::set(&Step::action, action), rc::gen::set(&Step::bytes, bytes),
                              rc::gen::set(&Step::stream, rc::gen::inRange(0, kStreams)),
                              rc::gen::set(&Step::pick, rc::gen::arbitrary<std::size_t>()));
}

class Program {
 public:
  explicit Program(std::size_t capacity, const std::string& options = "")
      : capacity_(capacity),
        driver_({.capacity_bytes = capacity, .backing = Backing::none}),
        allocator_({.driver = &api_, .options = AllocatorOptions::parse("oom_dump:off,policy:paged" + options)}) {
    api_.host_clock = {&now_, [](void* self) { return *static_cast<std::int64_t*>(self); }};
    streams_.push_back(nullptr);
    while (streams_.size() < kStreams) streams_.push_back(driver_.create_stream());
  }

  void run(const Step& step) {
    const StreamHandle stream = streams_[static_cast<std::size_t>(step.stream)];
    const std::size_t chosen = live_.empty() ? 0 : step.pick % live_.size();
    now_ += 100000000;  // a tenth of a second
    switch (step.action) {
      case Action::allocate:
        allocate(step.bytes, stream);
        break;
      case Action::free:
        if (live_.empty()) break;
        allocator_.deallocate(live_[chosen]);
        live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(chosen));
        break;
      case Action::record:
        if (!live_.empty()) allocator_.record_stream(live_[chosen], stream);
        break;
      case Action::occupy:
        driver_.occupy(stream, 1ms);
        break;
      case Action::finish:
        driver_.run_until_idle(stream);
        break;
      case Action::empty_cache:
        allocator_.empty_cache();
        break;
      case Action::trim:
        allocator_.trim(step.bytes);
        break;
    }
    look();
    const auto reserved = static_cast<std::int64_t>(memory_.bytes() / kPageBytes);
    RC_ASSERT(memory_.bytes() == driver_.used_bytes());
    if (all_share()) RC_ASSERT(reserved <= bound_.most(reserved));
  }
  void run_twice(const std::vector<Step>& steps) {
    for (int pass = 0; pass < 2; ++pass) {
      for (const Step& step : steps) run(step);
      while (!live_.empty()) run({Action::free, 0, 0, live_.size() - 1});
      driver_.run_until_idle();
    }
    allocator_.check();
  }

 private:
  void allocate(std::size_t bytes, StreamHandle stream) {
    try {
      live_.push_back(allocator_.allocate(bytes, stream));
    } catch (const OutOfMemoryError&) {
      look();
      const std::size_t left = (capacity_ - driver_.used_bytes()) / kPageBytes * kPageBytes;
      const std::size_t rounded = (bytes + 511) / 512 * 512;
      if (memory_.could_serve(rounded, left)) RC_FAIL(std::to_string(bytes) + " bytes could have been had");
    }
  }
  // So far. A stream that stands alone creates what others have free, which stays: the bound is not for it.
  [[nodiscard]] bool all_share() {
    const std::vector<StreamStats> streams = allocator_.stream_stats();
    all_share_ &= std::none_of(streams.begin(), streams.end(), [](const StreamStats& one) { return one.stands_alone; });
    return all_share_;
  }
  // Which bytes blocks have now.
  void look() {
    memory_.forget_blocks();
    std::int64_t live = 0;
    for (const SegmentInfo& segment : allocator_.snapshot().segments)
      for (const BlockInfo& block : segment.blocks) {
        if (block.state == BlockState::inactive) continue;
        if (block.state == BlockState::active_allocated) live += block.size;
        RC_ASSERT(memory_.add(block.address, static_cast<std::size_t>(block.size)));
      }
    bound_.note(live / kSectorBytes, static_cast<std::int64_t>(memory_.bytes_in_use() / kPageBytes));
  }

  const std::size_t capacity_;
  SimulatedDriver driver_;
  std::int64_t now_ = 0;
  DriverApi api_ = driver_.api();
  model::MappedMemory memory_{api_};
  CachingAllocator allocator_;
  std::vector<StreamHandle> streams_;
  std::vector<void*> live_;
  bool all_share_ = true;
  PagedBound bound_{PageSize(std::countr_zero(kPageBytes / static_cast<std::size_t>(kSectorBytes)))};
};

RC_GTEST_PROP(PagedModel, AFullDeviceKeepsToTheBoundAndServesWhatItCan, ()) {
  Program(48 * kMega).run_twice(*rc::gen::container<std::vector<Step>>(any_step()));
}

RC_GTEST_PROP(PagedModel, ADeviceWithRoomKeepsToTheBound, ()) {
  Program(4096 * kMega).run_twice(*rc::gen::container<std::vector<Step>>(any_step()));
}

RC_GTEST_PROP(PagedModel, StreamsThatWaitHoweverOftenKeepToTheBound, ()) {
  Program(4096 * kMega, ",stream_hand_over:wait").run_twice(*rc::gen::container<std::vector<Step>>(any_step()));
}

RC_GTEST_PROP(PagedModel, MemoryThatDecaysKeepsToTheBoundAndServesWhatItCan, ()) {
  Program(48 * kMega, ",decay_ms:700").run_twice(*rc::gen::container<std::vector<Step>>(any_step()));
}

}  // namespace
}  // namespace cistern
