// The allocator against its executable specification, after every operation of random
// programs over streams, pools, limits and pending frees that complete in random order.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference_allocator.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using model::ReferenceAllocator;

[[maybe_unused]] const bool configured = configure_properties(3000, 160);

constexpr std::size_t kMega = 1024 * 1024;
constexpr int kStreams = 4;

enum class Action { allocate, free, free_used_on, record, occupy, finish, empty_cache, trim, reset };

struct Step {
  Action action = Action::allocate;
  std::size_t bytes = 0;
  int stream = 0;
  std::size_t pick = 0;  // which of the live blocks
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  static const char* const names[] = {"allocate", "free",        "free used on", "record", "occupy",
                                      "finish",   "empty cache", "trim to",      "reset"};
  return out << names[static_cast<int>(step.action)] << " (bytes " << step.bytes << ", stream " << step.stream
             << ", pick " << step.pick << ")";
}

// Sizes at which the rules change, and any size between.
rc::Gen<std::size_t> request_size() {
  return rc::gen::oneOf(
      rc::gen::inRange<std::size_t>(1, 4096), rc::gen::inRange<std::size_t>(4096, 2 * kMega),
      rc::gen::inRange<std::size_t>(kMega, 12 * kMega), rc::gen::inRange<std::size_t>(10 * kMega, 70 * kMega),
      rc::gen::element<std::size_t>(1, 511, 512, 513, kMega - 1, kMega, kMega + 1, 2 * kMega, 10 * kMega - 512,
                                    10 * kMega - 1, 10 * kMega, 10 * kMega + 1, 20 * kMega, 32 * kMega, 64 * kMega));
}

rc::Gen<Step> any_step() {
  const auto action = rc::gen::weightedElement<Action>({{40, Action::allocate},
                                                        {24, Action::free},
                                                        {6, Action::free_used_on},
                                                        {16, Action::record},
                                                        {10, Action::occupy},
                                                        {8, Action::finish},
                                                        {2, Action::empty_cache},
                                                        {2, Action::trim},
                                                        {1, Action::reset}});
  return rc::gen::build<Step>(rc::gen::set(&Step::action, action), rc::gen::set(&Step::bytes, request_size()),
                              rc::gen::set(&Step::stream, rc::gen::inRange(0, kStreams)),
                              rc::gen::set(&Step::pick, rc::gen::arbitrary<std::size_t>()));
}

struct SetUp {
  const char* name;
  std::size_t capacity;
  const char* options;
};

// Runs a program on both and compares after each step.
class Comparison {
 public:
  explicit Comparison(const SetUp& setup)
      : options_(AllocatorOptions::parse(std::string("oom_dump:off,") + setup.options)),
        driver_({.capacity_bytes = setup.capacity, .backing = Backing::none}),
        allocator_({.driver = &driver_.api(), .options = options_}),
        model_(setup.capacity, options_) {
    allocator_.reset_peak_memory_stats();  // makes the heap, which the model has from the start
    streams_.push_back(nullptr);
    for (int i = 1; i < kStreams; ++i) streams_.push_back(driver_.create_stream());
  }

  void run(const Step& step) {
    switch (step.action) {
      case Action::allocate:
        allocate(step);
        break;
      case Action::free:
        if (!live_.empty()) free(pick(step), -1);
        break;
      case Action::free_used_on:
        if (!live_.empty()) free(pick(step), step.stream);
        break;
      case Action::record:
        if (live_.empty()) break;
        allocator_.record_stream(pick(step), stream(step));
        model_.record_stream(relative(pick(step)), step.stream);
        break;
      case Action::occupy:
        driver_.occupy(stream(step), 1ms);
        model_.occupy(step.stream);
        break;
      case Action::finish:
        driver_.run_until_idle(stream(step));
        model_.finish_work(step.stream);
        break;
      case Action::empty_cache:
        allocator_.empty_cache();
        model_.empty_cache();
        break;
      case Action::trim:
        allocator_.trim(step.bytes * 8);
        model_.trim(step.bytes * 8);
        break;
      case Action::reset:
        reset(step.pick % 2 == 0);
        break;
    }
    compare();
  }

  void free_everything() {
    while (!live_.empty()) free(live_.back(), -1);
    allocator_.empty_cache();
    model_.empty_cache();
    compare();
    RC_ASSERT(driver_.used_bytes() == 0U);
  }

 private:
  StreamHandle stream(const Step& step) const { return streams_[static_cast<std::size_t>(step.stream)]; }
  void* pick(const Step& step) const { return live_[step.pick % live_.size()]; }
  std::uint64_t relative(void* pointer) const { return reinterpret_cast<std::uintptr_t>(pointer) - base_; }

