// The page docs/frameworks.md is complete and names only what exists. That the names of its
// cistern column are declared is a matter of compiling: see symbols.sh.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/frameworks/page.h"

namespace cistern::frameworks {
namespace {

const std::string kSource = CISTERN_SOURCE_DIR;

std::vector<Row> page() { return read_page(kSource + "/docs/frameworks.md"); }

TEST(FrameworksPage, HasARowForEachFacetOfTheInventoryInItsOrderAndNoOther) {
  std::vector<std::string> keys;
  for (const Row& row : page()) keys.push_back(row.key());
  const std::vector<std::string> expected = read_inventory(kSource + "/tests/frameworks/inventory.txt");
  for (std::size_t i = 0; i < std::min(keys.size(), expected.size()); ++i) ASSERT_EQ(keys[i], expected[i]);
  EXPECT_EQ(keys.size(), expected.size());
}

TEST(FrameworksPage, TheInventoryHasTheNinetySevenEntriesOfTheFivePages) {
  std::map<std::string, std::set<std::string>> entries;
  for (const std::string& key : read_inventory(kSource + "/tests/frameworks/inventory.txt")) {
    const std::string entry = key.substr(0, key.find(": "));
    const std::string page = entry.substr(0, entry.find('.'));
    entries[entry.starts_with("torch.Stream") ? "torch.Stream" : page].insert(entry);
  }
  // Each with the names that occur only in its text or examples: five of torch.cuda, three, two and three.
  EXPECT_EQ(entries["torch.Stream"].size(), 6U);
  EXPECT_EQ(entries["cupy"].size(), 26U + 3U);
  EXPECT_EQ(entries["paddle"].size(), 6U + 2U);
  EXPECT_EQ(entries["mindspore"].size(), 6U + 3U);
  EXPECT_EQ(entries["torch"].size(), 53U + 5U);
}

TEST(FrameworksPage, EveryTestThatARowNamesExists) {
  const std::set<std::string> tests = tests_under(kSource + "/tests");
  for (const Row& row : page()) {
    const std::vector<std::string> named = names_in(row.test);
    EXPECT_FALSE(named.empty()) << "line " << row.line << ": " << row.key() << " names no test";
    for (const std::string& test : named)
      EXPECT_TRUE(tests.contains(test)) << "line " << row.line << ": there is no test " << test;
  }
}

TEST(FrameworksPage, EveryRowNamesWhatCisternHas) {
  for (const Row& row : page())
    EXPECT_FALSE(row.names.empty()) << "line " << row.line << ": " << row.key() << " names nothing of cistern";
}

}  // namespace
}  // namespace cistern::frameworks
