// The detector says of random programs, whole and with one ordering left out, what trying every
// order of completion shows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/detector/completion_orders.h"
#include "tests/detector/program_run.h"
#include "tests/property.h"

namespace cistern::testing {
namespace {

struct Verdict {
  bool flagged;
  std::string reports;
};

// Waits that order nothing are told, too, but change no bytes.
Verdict judge(ProgramRun& run, const RandomProgram& program) {
  run.load(program);
  run.begin();
  while (!run.host_is_done()) run.advance_host();
  Verdict verdict{false, ""};
  for (const RaceReport& report : run.reports()) {
    if (report.kind == RaceKind::idle_wait) continue;
    verdict.flagged = true;
    verdict.reports += report.to_string();
  }
  run.end();
  return verdict;
}

struct Counts {
  std::uint64_t programs = 0;
  std::uint64_t orderings_left_out = 0;
  std::uint64_t of_these_in_graphs = 0;
  std::uint64_t differ = 0;
};

// How many of these programs and their variants launch graphs, launch one more than once, and
// copy between devices.
struct Kinds {
  std::uint64_t launch = 0;
  std::uint64_t launch_again = 0;
  std::uint64_t copy_between_peers = 0;

  void count(const RandomProgram& program) {
    std::vector<int> launches(program.graphs.size());
    bool has_copy = false;
    for (const Step& step : program.steps) {
      if (step.kind == Step::Kind::launch) ++launches[step.graph];
      has_copy = has_copy || step.kind == Step::Kind::peer_copy;
    }
    const int most = launches.empty() ? 0 : *std::max_element(launches.begin(), launches.end());
    launch += most > 0 ? 1 : 0;
    launch_again += most > 1 ? 1 : 0;
    copy_between_peers += has_copy ? 1 : 0;
  }
};

class RandomPrograms : public ::testing::Test {
 protected:
  void compare(const RandomProgram& program, std::uint64_t seed, bool must_be_right) {
    kinds_.count(program);
    const Verdict verdict = judge(detector_, program);
    const bool can_differ = orders_.bytes_can_differ(program);
    if (must_be_right) {
      ASSERT_FALSE(can_differ) << "seed " << seed << "\n" << program.to_string();
    }
    ASSERT_EQ(verdict.flagged, can_differ) << "seed " << seed << "\n" << program.to_string() << verdict.reports;
    counts_.differ += can_differ ? 1 : 0;
  }

  // Of the whole program and its variants.
  void compare_all(const RandomProgram& whole, std::uint64_t seed) {
    ++counts_.programs;
    compare(whole, seed, true);
    for (std::size_t place = 0; place < whole.steps.size() && !HasFatalFailure(); ++place) {
      if (whole.steps[place].touches_memory()) continue;
      ++counts_.orderings_left_out;
      compare(without(whole, place), seed, false);
    }
    for (std::size_t graph = 0; graph < whole.graphs.size(); ++graph) {
      const std::vector<Step>& steps = whole.graphs[graph].steps;
      for (std::size_t place = 0; place < steps.size() && !HasFatalFailure(); ++place) {
        if (steps[place].kind != Step::Kind::wait) continue;
        ++counts_.orderings_left_out;
        ++counts_.of_these_in_graphs;
        compare(without(whole, graph, place), seed, false);
      }
    }
  }

  ProgramRun detector_{RaceMode::collect};
  CompletionOrders orders_;
  Counts counts_;
  Kinds kinds_;
};

TEST_F(RandomPrograms, AreFlaggedExactlyWhereBytesCanDiffer) {
  constexpr std::uint64_t first_seed = 20261121;
  const auto programs = static_cast<std::uint64_t>(scaled_programs(20000, 40));
  for (std::uint64_t i = 0; i < programs && !HasFatalFailure(); ++i) {
    const std::uint64_t seed = first_seed + i;
    compare_all(make_random_program(seed, 3 + seed % 6), seed);
  }
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu right programs, %llu with one ordering left out (%llu of them of a graph's), of which %llu differ; ",
      number(counts_.programs), number(counts_.orderings_left_out), number(counts_.of_these_in_graphs),
      number(counts_.differ));
  std::printf("%llu orders tried. Of all, %llu launch graphs, %llu one of them again, %llu copy between devices\n",
              number(orders_.orders()), number(kinds_.launch), number(kinds_.launch_again),
              number(kinds_.copy_between_peers));
  // The comparison means something only if both answers are frequent.
  EXPECT_GT(counts_.differ, counts_.orderings_left_out / 10);
  EXPECT_LT(counts_.differ, counts_.orderings_left_out * 9 / 10);
  EXPECT_GT(kinds_.launch_again, counts_.programs / 10);
  EXPECT_GT(kinds_.copy_between_peers, counts_.programs / 10);
}

}  // namespace
}  // namespace cistern::testing
