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
  run.begin(program);
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
  std::uint64_t differ = 0;
};

class RandomPrograms : public ::testing::Test {
 protected:
  void compare(const RandomProgram& program, std::uint64_t seed, bool must_be_right) {
    const Verdict verdict = judge(detector_, program);
    const bool can_differ = orders_.bytes_can_differ(program);
    if (must_be_right) {
      ASSERT_FALSE(can_differ) << "seed " << seed << "\n" << program.to_string();
    }
    ASSERT_EQ(verdict.flagged, can_differ) << "seed " << seed << "\n" << program.to_string() << verdict.reports;
    counts_.differ += can_differ ? 1 : 0;
  }

  ProgramRun detector_{RaceMode::collect};
  CompletionOrders orders_;
  Counts counts_;
};

TEST_F(RandomPrograms, AreFlaggedExactlyWhereBytesCanDiffer) {
  constexpr std::uint64_t first_seed = 20261121;
  const auto programs = static_cast<std::uint64_t>(scaled(40000));
  for (std::uint64_t i = 0; i < programs && !HasFatalFailure(); ++i) {
    const std::uint64_t seed = first_seed + i;
    const RandomProgram whole = make_random_program(seed, 3 + seed % 6);
    ++counts_.programs;
    compare(whole, seed, true);
    for (std::size_t place = 0; place < whole.steps.size() && !HasFatalFailure(); ++place) {
      if (whole.steps[place].touches_memory()) continue;
      ++counts_.orderings_left_out;
      compare(without(whole, place), seed, false);
    }
  }
  std::printf("%llu right programs, %llu with one ordering left out, of which %llu differ; %llu orders tried\n",
              static_cast<unsigned long long>(counts_.programs),
              static_cast<unsigned long long>(counts_.orderings_left_out),
              static_cast<unsigned long long>(counts_.differ), static_cast<unsigned long long>(orders_.orders()));
  // The comparison means something only if both answers are frequent.
  EXPECT_GT(counts_.differ, counts_.orderings_left_out / 10);
  EXPECT_LT(counts_.differ, counts_.orderings_left_out * 9 / 10);
}

}  // namespace
}  // namespace cistern::testing
