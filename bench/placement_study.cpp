// How much memory, and how many driver calls, would the placement of paged memory take for a trace? Passes each
// trace three times through the parts in allocator/, with a driver that counts; see placement_replay.h for what is
// modelled. Prints a Markdown table.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "bench/placement_replay.h"
#include "tools/trace.h"

namespace cistern {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kPageMiB = 2;

struct StudySettings {
  double perturbed_share = 0.001;
  std::uint64_t seed = 0;
  std::uint64_t event_lag = 0;
  bool finds_least_capacity = false;
  bool checks_bytes = true;
};

PlacementReplay::Settings replay_settings(const StudySettings& settings, std::int64_t limit = PagePlacement::kNoLimit) {
  return {limit, settings.event_lag, settings.checks_bytes};
}

void pass_or_throw(PlacementReplay& replay, const std::vector<TraceOperation>& operations) {
  if (!replay.pass(operations)) throw std::logic_error("a request was refused without a limit");
}

// As `cistern replay --perturb` changes them.
std::vector<TraceOperation> perturbed(const Trace& trace, double share, std::mt19937_64& random) {
  std::vector<TraceOperation> operations = trace.operations;
  constexpr double kScale = 1.0 / 9007199254740992.0;  // 2^-53
  for (TraceOperation& operation : operations)
    if (operation.kind == TraceOperation::allocate && static_cast<double>(random() >> 11) * kScale < share)
      operation.bytes -= operation.bytes / 16;
  return operations;
}

struct PerturbedFigures {
  double calls = 0;  // of the third pass, per 1,000 operations
  std::int64_t pages = 0;
};

PerturbedFigures study_perturbed(const Trace& trace, const StudySettings& settings) {
  PlacementReplay replay(trace, replay_settings(settings));
  pass_or_throw(replay, trace.operations);
  std::mt19937_64 random(settings.seed);
  pass_or_throw(replay, perturbed(trace, settings.perturbed_share, random));
  const std::int64_t before = replay.driver().calls();
  pass_or_throw(replay, perturbed(trace, settings.perturbed_share, random));
  const auto calls = static_cast<double>(replay.driver().calls() - before);
  return {1000 * calls / static_cast<double>(trace.requests()), replay.placement().table().pages()};
}

// The fewest pages with which the first pass is served, by halving: it may be served with fewer that were not tried.
std::int64_t least_pages(const Trace& trace, const StudySettings& settings, std::int64_t enough) {
  auto refused = static_cast<std::int64_t>((trace.peak_live_bytes + (2 << 20) - 1) / (2 << 20)) - 1;
  while (enough - refused > 1) {
    const std::int64_t limit = (refused + enough) / 2;
    PlacementReplay replay(trace, replay_settings(settings, limit));
    (replay.pass(trace.operations) ? enough : refused) = limit;
  }
  return enough;
}

// What reserved over live should be at most: memory comes in pages, which weigh more where little is live.
double ratio_goal(const Trace& trace, double live_mib) {
  if (trace.streams.size() > 1) return 1.05;
  return live_mib > 1024 ? 1.02 : 1.02 + 8 / live_mib;
}

void print_header() {
  fmt::print(
      "| trace | live MiB | ratio | goal | create | map | set-access | cost | calls 2 | calls 3 | perturbed | ratio "
      "then | waits | ns | least |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
}

void study(const std::string& path, const StudySettings& settings) {
  using Clock = std::chrono::steady_clock;
  const Trace trace = read_trace(path);
  const double live_mib = static_cast<double>(trace.peak_live_bytes) / kMiB;
  const auto ratio_of = [&](std::int64_t pages) { return static_cast<double>(pages) * kPageMiB / live_mib; };

  PlacementReplay replay(trace, replay_settings(settings));
  pass_or_throw(replay, trace.operations);
  const DriverCounts first = replay.driver();
  const std::int64_t pages = replay.placement().table().pages();
  const std::int64_t waits = replay.stream_waits();
  // Twice mapping what is live at most once, in handles of a page.
  const double cost_goal = 2 * 43.0 * live_mib / kPageMiB;
  const double cost = static_cast<double>(replay.placement().spending().microseconds()) / cost_goal;

  pass_or_throw(replay, trace.operations);
  const std::int64_t second = replay.driver().calls() - first.calls();
  const auto start = Clock::now();
  pass_or_throw(replay, trace.operations);
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  const std::int64_t third = replay.driver().calls() - first.calls() - second;
  replay.placement().audit();

  const PerturbedFigures then = study_perturbed(trace, settings);
  std::string name = std::filesystem::path(path).filename().string();
  name.erase(std::min(name.size(), name.find(".trace")));
  fmt::print(
      "| {} | {:.0f} | {:.4f} | {:.4f} | {} | {} | {} | {:.3f} | {} | {} | {:.2f} | {:.4f} | {} | {:.0f} | {} |\n",
      name, live_mib, ratio_of(pages), ratio_goal(trace, live_mib), first.created, first.mapped, first.allowed, cost,
      second, third, then.calls, ratio_of(then.pages), waits, ns / static_cast<double>(trace.requests()),
      settings.finds_least_capacity ? fmt::format("{:.4f}", ratio_of(least_pages(trace, settings, pages))) : "");
  std::fflush(stdout);
}

constexpr const char* kUsage =
    "usage: cistern_placement_study [--perturb SHARE] [--seed N] [--event-lag N] [--least-capacity] [--unchecked] "
    "TRACE...\n"
    "  --perturb SHARE    of the sizes that passes 2 and 3 make smaller by a sixteenth; by default 0.001\n"
    "  --seed N           chooses which; by default 0\n"
    "  --event-lag N      operations until other streams are done with a freed block; by default 0\n"
    "  --least-capacity   also the least memory that serves the trace\n"
    "  --unchecked        without the check of every byte: for times\n";

template <class Number>
Number number(const std::string& option, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument(option + " '" + text + "': expected a number");
  return value;
}

void study_all(const std::vector<std::string>& arguments) {
  StudySettings settings;
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) throw std::invalid_argument(argument + ": expected a number after it");
      return arguments[++i];
    };
    if (argument == "--perturb")
      settings.perturbed_share = number<double>(argument, value());
    else if (argument == "--seed")
      settings.seed = number<std::uint64_t>(argument, value());
    else if (argument == "--event-lag")
      settings.event_lag = number<std::uint64_t>(argument, value());
    else if (argument == "--least-capacity")
      settings.finds_least_capacity = true;
    else if (argument == "--unchecked")
      settings.checks_bytes = false;
    else if (argument.starts_with("-"))
      throw std::invalid_argument(argument + ": no such option\n" + kUsage);
    else
      paths.push_back(argument);
  }
  if (paths.empty()) throw std::invalid_argument(std::string("expected a trace\n") + kUsage);
  print_header();
  for (const std::string& path : paths) study(path, settings);
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) try {
  cistern::study_all({argv + 1, argv + argc});
  return 0;
} catch (const std::exception& error) {
  std::cerr << "cistern_placement_study: " << error.what() << '\n';
  return 2;
}
