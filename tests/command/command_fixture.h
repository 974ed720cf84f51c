#pragma once

// Runs the command in process, with files in a folder of the test's own.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tools/command.h"

namespace cistern {

class CommandTest : public ::testing::Test {
 protected:
  struct Result {
    int status;
    std::string out;
    std::string err;

    [[nodiscard]] std::vector<nlohmann::json> objects() const {
      std::istringstream lines(out);
      std::vector<nlohmann::json> parsed;
      for (std::string line; std::getline(lines, line);) parsed.push_back(nlohmann::json::parse(line));
      return parsed;
    }
    [[nodiscard]] nlohmann::json object() const { return objects().at(0); }
    [[nodiscard]] std::ptrdiff_t error_lines() const { return std::ranges::count(err, '\n'); }
  };

  CommandTest() { std::filesystem::create_directories(folder_); }
  ~CommandTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static Result run(const Arguments& arguments) {
    std::ostringstream out;
    std::ostringstream err;
    const int status = run_command(arguments, {out, err});
    return {status, out.str(), err.str()};
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  // Bad usage or a bad file: status 2, nothing on standard output, and one line with every part.
  static void expect_refused(const Result& result, const std::vector<std::string>& parts) {
    EXPECT_EQ(result.status, kExitBadUsage);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.error_lines(), 1) << result.err;
    for (const std::string& part : parts)
      EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
  }

 private:
  // One folder, whatever parameters the test has.
  static std::string name_of_test() {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '-');
    return name;
  }

  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("cistern-" + std::to_string(::getpid()) + "-" + name_of_test());
};

}  // namespace cistern
