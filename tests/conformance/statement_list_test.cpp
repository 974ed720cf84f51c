// The list of statements, the page and the tests agree.

#include <fstream>
#include <set>
#include <sstream>

#include "tests/conformance/statement.h"

namespace cistern::conformance {
namespace {

TEST(StatementList, NumbersAreEachUsedOnceWithoutGaps) {
  ASSERT_GE(statements().size(), 120u);
  for (std::size_t i = 0; i < statements().size(); ++i) {
    const std::string digits = std::to_string(1000 + i + 1).substr(1);
    EXPECT_EQ(statements()[i].number, "C" + digits);
  }
}

TEST(StatementList, EveryStatementHasATestAndEveryNumberedTestAStatement) {
  std::set<std::string> tests;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string test = std::string(suite.name()) + "." + suite.GetTestInfo(t)->name();
      if (std::string(suite.name()) != "StatementList") tests.insert(test);
    }
  }
  std::set<std::string> stated;
  for (const Statement& statement : statements()) {
    stated.insert(statement.test);
    EXPECT_FALSE(statement.section.empty()) << statement.number;
    EXPECT_TRUE(statement.section.rfind("Driver API, ", 0) == 0 ||
                statement.section.rfind("Programming Guide, ", 0) == 0)
        << statement.number << ": " << statement.section;
    EXPECT_FALSE(statement.text.empty()) << statement.number;
  }
  EXPECT_EQ(stated, tests);
}

TEST(StatementList, ThePageListsThem) {
  std::ifstream file(std::string(CISTERN_SOURCE_DIR) + "/docs/conformance.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), conformance_page())
      << "write it again: build/dev/tests/conformance/cistern_conformance --statements > docs/conformance.md";
}

}  // namespace
}  // namespace cistern::conformance
