#pragma once

// Which line of which file an instruction came from: DWARF's line tables, versions 2 to 5.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace cistern {

// Of what a path consists of; longer ones are as if they were not there. What the kernel takes.
inline constexpr std::size_t kMostPathBytes = 4096;

// The sections that line tables consist of; empty where a file has none.
struct DwarfSections {
  std::string_view line;      // .debug_line
  std::string_view line_str;  // .debug_line_str
  // The string at a place of .debug_str, which is large and of which few tables know: "" if none of at
  // most kMostPathBytes is there. May be null.
  std::function<std::string(std::uint64_t offset)> str;
};

struct SourceLine {
  std::uint64_t address = 0;  // asked for, as the file counts
  std::string file;           // "" if nothing is known
  std::int64_t line = 0;
  bool is_found = false;  // in a table, whether that names the file or not
};

// Fills in what is known of those of `wanted` that are not found yet; it is sorted by address. One pass over
// the tables, nothing of which is kept: O(bytes * log(wanted)), whatever they say. What is malformed is left
// out, and so are a unit's files after 65,536 others. Throws std::bad_alloc.
void find_source_lines(const DwarfSections& sections, std::span<SourceLine> wanted);

}  // namespace cistern
