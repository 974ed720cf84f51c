// DWARF line tables: any bytes are read to their end, and what is found of an address does not hang on
// which others are asked for. The first byte says how much of the end is .debug_line_str.

#include <array>
#include <string>

#include "stats/dwarf_lines.h"
#include "tests/fuzz/property.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t strings = std::min<std::size_t>(data[0], text.size());
  DwarfSections sections;
  sections.line = text.substr(0, text.size() - strings);
  sections.line_str = text.substr(text.size() - strings);
  sections.str = [&](std::uint64_t offset) { return "place " + std::to_string(offset % 1000); };

  // Where the stored inputs have code, around it and at both ends of all addresses.
  constexpr std::array<std::uint64_t, 11> kAddresses{0,
                                                     1,
                                                     0xfff,
                                                     0x1000,
                                                     0x1004,
                                                     0x1009,
                                                     0x1013,
                                                     0x7fffffff,
                                                     std::uint64_t{1} << 63,
                                                     ~std::uint64_t{1},
                                                     ~std::uint64_t{0}};
  std::array<SourceLine, kAddresses.size()> together;
  for (std::size_t i = 0; i < together.size(); ++i) together[i].address = kAddresses[i];
  find_source_lines(sections, together);
  for (std::size_t i = 0; i < together.size(); ++i) {
    const SourceLine& line = together[i];
    require(line.is_found || (line.file.empty() && line.line == 0), "nothing is said of what is not found");
    require(line.file.size() <= 3 * kMostPathBytes + 2, "paths are bounded");
    std::array<SourceLine, 1> alone;
    alone[0].address = kAddresses[i];
    find_source_lines(sections, alone);
    require(alone[0].is_found == line.is_found && alone[0].file == line.file && alone[0].line == line.line,
            "an address means the same, whatever else is asked for");
  }
  return 0;
}
