// Policy `async` against a specification of a page: random programs over streams that come and go, with work that the
// race detector judges. What is live, what waits for streams, and nothing else, is what the driver's pool has given.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

[[maybe_unused]] const bool programs_configured = configure_properties("StreamOrderedPrograms", 3000, 160);

constexpr std::size_t kStreams = 4;

enum class Action { allocate, free, free_used_on, record, work, finish, empty_cache, trim, replace_stream };

struct Step {
  Action action = Action::allocate;
  std::size_t bytes = 1;
  std::size_t stream = 0;
  std::size_t pick = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  static const char* const names[] = {"allocate", "free",        "free used on", "record",        "work",
                                      "finish",   "empty cache", "trim",         "replace stream"};
  return out << names[static_cast<int>(step.action)] << " (bytes " << step.bytes << ", stream " << step.stream
             << ", pick " << step.pick << ")";
}

rc::Gen<Step> any_step() {
  const auto action = rc::gen::weightedElement<Action>({{30, Action::allocate},
                                                        {16, Action::free},
                                                        {8, Action::free_used_on},
                                                        {12, Action::record},
                                                        {20, Action::work},
                                                        {8, Action::finish},
                                                        {1, Action::empty_cache},
                                                        {1, Action::trim},
                                                        {3, Action::replace_stream}});
  const auto bytes = rc::gen::oneOf(rc::gen::inRange<std::size_t>(1, 4096), rc::gen::inRange(kMega, 12 * kMega));
  return rc::gen::build<Step>(rc::gen::set(&Step::action, action), rc::gen::set(&Step::bytes, bytes),
                              rc::gen::set(&Step::stream, rc::gen::inRange<std::size_t>(0, kStreams)),
                              rc::gen::set(&Step::pick, rc::gen::arbitrary<std::size_t>()));
}

struct ModelStream {
  StreamHandle handle = nullptr;
  bool is_lost = false;  // destroyed
};
struct ModelBlock {
  void* pointer = nullptr;
  std::size_t bytes = 0;
  std::size_t owner = 0;
  std::set<std::size_t> users;  // other streams that were recorded
  std::vector<CUevent> events;  // freed: on those that were there still
  [[nodiscard]] std::int64_t rounded() const {
    return static_cast<std::int64_t>(std::max<std::size_t>((bytes + 511) / 512 * 512, 512));
  }
};

