#include "examples/demo/command_line.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace cistern::demo {
namespace {

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    static_cast<void>(parse_command_line(arguments));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DemoCommandLine, ReadsItsOptions) {
  const CommandLine line =
      parse_command_line({"--steps", "12", "--text", "a file", "--seed", "3", "--output", "folder"});
  EXPECT_EQ(line.steps, 12U);
  EXPECT_EQ(line.text, "a file");
  EXPECT_EQ(line.seed, 3U);
  EXPECT_EQ(line.output, "folder");
}

TEST(DemoCommandLine, NamesWhatItRefuses) {
  EXPECT_EQ(refusal({"--step", "1"}), "there is no option '--step'");
  EXPECT_EQ(refusal({"--steps"}), "--steps: a value was expected after it");
  EXPECT_EQ(refusal({"--steps", "0"}), "--steps: '0' is not a whole number of at least 1");
  EXPECT_EQ(refusal({"--steps", "12x"}), "--steps: '12x' is not a whole number of at least 1");
  EXPECT_EQ(refusal({"--seed", "-1"}), "--seed: '-1' is not a whole number of at least 0");
}

}  // namespace
}  // namespace cistern::demo