  void allocate(const Step& step) {
    const auto expected = model_.allocate(step.bytes, step.stream);
    void* pointer = nullptr;
    try {
      pointer = allocator_.allocate(step.bytes, stream(step));
    } catch (const OutOfMemoryError&) {
    }
    RC_ASSERT((pointer != nullptr) == expected.has_value());
    if (pointer == nullptr) return;
    if (base_ == 0) base_ = reinterpret_cast<std::uintptr_t>(pointer) - *expected;
    RC_ASSERT(relative(pointer) == *expected);
    live_.push_back(pointer);
  }

  void free(void* pointer, int last_used_on) {
    if (last_used_on < 0) {
      allocator_.deallocate(pointer);
    } else {
      allocator_.deallocate(pointer, streams_[static_cast<std::size_t>(last_used_on)]);
      model_.record_stream(relative(pointer), last_used_on);
    }
    model_.free(relative(pointer));
    live_.erase(std::find(live_.begin(), live_.end(), pointer));
  }

  void reset(bool peaks) {
    if (peaks) {
      allocator_.reset_peak_memory_stats();
      model_.reset_peaks();
    } else {
      allocator_.reset_accumulated_memory_stats();
      model_.reset_accumulated();
    }
  }

  void compare() {
    try {
      allocator_.check();
    } catch (const std::logic_error& error) {
      RC_FAIL(error.what());
    }
    const auto expected = model_.stats().flat();
    const auto actual = allocator_.memory_stats().flat();
    for (const auto& [key, value] : expected) {
      if (actual.at(key) != value)
        RC_FAIL(key + ": the model has " + std::to_string(value) + ", the allocator " + std::to_string(actual.at(key)));
    }
    RC_ASSERT(driver_.used_bytes() == static_cast<std::size_t>(model_.stats().reserved_bytes.all.current));
    compare_blocks();
  }

  void compare_blocks() {
    const Snapshot snapshot = allocator_.snapshot();
    RC_ASSERT(snapshot.segments.size() == model_.segments().size());
    auto expected = model_.segments().begin();
    for (const SegmentInfo& segment : snapshot.segments) {
      RC_ASSERT(segment.address - base_ == expected->address);
      RC_ASSERT(segment.blocks.size() == expected->blocks.size());
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        const model::ModelBlock& block = expected->blocks[i];
        const BlockState state = block.live      ? BlockState::active_allocated
                                 : block.pending ? BlockState::active_pending_free
                                                 : BlockState::inactive;
        RC_ASSERT(segment.blocks[i].address - base_ == block.address);
        RC_ASSERT(segment.blocks[i].size == static_cast<std::int64_t>(block.bytes));
        RC_ASSERT(segment.blocks[i].state == state);
      }
      ++expected;
    }
  }

  AllocatorOptions options_;
  SimulatedDriver driver_;
  CachingAllocator allocator_;
  ReferenceAllocator model_;
  std::vector<StreamHandle> streams_;
  std::vector<void*> live_;
  std::uint64_t base_ = 0;
};

void run_random_program(const SetUp& setup) {
  const auto program = *rc::gen::container<std::vector<Step>>(any_step());
  Comparison comparison(setup);
  for (const Step& step : program) comparison.run(step);
  comparison.free_everything();
}

RC_GTEST_PROP(Model, EqualWithRoomToSpare, ()) { run_random_program({"roomy", 4096 * kMega, ""}); }

RC_GTEST_PROP(Model, EqualWhenMemoryIsTight, ()) { run_random_program({"tight", 160 * kMega, ""}); }

RC_GTEST_PROP(Model, EqualWithASplitLimit, ()) {
  run_random_program({"split", 240 * kMega, "max_split_size_mb:32,max_non_split_rounding_mb:24"});
}

RC_GTEST_PROP(Model, EqualWithDivisions, ()) {
  run_random_program({"divisions", 400 * kMega, "roundup_power2_divisions:[1:4,8:8,32:2,>:4]"});
}

RC_GTEST_PROP(Model, EqualWithGarbageCollection, ()) {
  run_random_program({"collecting", 512 * kMega, "garbage_collection_threshold:0.4,per_process_memory_fraction:0.5"});
}

RC_GTEST_PROP(Model, EqualWhenSearchingAgainAfterAFlush, ()) {
  run_random_program({"research", 160 * kMega, "research_after_flush:True"});
}

}  // namespace
}  // namespace cistern
