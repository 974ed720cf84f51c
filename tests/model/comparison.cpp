#include "comparison.h"

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "ledger_comparison.h"
#include "paged_comparison.h"
#include "reference_allocator.h"
#include "steps.h"
#include "tests/allocator/capturing_driver.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using model::ReferenceAllocator;

// Runs a program on both and compares after each step, or some of them.
class Comparison {
 public:
  explicit Comparison(const SetUp& setup)
      : options_(AllocatorOptions::parse(std::string("oom_dump:off,") + setup.options,
                                         AllocatorOptions::parse("policy:classic"))),
        switches_(setup.switches),
        seldom_(setup.seldom),
        tags_(!setup.seldom || setup.tags_seldom),
        paged_(setup.paged),
        captures_({.capacity_bytes = setup.capacity, .backing = Backing::none}),
        allocator_({.driver = &captures_.api, .options = options_}),
        model_(setup.capacity, paged_ ? AllocatorOptions::parse("expandable_segments:True") : options_) {
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
        if (captured_on(step.stream) != 0) break;  // it would go into a graph
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
        // What went back, and so whose work the driver waited for, is another policy's.
        for (int i = 0; paged_ && i < kStreams; ++i) {
          driver_.run_until_idle(streams_[static_cast<std::size_t>(i)]);
          model_.finish_work(i);
        }
        break;
      case Action::trim:
        if (paged_) break;  // what goes back, and so who is waited for, is another policy's
        allocator_.trim(step.bytes * 8);
        model_.trim(step.bytes * 8);
        break;
      case Action::reset:
        reset(step.pick % 2 == 0);
        break;
      case Action::open_scope:
        if (!paged_) ledgers_.open_scope();
        break;
      case Action::close_scope:
        ledgers_.close_scope(step.pick);
        break;
      case Action::expand:
        if (!switches_) break;
        allocator_.set_options(options_.text +
                               (step.pick % 2 == 0 ? ",expandable_segments:True" : ",expandable_segments:False"));
        model_.expand(step.pick % 2 == 0);
        break;
      case Action::begin:
        begin(step);
        break;
      case Action::end:
        if (!recorded_.empty()) end(std::next(recorded_.begin(), pick_of(recorded_, step))->first);
        break;
      case Action::release_pool:
        release(1 + static_cast<int>(step.pick % kCapturePools));
        break;
      case Action::make_mem_pool:
        if (mem_pools_.size() < 4) make_mem_pool(step);
        break;
      case Action::drop_mem_pool:
        if (!mem_pools_.empty()) drop_mem_pool(std::next(mem_pools_.begin(), pick_of(mem_pools_, step))->first);
        break;
      case Action::enter:
        if (!mem_pools_.empty()) enter(*std::next(mem_pools_.begin(), pick_of(mem_pools_, step)));
        break;
      case Action::leave:
        if (!guards_.empty()) leave();
        break;
      case Action::allocate_in:
        if (!mem_pools_.empty()) allocate(step, &*std::next(mem_pools_.begin(), pick_of(mem_pools_, step)));
        break;
      case Action::turn:
        turn(step);
        break;
    }
    ledgers_.follow();
    if (!seldom_ || step.pick % 16 == 0) compare();
  }

  void free_everything() {
    while (!guards_.empty()) leave();
    while (!recorded_.empty()) end(recorded_.begin()->first);
    for (int pool = 1; pool <= kCapturePools; ++pool)
      while (model_.uses(pool) > 0) release(pool);
    while (!mem_pools_.empty()) drop_mem_pool(mem_pools_.begin()->first);
    while (!live_.empty()) free(live_.back(), -1);
    allocator_.empty_cache();
    model_.empty_cache();
    ledgers_.follow();
    compare();
    RC_ASSERT(driver_.used_bytes() == 0U);
    RC_ASSERT(!captures_.invalidated());
  }

 private:
  StreamHandle stream(const Step& step) const { return streams_[static_cast<std::size_t>(step.stream)]; }
  void* pick(const Step& step) const { return live_[step.pick % live_.size()]; }
  // The model's address of a block, which says whether it is in an address range.
  std::uint64_t relative(void* pointer) const { return relative_.at(pointer); }
  static bool is_in_range(std::uint64_t address) { return address >= model::kFirstRange; }
  // What the model's addresses of that kind and ours differ by, learnt from the first block.
  std::uint64_t& offset(bool in_range) { return offsets_[in_range ? 1 : 0]; }

  // Half of the blocks have no tag.
  int tag_of(const Step& step) const {
    if (!tags_) return 0;
    const auto choice = static_cast<int>(step.pick / 64 % (2 * model::LedgerComparison::kTags));
    return choice < model::LedgerComparison::kTags ? choice : 0;
  }

  // `pool`: a MemPool's number and itself; null: what is recorded decides.
  void allocate(const Step& wanted, const std::pair<const int, MemPool>* pool = nullptr) {
    Step step = wanted;
    // In paged memory streams may come to wait for each other, which the model does not know of: one owns all.
    if (paged_) step.stream = 0;
    const int tag = tag_of(step);
    model_.set_tag(tag);
    const auto expected = pool == nullptr ? model_.allocate(step.bytes, step.stream)
                                          : model_.allocate_in(pool->first, step.bytes, step.stream);
    void* pointer = nullptr;
    try {
      const TagScope scope(model::LedgerComparison::tag(tag));
      pointer = pool == nullptr ? allocator_.allocate(step.bytes, stream(step))
                                : pool->second.allocate(step.bytes, stream(step));
    } catch (const OutOfMemoryError&) {
    }
    RC_ASSERT((pointer != nullptr) == expected.has_value());
    if (pointer == nullptr) return;
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (!paged_) {
      std::uint64_t& base = offset(is_in_range(*expected));
      if (base == 0) base = address - *expected;
      RC_ASSERT(address - base == *expected);
    }
    live_.push_back(pointer);
    relative_[pointer] = *expected;
    asked_[pointer] = {step.bytes, step.stream};
  }

  // The block that came last goes, and as much is asked for again, up to three times.
  void turn(const Step& step) {
    for (std::size_t times = step.pick % 3 + 1; times != 0 && !live_.empty(); --times) {
      void* pointer = live_.back();
      Step again = step;
      std::tie(again.bytes, again.stream) = asked_.at(pointer);
      free(pointer, -1);
      allocate(again);
    }
  }

  void free(void* pointer, int last_used_on) {
    if (last_used_on < 0) {
      allocator_.deallocate(pointer);
    } else {
      allocator_.deallocate(pointer, streams_[static_cast<std::size_t>(last_used_on)]);
      model_.record_stream(relative(pointer), last_used_on);
    }
    model_.free(relative(pointer));
    relative_.erase(pointer);
    live_.erase(std::find(live_.begin(), live_.end(), pointer));
  }

  template <class Map>
  static std::ptrdiff_t pick_of(const Map& map, const Step& step) {
    return static_cast<std::ptrdiff_t>(step.pick % map.size());
  }
  // The pool that a capture of the stream is recorded to; 0: it is not captured.
  int captured_on(int stream) const {
    for (const auto& [pool, captured] : recorded_)
      if (captured == stream) return pool;
    return 0;
  }

  // A capture of the stream, or a recording of all requests or of the stream's.
  void begin(const Step& step) {
    const int pool = 1 + static_cast<int>(step.pick % kCapturePools);
    const bool was_released = model_.uses(pool) == 0 && !allocator_.snapshot().segments.empty() && is_held(pool);
    if (recorded_.count(pool) != 0 || was_released) return;
    PoolFilter filter = PoolFilter::every_stream();
    int captured = -1;
    int taken = -1;
    if (step.bytes % 3 != 0 && captured_on(step.stream) == 0) {
      captured = taken = step.stream;
      captures_.begin_capture(stream(step), ++last_capture_);
      model_.capture(step.stream);
      filter = PoolFilter::capture(last_capture_);
    } else if (step.bytes % 2 == 0) {
      taken = step.stream;
      filter = PoolFilter::stream(stream(step));
    }
    allocator_.begin_allocate_to_pool(0, id_of(pool), filter);
    model_.begin(pool, taken);
    recorded_[pool] = captured;
  }

  void end(int pool) {
    const int captured = recorded_.at(pool);
    if (captured >= 0) {
      captures_.end_capture(streams_[static_cast<std::size_t>(captured)]);
      model_.end_capture(captured);
    }
    recorded_.erase(pool);
    allocator_.end_allocate_to_pool(0, id_of(pool));
    model_.end(pool);
  }

  void release(int pool) {
    if (model_.uses(pool) == 0) {
      RC_ASSERT_THROWS_AS(allocator_.release_pool(0, id_of(pool)), InvalidArgument);
      return;
    }
    allocator_.release_pool(0, id_of(pool));
    model_.release_pool(pool);
  }

  void make_mem_pool(const Step& step) {
    const int number = ++last_pool_;
    MemPoolOptions options;
    model::ModelPool settings;
    options.use_on_oom = settings.use_on_oom = step.pick % 2 == 0;
    options.no_split = settings.no_split = step.pick % 3 == 0;
    if (step.pick % 5 < 2 && !mem_pools_.empty()) {
      const auto& parent = *std::next(mem_pools_.begin(), pick_of(mem_pools_, step));
      options.parent = &parent.second;
      settings.parent = parent.first;
    }
    const auto place = mem_pools_.emplace(number, MemPool(allocator_, options)).first;
    ids_[number] = place->second.id();
    model_.make_mem_pool(number, settings);
  }

  // A guard keeps its pool's object, and a child's object its parent's: only pools that nothing
  // else names are dropped.
  void drop_mem_pool(int number) {
    for (const auto& [guarded, guard] : guards_)
      if (guarded == number) return;
    for (const auto& [other, pool] : mem_pools_)
      if (pool.parent() == mem_pools_.at(number)) return drop_mem_pool(other);
    mem_pools_.erase(number);
    model_.drop_mem_pool(number);
  }

  void enter(const std::pair<const int, MemPool>& pool) {
    guards_.push_back({pool.first, std::make_unique<MemPoolGuard>(pool.second)});
    model_.enter(pool.first);
  }
  void leave() {
    guards_.pop_back();
    model_.leave();
  }

  PoolId id_of(int pool) const {
    if (pool == 0) return {};
    return pool <= kCapturePools ? PoolId{static_cast<std::uint64_t>(pool), 0} : ids_.at(pool);
  }
  bool is_held(int pool) const {
    for (const SegmentInfo& segment : allocator_.snapshot().segments)
      if (segment.segment_pool_id.first == pool) return true;
    return false;
  }

  void reset(bool peaks) {
    if (peaks) {
      allocator_.reset_peak_memory_stats();
      model_.reset_peaks();
    } else {
      allocator_.reset_accumulated_memory_stats();
      model_.reset_accumulated();
    }
    ledgers_.reset(peaks);
  }

  void compare() {
    try {
      allocator_.check();
    } catch (const std::logic_error& error) {
      RC_FAIL(error.what());
    }
    if (paged_) return compare_paged();
    model::require_equal("the device", model_.stats(), allocator_.memory_stats());
    RC_ASSERT(driver_.used_bytes() == static_cast<std::size_t>(model_.stats().reserved_bytes.all.current));
    ledgers_.compare();
    compare_blocks();
  }

  // What is live and pending is as in expandable segments; every reserved byte is shown once, and the device has it.
  void compare_paged() {
    const MemoryStats actual = allocator_.memory_stats();
    const MemoryStats expected = model_.stats();
    RC_ASSERT(actual.allocation.all == expected.allocation.all);
    RC_ASSERT(actual.allocated_bytes.all == expected.allocated_bytes.all);
    RC_ASSERT(actual.active.all == expected.active.all);
    RC_ASSERT(actual.active_bytes.all == expected.active_bytes.all);
    RC_ASSERT(actual.requested_bytes.all == expected.requested_bytes.all);
    RC_ASSERT(actual.num_ooms == 0);
    RC_ASSERT(driver_.used_bytes() == static_cast<std::size_t>(actual.reserved_bytes.all.current));
    ledgers_.compare_live();
    mapped_.compare(allocator_);
    for (void* pointer : live_)
      RC_ASSERT(mapped_.requested(pointer) == static_cast<std::int64_t>(asked_.at(pointer).first));
  }

  void compare_blocks() {
    model::compare_blocks(allocator_.snapshot(), model_.segments(), {offsets_[0], offsets_[1]},
                          [this](int pool) { return id_of(pool); });
  }

  static constexpr int kCapturePools = 2;

  AllocatorOptions options_;
  bool switches_;
  bool seldom_;
  bool tags_;
  bool paged_;
  CapturingDriver captures_;
  SimulatedDriver& driver_ = captures_.driver;
  model::PagedComparison mapped_{captures_.api};
  CachingAllocator allocator_;
  ReferenceAllocator model_;
  std::vector<StreamHandle> streams_;
  model::LedgerComparison ledgers_{allocator_, model_, streams_};
  std::vector<void*> live_;
  std::map<void*, std::uint64_t> relative_;             // of live blocks
  std::map<void*, std::pair<std::size_t, int>> asked_;  // bytes and stream
  std::uint64_t offsets_[2] = {0, 0};
  std::map<int, int> recorded_;  // pools, and the stream that each one's capture captures, or -1
  std::uint64_t last_capture_ = 0;
  int last_pool_ = kCapturePools;
  std::map<int, MemPool> mem_pools_;
  std::map<int, PoolId> ids_;
  std::vector<std::pair<int, std::unique_ptr<MemPoolGuard>>> guards_;  // with their pools' numbers
};

}  // namespace

void run_random_program(const SetUp& setup) {
  const auto program = *rc::gen::container<std::vector<Step>>(any_step(setup.pools));
  Comparison comparison(setup);
  for (const Step& step : program) comparison.run(step);
  comparison.free_everything();
}

}  // namespace cistern
