#pragma once

// Which line of which file an instruction came from: DWARF's line tables, versions 2 to 5.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cistern {

// The sections that line tables consist of; empty where a file has none.
struct DwarfSections {
  std::string_view line;      // .debug_line
  std::string_view line_str;  // .debug_line_str
  std::string_view str;       // .debug_str
};

struct SourceLine {
  std::uint64_t address = 0;  // asked for, as the file counts
  std::string file;           // "" if nothing is known
  std::int64_t line = 0;
  bool is_found = false;  // in a table, whether that names the file or not
};

// Fills in what is known of `wanted`, which is sorted by address. One pass over the tables, nothing
// of which is kept. What is malformed is left out. Throws std::bad_alloc.
void find_source_lines(const DwarfSections& sections, std::span<SourceLine> wanted);

}  // namespace cistern
