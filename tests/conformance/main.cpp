// The suite's program. `--statements` prints docs/conformance.md, `--ipc-peer` makes it the second
// process of the IPC statements. CISTERN_CONFORMANCE_REPORT names a file that gets a line for every
// statement that did not hold, or could not be asked. With CISTERN_CONFORMANCE_ASK_ALL=1 a statement that
// cannot be asked is a failure: the driver under test is one that can answer all of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include "tests/conformance/ipc_peer.h"
#include "tests/conformance/statement.h"

namespace cistern::conformance {
namespace {

// A line of a Markdown table: number, what happened, in one line.
class Reporter : public ::testing::EmptyTestEventListener {
 public:
  explicit Reporter(const char* path) : file_(path, std::ios::app) {}

 private:
  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  // Called with googletest's lock held: it may not be asked which test this is.
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.passed()) return;
    const Statement* statement = find_statement(test_);
    std::string message = result.message();
    std::replace(message.begin(), message.end(), '\n', ' ');
    std::replace(message.begin(), message.end(), '|', '/');
    file_ << "| " << (statement == nullptr ? test_ : statement->number) << " | "
          << (statement == nullptr ? "" : statement->text) << " | " << (result.skipped() ? "not asked: " : "")
          << message << " |" << std::endl;
  }

  std::string test_;
  std::ofstream file_;
};

// Listeners hear the end of a test in reverse order: added last, it speaks before the printer does.
class AsksAll : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (test.result()->Skipped()) ADD_FAILURE() << "CISTERN_CONFORMANCE_ASK_ALL is set, and this was not asked";
  }
};

}  // namespace
}  // namespace cistern::conformance

int main(int argc, char** argv) {
  using namespace cistern::conformance;
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--statements") {
    std::cout << conformance_page();
    return 0;
  }
  if (first == "--ipc-peer") return run_ipc_peer();
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* path = std::getenv("CISTERN_CONFORMANCE_REPORT")) {
    ::testing::UnitTest::GetInstance()->listeners().Append(new Reporter(path));
  }
  if (std::getenv("CISTERN_CONFORMANCE_ASK_ALL") != nullptr) {
    ::testing::UnitTest::GetInstance()->listeners().Append(new AsksAll);
  }
  return RUN_ALL_TESTS();
}
