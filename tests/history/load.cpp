#include "tests/history/load.h"

#include <cistern/error.h>
#include <cistern/scope.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "tests/history/trace_replay.h"

namespace cistern {
namespace {

constexpr std::size_t kThreads = 3;

// A size says whose it is.
std::size_t size_of(std::size_t number, std::size_t about) { return about / kThreads * kThreads + kThreads + number; }
std::size_t number_of(std::int64_t size) { return static_cast<std::size_t>(size) % kThreads; }

// Functions to be found in stacks. The statement behind the call keeps it from being a jump.
template <int number>
[[gnu::noinline]] void* allocate_as(CachingAllocator& allocator, std::size_t bytes) {
  void* block = allocator.allocate(bytes);
  asm volatile("" : : "i"(number));
  return block;
}
template <int number>
[[gnu::noinline]] void free_as(CachingAllocator& allocator, void* block) {
  allocator.deallocate(block);
  asm volatile("" : : "i"(number));
}

// Where the functions above are: a dump's frames have addresses alone.
std::uint64_t address_of(std::size_t number, bool frees) {
  constexpr void* (*kAllocates[kThreads])(CachingAllocator&, std::size_t) = {allocate_as<0>, allocate_as<1>,
                                                                             allocate_as<2>};
  constexpr void (*kFrees[kThreads])(CachingAllocator&, void*) = {free_as<0>, free_as<1>, free_as<2>};
  return frees ? reinterpret_cast<std::uint64_t>(kFrees[number]) : reinterpret_cast<std::uint64_t>(kAllocates[number]);
}

// The functions are short: a call in one returns to soon after its beginning.
bool comes_from(const Snapshot& snapshot, StackIndex stack, std::size_t number, bool frees) {
  constexpr std::uint64_t kLongest = 256;
  if (stack < 0 || static_cast<std::size_t>(stack) >= snapshot.stacks.size()) return false;
  const StackInfo& frames = snapshot.stacks[static_cast<std::size_t>(stack)];
  const std::uint64_t begin = address_of(number, frees);
  return std::any_of(frames.begin(), frames.end(), [begin](const FrameInfo& frame) {
    return frame.address > begin && frame.address < begin + kLongest;
  });
}

std::string tag_of(std::size_t number) { return fmt::format("thread {}", number); }

template <class Names, class Index>
std::string_view name_of(const Names& names, Index index) {
  return index < 0 || static_cast<std::size_t>(index) >= names.size()
             ? std::string_view("none")
             : std::string_view(names[static_cast<std::size_t>(index)]);
}

}  // namespace

Load::Load(CachingAllocator& allocator, StreamHandle other, std::size_t most_bytes) {
  allocator.set_user_metadata("step 0");
  threads_.emplace_back([this, &allocator, other, most_bytes] { run<0>(allocator, other, most_bytes); });
  threads_.emplace_back([this, &allocator, other, most_bytes] { run<1>(allocator, other, most_bytes); });
  threads_.emplace_back([this, &allocator, other, most_bytes] { run<2>(allocator, other, most_bytes); });
}

Load::~Load() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Load::go_on() {
  const std::uint64_t before = steps_;
  allowed_ = before + 400;
  while (steps_ < before + 50) std::this_thread::yield();
}

template <int number>
void Load::run(CachingAllocator& allocator, StreamHandle other, std::size_t most_bytes) {
  std::mt19937 random(number + 1);
  const TagScope tag(tag_of(number));
  std::vector<void*> live;
  while (!stop_) {
    if (steps_ >= allowed_) {
      std::this_thread::yield();
      continue;
    }
    const std::uint64_t step = ++steps_;
    try {
      const auto choice = random() % 64;
      if (choice == 0) {
        allocator.empty_cache();
      } else if (choice == 1) {
        allocator.set_user_metadata(fmt::format("step {}", step / 64));
      } else if (choice < 34 && live.size() < 40) {
        const std::size_t most = choice % 8 == 0 ? most_bytes : 4000;
        live.push_back(allocate_as<number>(allocator, size_of(number, random() % most)));
      } else if (live.size() > 1) {
        // One stays: a request for the whole device never fits.
        std::swap(live[random() % live.size()], live.back());
        if (choice % 4 == 0) allocator.record_stream(live.back(), other);
        free_as<number>(allocator, live.back());
        live.pop_back();
      }
    } catch (const OutOfMemoryError&) {
    }
  }
  for (void* block : live) free_as<number>(allocator, block);
}

std::string fault_of_moment(const Snapshot& snapshot) {
  const TraceReplay replay(snapshot.device_traces.at(0));
  if (std::string difference = replay.difference_from(snapshot); !difference.empty()) return difference;
  if (snapshot.settings.trace_alloc_overflowed) return "the history lacks its beginning";
  const MemoryStats& stats = snapshot.device_stats.at(0);
  std::int64_t reserved = 0;
  std::int64_t allocated = 0;
  std::int64_t active = 0;
  std::int64_t requested = 0;
  std::int64_t blocks = 0;
  for (const SegmentInfo& segment : snapshot.segments) {
    reserved += segment.total_size;
    std::uint64_t address = segment.address;
    for (const BlockInfo& block : segment.blocks) {
      if (block.address != address) return fmt::format("a gap or an overlap at {:#x}", block.address);
      address += static_cast<std::uint64_t>(block.size);
      if (block.state == BlockState::active_allocated) allocated += block.size, ++blocks;
      if (block.state == BlockState::inactive) continue;
      active += block.size;
      requested += block.requested_size;
    }
    if (address != segment.address + static_cast<std::uint64_t>(segment.total_size))
      return "blocks do not fill a segment";
  }
  const auto compare = [](std::string_view what, std::int64_t summed, std::int64_t counted) {
    return summed == counted ? std::string() : fmt::format("{}: {} in the snapshot, {} counted", what, summed, counted);
  };
  std::int64_t allocs = 0;
  if (const auto found = replay.counts.find(TraceAction::alloc); found != replay.counts.end()) allocs = found->second;
  for (std::string fault : {compare("reserved", reserved, stats.reserved_bytes.all.current),
                            compare("allocated", allocated, stats.allocated_bytes.all.current),
                            compare("active", active, stats.active_bytes.all.current),
                            compare("requested", requested, stats.requested_bytes.all.current),
                            compare("live blocks", blocks, stats.allocation.all.current),
                            compare("allocations", allocs, stats.allocation.all.allocated)})
    if (!fault.empty()) return fault;
  return "";
}

std::string fault_of_entries(const Snapshot& snapshot) {
  const auto fault_of = [&](std::int64_t size, TagIndex tag, StackIndex stack, bool frees) -> std::string {
    const std::size_t number = number_of(size);
    if (name_of(snapshot.tags, tag) != tag_of(number))
      return fmt::format("size {} has the tag '{}'", size, name_of(snapshot.tags, tag));
    if (!comes_from(snapshot, stack, number, frees)) return fmt::format("size {} has another's stack", size);
    return "";
  };
  std::int64_t latest = 0;
  for (const TraceEntry& entry : snapshot.device_traces.at(0)) {
    std::string fault;
    if (entry.time_us < latest) fault = "it is earlier than the one before";
    latest = entry.time_us;
    if (entry.action == TraceAction::alloc) fault = fault_of(entry.size, entry.tag, entry.stack, false);
    if (entry.action == TraceAction::free_requested) fault = fault_of(entry.size, entry.tag, entry.stack, true);
    const bool is_by_load = entry.action <= TraceAction::free_completed;
    if (is_by_load && name_of(snapshot.texts, entry.user_metadata).substr(0, 5) != "step ") fault = "it has no text";
    if (!fault.empty()) return fmt::format("{} at {:#x}: {}", to_string(entry.action), entry.address, fault);
  }
  for (const SegmentInfo& segment : snapshot.segments)
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::inactive) continue;
      if (std::string fault = fault_of(block.requested_size, block.tag, block.stack, false); !fault.empty())
        return fmt::format("block at {:#x}: {}", block.address, fault);
    }
  return "";
}

}  // namespace cistern
