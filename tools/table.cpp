#include "tools/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

namespace cistern {

Table::Table(std::ostream& out, std::vector<TableColumn> columns) : out_(out), columns_(std::move(columns)) {
  for (TableColumn& column : columns_) column.width = std::max(column.width, column.title.size());
}

void Table::print_header() const {
  std::vector<std::string> titles;
  for (const TableColumn& column : columns_) titles.push_back(column.title);
  print_row(titles);
}

void Table::print_row(const std::vector<std::string>& cells) const {
  for (std::size_t i = 0; i < cells.size(); ++i)
    out_ << (i == 0 ? fmt::format("{:<{}}", cells[i], columns_[i].width)
                    : fmt::format("  {:>{}}", cells[i], columns_[i].width));
  out_ << std::endl;
}

}  // namespace cistern
