#pragma once

// Settings of the property tests: a fixed seed, and a number of programs that --long raises.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "tests/sanitizers.h"

namespace cistern {

// The full count times CISTERN_TEST_SCALE, the share that is to be run (0.1 if unset).
inline long scaled(long full_count) {
  const char* text = std::getenv("CISTERN_TEST_SCALE");
  const double share = text == nullptr ? 0.1 : std::strtod(text, nullptr);
  return std::max(1L, std::lround(static_cast<double>(full_count) * share));
}

inline constexpr bool kSanitized = CISTERN_ADDRESS_SANITIZER != 0 || CISTERN_THREAD_SANITIZER != 0;

// The same for random programs on one thread. Under a sanitizer they take ten times as long, and a
// small share of them reaches the same code: the others are for the optimised build.
inline long scaled_programs(long full_count, long share_when_sanitized = 10) {
  return scaled(kSanitized ? std::max(1L, full_count / share_when_sanitized) : full_count);
}

// How many completion orders of one scenario are walked: all of them, but under a sanitizer the first so
// many, for the others differ in when things happen, not in what code runs.
inline constexpr long kMostOrders = kSanitized ? 100 : std::numeric_limits<long>::max();

// What RC_PARAMS names already stays: RapidCheck prints the value that repeats a failure.
inline void set_property_parameters(long full_programs, long max_size) {
  const char* given = std::getenv("RC_PARAMS");
  std::string parameters = given == nullptr ? "" : given;
  const auto add = [&parameters](const std::string& name, const std::string& value) {
    if (parameters.find(name + "=") == std::string::npos) parameters += " " + name + "=" + value;
  };
  add("seed", "20261121");
  add("max_success", std::to_string(scaled_programs(full_programs)));
  add("max_size", std::to_string(max_size));
  add("max_discard_ratio", "10");
  setenv("RC_PARAMS", parameters.c_str(), 1);
}

class PropertySettings : public ::testing::EmptyTestEventListener {
 public:
  PropertySettings(std::string suite, long full_programs, long max_size)
      : suite_(std::move(suite)), full_programs_(full_programs), max_size_(max_size) {}
  // A suite that is called otherwise would run with RapidCheck's own settings.
  void OnTestProgramStart(const ::testing::UnitTest& all) override {
    for (int i = 0; i < all.total_test_suite_count(); ++i)
      if (all.GetTestSuite(i)->name() == suite_) return;
    std::fprintf(stderr, "configure_properties: there is no suite %s\n", suite_.c_str());
    std::abort();
  }
  void OnTestStart(const ::testing::TestInfo& test) override {
    if (test.test_suite_name() == suite_) set_property_parameters(full_programs_, max_size_);
  }

 private:
  std::string suite_;
  long full_programs_;
  long max_size_;
};

// How many programs each property of the suite runs, and how long they are. RapidCheck looks once a process: ctest's
// cases each have theirs; of several in one, the first one's settings count.
inline bool configure_properties(const std::string& suite, long full_programs, long max_size) {
  ::testing::UnitTest::GetInstance()->listeners().Append(new PropertySettings(suite, full_programs, max_size));
  return true;
}

}  // namespace cistern
