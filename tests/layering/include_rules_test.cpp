#include "tests/layering/include_rules.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace cistern {
namespace {

namespace fs = std::filesystem;

std::string describe(const IncludeReport& report) {
  std::string text;
  for (const IncludeViolation& violation : report.violations) {
    text += violation.file + ":" + std::to_string(violation.line) + ": " + violation.included + ": " +
            violation.reason + "\n";
  }
  return text;
}

TEST(Layering, EveryIncludeFollowsTheArrows) {
  const IncludeReport report = check_includes(CISTERN_SOURCE_DIR);
  EXPECT_TRUE(report.violations.empty()) << describe(report);
  // The tree was found and read.
  EXPECT_GT(report.files, 50);
  EXPECT_GT(report.lines, 200);
}

// A tree with one planted line.
class PlantedTree : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ("cistern-layering-" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // What the rules say of `include_line` in `file`; "" if they allow it.
  std::string verdict(const std::string& file, const std::string& include_line) {
    fs::remove_all(root_);
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << "// A planted file.\n" << include_line << "\n";
    return describe(check_includes(root_));
  }

  fs::path root_;
};

TEST_F(PlantedTree, WhatTheArrowsForbidIsReportedWithFileAndLine) {
  EXPECT_EQ(verdict("runtime/planted.cpp", "#include \"stats/recorder.h\""),
            "runtime/planted.cpp:2: stats/recorder.h: runtime must not use stats\n");
  EXPECT_NE(verdict("stats/planted.cpp", "#include \"runtime/driver_api.h\""), "");
  EXPECT_NE(verdict("runtime/simulated/planted.cpp", "  #  include \"allocator/block.h\""), "");
  EXPECT_NE(verdict("stats/planted.h", "#include \"allocator/block.h\"  // why not"), "");
  EXPECT_NE(verdict("allocator/planted.cpp", "#include \"tools/trace.h\""), "");
  EXPECT_NE(verdict("allocator/planted.cpp", "#include \"tests/property.h\""), "");
  EXPECT_NE(verdict("tools/planted.cpp", "#include \"bench/driver_costs.h\""), "");
  EXPECT_NE(verdict("bench/workloads/planted.cpp", "#include \"tools/trace.h\""), "");
  EXPECT_NE(verdict("bench/workloads/planted.cpp", "#include <cistern/allocator.h>"), "");
  EXPECT_NE(verdict("examples/planted.cpp", "#include \"allocator/block.h\""), "");
  EXPECT_NE(verdict("tools/planted.cpp", "#include \"no_such_neighbour.h\""), "");
}

TEST_F(PlantedTree, APublicHeaderMayUseTheStandardLibraryOnly) {
  EXPECT_NE(verdict("include/cistern/planted.h", "#include <cuda.h>"), "");
  EXPECT_NE(verdict("include/cistern/planted.h", "#include <fmt/format.h>"), "");
  EXPECT_NE(verdict("include/cistern/planted.h", "#include \"runtime/driver_api.h\""), "");
  EXPECT_EQ(verdict("include/cistern/planted.h", "#include <vector>"), "");
  EXPECT_EQ(verdict("include/cistern/planted.h", "#include <cistern/stream.h>"), "");
  EXPECT_EQ(verdict("include/cistern/integrations/planted.h", "#include <thrust/mr/memory_resource.h>"), "");
}

TEST_F(PlantedTree, WhatTheArrowsAllowIsNotReported) {
  EXPECT_EQ(verdict("runtime/planted.cpp", "#include <cistern/stream.h>"), "");
  EXPECT_EQ(verdict("runtime/planted.cpp", "#include <cuda.h>"), "");
  EXPECT_EQ(verdict("runtime/simulated/planted.cpp", "#include \"runtime/driver_api.h\""), "");
  EXPECT_EQ(verdict("allocator/planted.cpp", "#include \"stats/recorder.h\""), "");
  EXPECT_EQ(verdict("tools/planted.cpp", "#include \"bench/workloads/workload.h\""), "");
  EXPECT_EQ(verdict("examples/planted.cpp", "#include <cistern/cistern.h>"), "");
  EXPECT_EQ(verdict("stats/planted.cpp", "// #include \"runtime/driver_api.h\""), "");
}

}  // namespace
}  // namespace cistern
