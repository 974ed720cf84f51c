#pragma once

// Real traces as work for a benchmark: read from the folder that CISTERN_BENCH_TRACES names, and
// passed through anything with allocate, record and release.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/trace.h"

namespace cistern {

// Passes a trace once and frees what it left live. Requests of 0 bytes are none. `blocks`: id_count
// nulls, as it leaves them.
template <class Allocator>
void pass(const Trace& trace, Allocator& allocator, std::vector<void*>& blocks) {
  for (const TraceOperation& operation : trace.operations) {
    void*& block = blocks[operation.id];
    switch (operation.kind) {
      case TraceOperation::allocate:
        block = operation.bytes == 0 ? nullptr : allocator.allocate(operation);
        break;
      case TraceOperation::record:
        if (block != nullptr) allocator.record(block, operation);
        break;
      case TraceOperation::free:
        if (block != nullptr) allocator.release(std::exchange(block, nullptr));
        break;
      case TraceOperation::step:
        break;
    }
  }
  for (void*& block : blocks)
    if (block != nullptr) allocator.release(std::exchange(block, nullptr));
}

inline std::size_t operations_of(const Trace& trace) {
  return static_cast<std::size_t>(trace.requests() + (trace.allocations - trace.frees));
}

// The traces in the folder, by name; none without it.
inline std::vector<std::string> trace_paths() {
  std::vector<std::string> paths;
  const char* folder = std::getenv("CISTERN_BENCH_TRACES");
  std::error_code error;
  if (folder == nullptr || !std::filesystem::is_directory(folder, error)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const std::string path = entry.path().string(); path.ends_with(".trace") || path.ends_with(".trace.gz"))
      paths.push_back(path);
  std::ranges::sort(paths);
  return paths;
}

// A benchmark PREFIX/NAME for each of them. Returns whether there are any.
inline bool register_traces(const std::string& prefix, void (*run)(benchmark::State& state, const std::string& path)) {
  const std::vector<std::string> paths = trace_paths();
  for (const std::string& path : paths) {
    std::string name = std::filesystem::path(path).filename().string();
    name.erase(name.find(".trace"));
    const auto bench = [run, path](benchmark::State& state) { run(state, path); };
    benchmark::RegisterBenchmark((prefix + "/" + name).c_str(), bench)->Iterations(1)->UseManualTime();
  }
  return !paths.empty();
}

}  // namespace cistern
