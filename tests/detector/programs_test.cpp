// Every program is caught with its mistake and passes without it.

#include <gmock/gmock.h>

#include <cstdio>
#include <iterator>
#include <set>

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

const std::vector<Program>& programs() {
  static const std::vector<Program> all = [] {
    std::vector<Program> list;
    for (auto* part : {&ordering_programs, &default_stream_programs, &reuse_programs, &lifetime_programs,
                       &stream_ordered_programs, &page_locked_programs, &peer_programs, &host_programs,
                       &callback_programs, &graph_programs, &graph_memory_programs, &ended_stream_programs}) {
      std::vector<Program> more = (*part)();
      std::move(more.begin(), more.end(), std::back_inserter(list));
    }
    return list;
  }();
  return all;
}

std::string text_of(const std::vector<RaceReport>& reports) {
  std::string text;
  for (const RaceReport& report : reports) text += report.to_string();
  return text;
}

std::vector<RaceReport> run(const Program& program, bool mended) {
  World world(mended, program.options);
  program.body(world);
  return world.driver.race_reports();
}

class Programs : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Programs, WrongIsCaughtByItsKind) {
  const Program& program = programs()[GetParam()];
  const std::vector<RaceReport> reports = run(program, false);
  ASSERT_FALSE(reports.empty());
  for (const RaceReport& report : reports) EXPECT_EQ(report.kind, program.kind) << report.to_string();
}

TEST_P(Programs, MendedIsSilent) {
  const std::vector<RaceReport> reports = run(programs()[GetParam()], true);
  EXPECT_TRUE(reports.empty()) << text_of(reports);
}

INSTANTIATE_TEST_SUITE_P(Mistake, Programs, ::testing::Range(std::size_t{0}, programs().size()),
                         [](const auto& instance) { return std::string(programs()[instance.param].mistake); });

TEST(ProgramList, HasSixtyMistakesOfDifferentNames) {
  std::set<std::string> names;
  for (const Program& program : programs()) names.insert(program.mistake);
  EXPECT_EQ(names.size(), programs().size());
  EXPECT_GE(names.size(), 60U);
  std::printf("%zu wrong programs and as many mended ones\n", programs().size());
}

}  // namespace
}  // namespace cistern::testing
