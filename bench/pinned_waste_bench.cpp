// What do sizes an eighth apart save against powers of two, in page-locked memory and in driver calls?
//
// Each trace of the folder given is passed twice through the host heap and through a model of PyTorch's host allocator
// (a list of free blocks for each power of two, no splitting), over a driver that keeps accounts alone; what streams
// used is done at once. Exact and repeatable: no time is measured. Prints a Markdown table; without a folder, or
// without traces in it, says how many it skipped.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace.h"

namespace cistern {
namespace {

struct Figures {
  std::size_t peak_held = 0;
  std::size_t peak_blocks = 0;  // of the sizes handed out
  std::uint64_t calls = 0;      // for memory, in the first pass
  std::uint64_t later_calls = 0;
};

// The rules of contract section 7: the next power of two, the block of that very size that was freed last.
class PowersOfTwo {
 public:
  std::uint64_t allocate(std::size_t bytes) {
    const std::size_t rounded = std::bit_ceil(bytes);
    auto& free = free_[static_cast<std::size_t>(std::countr_zero(rounded))];
    if (free == 0) {
      ++figures_.calls;
      figures_.peak_held += rounded;
    } else {
      --free;
    }
    blocks_ += rounded;
    figures_.peak_blocks = std::max(figures_.peak_blocks, blocks_);
    return rounded;
  }
  void release(std::uint64_t rounded) {
    ++free_[static_cast<std::size_t>(std::countr_zero(rounded))];
    blocks_ -= rounded;
  }
  [[nodiscard]] const Figures& figures() const { return figures_; }

 private:
  std::array<std::size_t, 64> free_{};  // how many blocks
  std::size_t blocks_ = 0;
  Figures figures_;
};

class OwnHeap {
 public:
  std::uint64_t allocate(std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(allocator_.allocate_host(bytes));
  }
  void release(std::uint64_t block) { allocator_.deallocate_host(reinterpret_cast<void*>(block)); }
  [[nodiscard]] Figures figures() const {
    const HostMemoryStats stats = allocator_.host_memory_stats();
    return {static_cast<std::size_t>(stats.allocated_bytes.peak), static_cast<std::size_t>(stats.active_bytes.peak),
            static_cast<std::uint64_t>(stats.num_host_alloc), 0};
  }

 private:
  SimulatedDriver driver_{{.capacity_bytes = std::size_t{80} << 30, .backing = Backing::none}};
  CachingAllocator allocator_{{.driver = &driver_.api()}};
};

template <class Heap>
void pass(const Trace& trace, Heap& heap) {
  std::vector<std::uint64_t> blocks(trace.id_count, 0);
  for (const TraceOperation& operation : trace.operations) {
    if (operation.kind == TraceOperation::allocate && operation.bytes != 0)
      blocks[operation.id] = heap.allocate(operation.bytes);
    else if (operation.kind == TraceOperation::free && blocks[operation.id] != 0)
      heap.release(std::exchange(blocks[operation.id], 0));
  }
  for (const std::uint64_t block : blocks)
    if (block != 0) heap.release(block);
}

template <class Heap>
Figures figures_of(const Trace& trace) {
  Heap heap;
  pass(trace, heap);
  Figures figures = heap.figures();
  pass(trace, heap);
  figures.later_calls = heap.figures().calls - figures.calls;
  return figures;
}

double over(std::size_t bytes, std::uint64_t live) { return static_cast<double>(bytes) / static_cast<double>(live); }

int run(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing))
    if (entry.path().string().find(".trace") != std::string::npos) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    fmt::print("no traces in '{}': 0 run, all skipped\n", folder);
    return 0;
  }
  fmt::print("| trace | live MiB | blocks | powers of two | held | powers of two | calls | powers of two |\n");
  fmt::print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const std::string& path : paths) {
    const Trace trace = read_trace(path);
    const Figures own = figures_of<OwnHeap>(trace);
    const Figures theirs = figures_of<PowersOfTwo>(trace);
    const std::uint64_t live = trace.peak_live_bytes;
    fmt::print("| {} | {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {} + {} | {} + {} |\n",
               std::filesystem::path(path).filename().string(), live >> 20, over(own.peak_blocks, live),
               over(theirs.peak_blocks, live), over(own.peak_held, live), over(theirs.peak_held, live), own.calls,
               own.later_calls, theirs.calls, theirs.later_calls);
  }
  return 0;
}

}  // namespace
}  // namespace cistern

int main(int count, char** arguments) {
  try {
    return cistern::run(count > 1 ? arguments[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
