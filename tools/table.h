#pragma once

// A table for people: columns as wide as what stands in them, printed row by row.
//
// Not thread-safe.

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace cistern {

struct TableColumn {
  std::string title;
  std::size_t width;  // at least; a longer title widens it
};

class Table {
 public:
  // The first column is aligned left, the others right.
  Table(std::ostream& out, std::vector<TableColumn> columns);
  void print_header() const;
  // As many cells as there are columns.
  void print_row(const std::vector<std::string>& cells) const;

 private:
  std::ostream& out_;
  std::vector<TableColumn> columns_;
};

}  // namespace cistern
