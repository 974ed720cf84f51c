// What the command takes to read snapshots of a million entries: time and peak memory of each subcommand, each in a
// process of its own. Prints a Markdown table.

#include <cistern/snapshot.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/command.h"

namespace {

using namespace cistern;

constexpr std::size_t kEntries = 1'000'000;
constexpr std::size_t kBlocks = 100'000;
constexpr std::size_t kStacks = 2'000;
constexpr std::size_t kFrames = 20;
constexpr std::size_t kTags = 16;
constexpr std::size_t kBlocksPerSegment = 40;
constexpr std::uint64_t kFirstAddress = 0x7f0000000000;

FrameInfo make_frame(std::uint64_t number) {
  FrameInfo frame;
  frame.name = fmt::format("model::layers::Block{}::forward(model::Tensor const&)", number % 97);
  frame.filename = fmt::format("/srv/model/layers/block_{}.cpp", number % 97);
  frame.line = static_cast<std::int64_t>(number % 1009);
  return frame;
}

// As the allocator's would be: blocks that tile their segments, half of them live, and frees that follow allocations.
Snapshot make_snapshot(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Snapshot snapshot;
  for (std::size_t i = 0; i < kStacks; ++i) {
    StackInfo stack;
    for (std::size_t frame = 0; frame < kFrames; ++frame) stack.push_back(make_frame(i * 31 + frame * 7));
    snapshot.stacks.push_back(stack);
  }
  for (std::size_t i = 0; i < kTags; ++i) snapshot.tags.push_back(fmt::format("layer {}", i));
  const auto any_stack = [&] { return static_cast<StackIndex>(random() % kStacks); };
  std::uint64_t address = kFirstAddress;
  for (std::size_t made = 0; made < kBlocks; made += kBlocksPerSegment) {
    SegmentInfo segment;
    segment.address = address;
    segment.is_large = true;
    segment.stack = any_stack();
    for (std::size_t i = 0; i < kBlocksPerSegment; ++i) {
      BlockInfo block;
      block.address = address;
      block.size = static_cast<std::int64_t>(512 * (1 + random() % 4096));
      block.requested_size = block.size - static_cast<std::int64_t>(random() % 512);
      block.stack = any_stack();
      block.tag = static_cast<TagIndex>(random() % kTags);
      block.state = random() % 2 == 0 ? BlockState::active_allocated : BlockState::inactive;
      if (block.state == BlockState::active_allocated) {
        segment.allocated_size += block.size;
        segment.active_size += block.size;
        segment.requested_size += block.requested_size;
      }
      segment.total_size += block.size;
      address += static_cast<std::uint64_t>(block.size);
      segment.blocks.push_back(block);
    }
    address += std::uint64_t{2} << 20;
    snapshot.segments.push_back(segment);
  }
  snapshot.device_traces.emplace_back();
  std::vector<TraceEntry>& entries = snapshot.device_traces.back();
  for (std::size_t i = 0; i < kEntries; ++i) {
    TraceEntry entry = i % 2 == 0 ? TraceEntry() : entries.back();
    if (i % 2 == 0) {
      entry.address = kFirstAddress + 512 * (random() % 1'000'000'000);
      entry.size = static_cast<std::int64_t>(random() % (1 << 20));
      entry.stack = any_stack();
      entry.tag = static_cast<TagIndex>(random() % kTags);
    }
    entry.action = i % 2 == 0 ? TraceAction::alloc : TraceAction::free_requested;
    entry.time_us = 1'700'000'000'000'000 + static_cast<std::int64_t>(i);
    entries.push_back(entry);
  }
  snapshot.device_stats.emplace_back();
  return snapshot;
}

struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;
  double mebibytes = 0;  // the most that was resident
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Runs `work` in a process of its own.
template <class Work>
Cost measure(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    int status = 2;
    try {
      status = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::_Exit(status);
  }
  int status = 0;
  rusage usage{};
  if (::wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 2)
    throw std::runtime_error("a process failed");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return {took.count(), seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
          static_cast<double>(usage.ru_maxrss) / 1024};
}

Cost measure_command(const Arguments& arguments) {
  return measure([&arguments] {
    std::ostringstream out;
    return run_command(arguments, {out, std::cerr});
  });
}

double mebibytes_of(const std::string& path) {
  return static_cast<double>(std::filesystem::file_size(path)) / (1 << 20);
}

void print_rows(const std::string& folder) {
  std::printf("| command | file | MiB | inflated | seconds | CPU seconds | peak MiB | peak / inflated |\n");
  std::printf("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const char* form : {".json", ".json.gz", ".pickle"}) {
    const std::string a = folder + "/a" + form;
    const std::string b = folder + "/b" + form;
    const std::string inflated = std::string_view(form) == ".json.gz" ? folder + "/a.json" : a;
    const std::array<std::pair<const char*, Arguments>, 5> rows{{{"summary", {"summary", a}},
                                                                 {"diff", {"diff", a, b}},
                                                                 {"leaks", {"leaks", a}},
                                                                 {"blocks", {"blocks", a, "--limit", "10"}},
                                                                 {"explain", {"explain", a, "3MiB", "0"}}}};
    for (const auto& [name, arguments] : rows) {
      const Cost cost = measure_command(arguments);
      std::printf("| %s | %s | %.1f | %.1f | %.2f | %.2f | %.0f | %.2f |\n", name, form, mebibytes_of(a),
                  mebibytes_of(inflated), cost.seconds, cost.cpu_seconds, cost.mebibytes,
                  cost.mebibytes / mebibytes_of(inflated));
      std::fflush(stdout);
    }
  }
}

void write_files(const std::string& folder) {
  for (const std::uint64_t seed : {1, 2}) {
    const std::string name = folder + (seed == 1 ? "/a" : "/b");
    measure([&] {
      write_pickle(make_snapshot(seed), name + ".pickle");
      return 0;
    });
    for (const char* form : {".json", ".json.gz"}) measure_command({"convert", name + ".pickle", name + form});
  }
}

}  // namespace

int main() {
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("cistern-snapshots-{}", ::getpid())).string();
  try {
    std::filesystem::create_directories(folder);
    write_files(folder);
    print_rows(folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cistern_snapshot_bench: %s\n", error.what());
    std::filesystem::remove_all(folder);
    return 1;
  }
  std::filesystem::remove_all(folder);
  return 0;
}
