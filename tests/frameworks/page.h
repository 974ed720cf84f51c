#pragma once

// docs/frameworks.md as a table, and the inventory that fixes its rows.

#include <set>
#include <string>
#include <vector>

namespace cistern::frameworks {

struct Row {
  std::string entry;  // "torch.Stream.query"
  std::string facet;  // "result"
  std::string names;  // the cistern column
  std::string test;   // the test column
  int line = 0;
  [[nodiscard]] std::string key() const { return entry + ": " + facet; }
  // Whether the row belongs to a subject that is not built yet.
};

// The rows of the page: a heading "### entry", then a table of its facets. Throws
// std::runtime_error naming file and line where a row has another number of columns.
[[nodiscard]] std::vector<Row> read_page(const std::string& path);
// "entry: facet" for each line of the inventory.
[[nodiscard]] std::vector<std::string> read_inventory(const std::string& path);
// The tests named in a test column: what stands in backticks.
[[nodiscard]] std::vector<std::string> names_in(const std::string& cell);
// "Suite.Name" of every TEST, TEST_F and TEST_P in the sources under a folder.
[[nodiscard]] std::set<std::string> tests_under(const std::string& folder);

}  // namespace cistern::frameworks