class Program {
 public:
  explicit Program(const std::string& options)
      : allocator_(
            {.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:async,oom_dump:off" + options)}) {
    CUcontext context = nullptr;  // for the events of this program's own
    RC_ASSERT(driver_.api().primary_ctx_retain(&context, 0) == CUDA_SUCCESS);
    RC_ASSERT(driver_.api().ctx_set_current(context) == CUDA_SUCCESS);
    for (std::size_t i = 0; i < kStreams; ++i) add_stream(i);
  }

  void run(const Step& step) {
    switch (step.action) {
      case Action::allocate:
        allocate(step.bytes, current_[step.stream]);
        break;
      case Action::free:
        if (!live_.empty()) free(step.pick % live_.size());
        break;
      case Action::free_used_on:
        if (!live_.empty()) free_used_on(step.pick % live_.size(), current_[step.stream]);
        break;
      case Action::record:
        if (!live_.empty()) record(live_[step.pick % live_.size()], current_[step.stream]);
        break;
      case Action::work:
        if (!live_.empty()) work(live_[step.pick % live_.size()], current_[step.stream]);
        break;
      case Action::finish:
        driver_.run_until_idle(streams_[current_[step.stream]].handle);
        break;
      case Action::empty_cache:
        allocator_.empty_cache();
        pending_.clear();
        break;
      case Action::trim:
        poll();
        allocator_.trim(step.bytes);
        break;
      case Action::replace_stream:
        driver_.destroy_stream(streams_[current_[step.stream]].handle);
        streams_[current_[step.stream]].is_lost = true;
        add_stream(step.stream);
        break;
    }
    compare();
  }

  void end() {
    while (!live_.empty()) free(0);
    allocator_.empty_cache();
    pending_.clear();
    compare();
    RC_ASSERT(driver_.used_bytes() == 0U);
    for (const RaceReport& report : driver_.race_reports()) RC_FAIL(report.to_string());
  }

 private:
  void add_stream(std::size_t place) {
    current_[place] = streams_.size();
    streams_.push_back({driver_.create_stream()});
  }

  void allocate(std::size_t bytes, std::size_t stream) {
    poll();
    const std::int64_t retries = allocator_.memory_stats().num_alloc_retries;
    void* pointer = nullptr;
    try {
      pointer = allocator_.allocate(bytes, streams_[stream].handle);
    } catch (const OutOfMemoryError& error) {
      const OutOfMemoryReport& report = error.report();
      RC_ASSERT(report.device_total_bytes == report.device_free_bytes + report.outside_bytes + report.reserved_bytes);
      RC_ASSERT(report.pending_free_bytes == 0U);
    }
    if (allocator_.memory_stats().num_alloc_retries != retries) pending_.clear();  // they were waited for
    if (pointer != nullptr) live_.push_back({pointer, bytes, stream, {}, {}});
  }

  void free(std::size_t index) { allocator_.deallocate(retire(index)); }
  void free_used_on(std::size_t index, std::size_t stream) {
    if (!record_use(live_[index], stream)) return free(index);
    read(live_[index], stream);
    allocator_.deallocate(retire(index), streams_[stream].handle);
  }
  // It goes back at once, or waits for what is queued now on its other streams; the device is waited for where one of
  // these, or its own, is lost.
  void* retire(std::size_t index) {
    ModelBlock block = live_[index];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    for (const std::size_t user : block.users)
      if (!streams_[user].is_lost) block.events.push_back(record_event(user));
    if (!block.events.empty()) pending_.push_back(block);
    return block.pointer;
  }

  void record(ModelBlock& block, std::size_t stream) {
    if (record_use(block, stream)) allocator_.record_stream(block.pointer, streams_[stream].handle);
  }
  // The stream's later work comes behind the allocation: false where nothing can order it so any more.
  bool record_use(ModelBlock& block, std::size_t stream) {
    if (stream == block.owner || block.users.count(stream) != 0) return true;
    if (streams_[block.owner].is_lost) return false;
    RC_ASSERT(driver_.api().stream_wait_event(streams_[stream].handle, record_event(block.owner), 0) == CUDA_SUCCESS);
    block.users.insert(stream);
    return true;
  }
  CUevent record_event(std::size_t stream) {
    CUevent event = nullptr;
    RC_ASSERT(driver_.api().event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    RC_ASSERT(driver_.api().event_record(event, streams_[stream].handle) == CUDA_SUCCESS);
    return event;
  }
  void work(const ModelBlock& block, std::size_t stream) {
    if (stream == block.owner || block.users.count(stream) != 0) read(block, stream);
  }
  void read(const ModelBlock& block, std::size_t stream) {
    driver_.launch(streams_[stream].handle, {{block.pointer, block.bytes}}, {}, 1ms, {});
  }

  // What the heap does at each request: frees whose streams are done go back.
  void poll() {
    const auto is_done = [&](const ModelBlock& block) {
      return std::all_of(block.events.begin(), block.events.end(),
                         [&](CUevent event) { return driver_.api().event_query(event) == CUDA_SUCCESS; });
    };
    pending_.erase(std::remove_if(pending_.begin(), pending_.end(), is_done), pending_.end());
  }

  void compare() {
    allocator_.check();
    const MemoryStats stats = allocator_.memory_stats();
    std::int64_t allocated = 0, requested = 0, waiting = 0;
    for (const ModelBlock& block : live_) {
      allocated += block.rounded();
      requested += static_cast<std::int64_t>(block.bytes);
    }
    for (const ModelBlock& block : pending_) {
      waiting += block.rounded();
      requested += static_cast<std::int64_t>(block.bytes);
    }
    const auto count = static_cast<std::int64_t>(live_.size() + pending_.size());
    RC_ASSERT(stats.allocation.all.current == static_cast<std::int64_t>(live_.size()));
    RC_ASSERT(stats.allocated_bytes.all.current == allocated);
    RC_ASSERT(stats.requested_bytes.all.current == requested);
    RC_ASSERT(stats.active.all.current == count);
    RC_ASSERT(stats.active_bytes.all.current == allocated + waiting);
    RC_ASSERT(stats.segment.all.current == count);
    RC_ASSERT(stats.reserved_bytes.all.current == allocated + waiting);
    RC_ASSERT(driver_.used_bytes() >= static_cast<std::size_t>(allocated + waiting));
  }

  SimulatedDriver driver_{{.capacity_bytes = 64 * kMega, .backing = Backing::none, .races = RaceMode::collect}};
  CachingAllocator allocator_;
  std::vector<ModelStream> streams_;
  std::size_t current_[kStreams] = {};
  std::vector<ModelBlock> live_;
  std::vector<ModelBlock> pending_;
};

void run_programs(const std::string& options) {
  const auto steps = *rc::gen::container<std::vector<Step>>(any_step());
  Program program(options);
  for (const Step& step : steps) program.run(step);
  program.end();
}

RC_GTEST_PROP(StreamOrderedPrograms, HaveWhatIsLiveAndWhatWaits, ()) { run_programs(""); }
RC_GTEST_PROP(StreamOrderedPrograms, KeepToALimit, ()) { run_programs(",per_process_memory_fraction:0.5"); }

}  // namespace
}  // namespace cistern
