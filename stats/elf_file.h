#pragma once

// ElfFile: the parts of an ELF file of this machine's kind that name its code.

#include "stats/dwarf_lines.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

class ElfFile {
 public:
  // Maps the file; one that cannot be read, or is no ELF file, is empty.
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(ElfFile&& other) noexcept;
  ElfFile& operator=(ElfFile&&) = delete;
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  // As hexadecimal digits; "" if it has none.
  [[nodiscard]] const std::string& build_id() const noexcept { return build_id_; }
  // Of .gnu_debuglink: where the symbols were put; "" if they were not.
  [[nodiscard]] const std::string& debug_link() const noexcept { return debug_link_; }
  [[nodiscard]] bool has_symbols() const noexcept { return !symbols_.empty(); }
  [[nodiscard]] const DwarfSections& lines() const noexcept { return lines_; }
  // The mangled name of the function at an address as the file counts; "" if none is known.
  [[nodiscard]] std::string_view function_at(std::uint64_t address) const;

 private:
  struct Symbol {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::string_view name;
  };
  void read();
  void read_symbols(std::string_view table, std::string_view names);

  std::string_view bytes_;
  std::string build_id_;
  std::string debug_link_;
  DwarfSections lines_;
  std::vector<Symbol> symbols_;  // functions, by address
};

// The build id that a note section or segment holds; "" if none.
[[nodiscard]] std::string build_id_of(std::string_view notes);

}  // namespace cistern
