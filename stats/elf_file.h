#pragma once

// ElfFile: the parts of an ELF file of this machine's kind that name its code.
//
// What is kept of a file is at most its own size and 1 GiB, whatever it says of its parts: function
// symbols, .debug_line and .debug_line_str. Names are read as they are asked for. What is too large, or
// not where the file says, is as if it was not there, and of a file that shrinks meanwhile nothing is.
//
// Thread safety: any const member may be called from any thread.

#include "stats/dwarf_lines.h"
#include "stats/file_bytes.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

class ElfFile {
 public:
  // Reads what the file says of itself; one that cannot be read, or is no ELF file, is empty. Throws
  // std::bad_alloc, as all that reads does.
  explicit ElfFile(const std::string& path) : ElfFile(std::make_unique<OpenFile>(path)) {}
  explicit ElfFile(std::unique_ptr<const FileBytes> file);

  // As hexadecimal digits; "" if it has none.
  [[nodiscard]] const std::string& build_id() const noexcept { return build_id_; }
  // Whether this build made it. A file that does not say which build made it is of none.
  [[nodiscard]] bool is_of_build(std::string_view id) const noexcept { return !id.empty() && id == build_id_; }
  // Of .gnu_debuglink: where the symbols were put; "" if they were not.
  [[nodiscard]] const std::string& debug_link() const noexcept { return debug_link_; }

  // Reads symbols and line tables, without which the file knows nothing of its code. Once.
  void load();
  [[nodiscard]] bool has_symbols() const noexcept { return !symbols_.empty(); }
  // Valid as long as the file, where it is.
  [[nodiscard]] DwarfSections lines() const;
  // The mangled name of the function at an address as the file counts; "" if none is known, or if it is
  // of more than 64 KiB.
  [[nodiscard]] std::string function_at(std::uint64_t address) const;

 private:
  // Of the file; empty where the file has no such part.
  struct Part {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  struct Bytes {
    std::unique_ptr<char[]> memory;
    std::size_t size = 0;
    [[nodiscard]] std::string_view view() const noexcept { return {memory.get(), size}; }
  };
  struct SymbolTable {
    Part symbols;
    Part names;
  };
  // No larger than in the file.
  struct Symbol {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint32_t name = 0;  // its place among the table's names
    std::uint32_t table = 0;
  };
  [[nodiscard]] Part part(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  [[nodiscard]] bool may_keep(std::uint64_t bytes) noexcept;
  [[nodiscard]] Bytes take(const Part& part, std::uint64_t most);
  [[nodiscard]] std::string string_at(const Part& strings, std::uint64_t offset, std::size_t most) const;
  void read_sections();
  [[nodiscard]] bool read_symbols(std::uint32_t table);
  void forget() noexcept;

  std::unique_ptr<const FileBytes> file_;
  std::uint64_t left_;  // bytes that may be kept yet
  bool shrank_ = false;
  std::string build_id_;
  std::string debug_link_;
  std::vector<SymbolTable> tables_;  // the file's own and that for others: at most one each
  Part line_part_, line_str_part_, str_part_;
  Bytes line_, line_str_;
  std::vector<Symbol> symbols_;  // functions, by address
};

// The build id that a note section or segment holds; "" if none.
[[nodiscard]] std::string build_id_of(std::string_view notes);

}  // namespace cistern
