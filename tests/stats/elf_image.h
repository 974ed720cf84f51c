#pragma once

// ELF files and line tables made to order.

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

template <class Value>
std::string bytes_of(const Value& value) {
  std::string bytes(sizeof(Value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(Value));
  return bytes;
}

class ElfImage {
 public:
  // Returns the section's number. `link`: of the section of its names.
  std::uint32_t add(const std::string& name, std::uint32_t type, const std::string& content, std::uint32_t link = 0) {
    Elf64_Shdr section{};
    section.sh_name = static_cast<std::uint32_t>(names_.size());
    section.sh_type = type;
    section.sh_offset = sizeof(Elf64_Ehdr) + content_.size();
    section.sh_size = content.size();
    section.sh_link = link;
    names_ += name + '\0';
    content_ += content;
    sections_.push_back(section);
    return static_cast<std::uint32_t>(sections_.size());
  }
  // To be changed before bytes() is called; sections count from 1.
  Elf64_Shdr& section(std::uint32_t number) { return sections_.at(number - 1); }

  void add_build_id(const std::string& id) {
    add(".note.gnu.build-id", SHT_NOTE,
        bytes_of(std::uint32_t{4}) + bytes_of(static_cast<std::uint32_t>(id.size())) +
            bytes_of(std::uint32_t{NT_GNU_BUILD_ID}) + std::string("GNU", 4) + id +
            std::string((4 - id.size() % 4) % 4, '\0'));
  }
  struct Function {
    std::string name;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };
  void add_functions(const std::vector<Function>& functions) {
    std::string names(1, '\0'), symbols = bytes_of(Elf64_Sym{});
    for (const Function& function : functions) {
      Elf64_Sym symbol{};
      symbol.st_name = static_cast<std::uint32_t>(names.size());
      symbol.st_info = STT_FUNC;
      symbol.st_shndx = 1;
      symbol.st_value = function.address;
      symbol.st_size = function.bytes;
      symbols += bytes_of(symbol);
      names += function.name + '\0';
    }
    const std::uint32_t strings = add(".strtab", SHT_STRTAB, names);
    add(".symtab", SHT_SYMTAB, symbols, strings);
  }

  [[nodiscard]] std::string bytes() const {
    ElfImage whole = *this;
    const std::uint32_t names = whole.add(".shstrtab", SHT_STRTAB, "");
    whole.section(names).sh_size = whole.names_.size();
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<std::uint16_t>(whole.sections_.size() + 1);
    header.e_shstrndx = static_cast<std::uint16_t>(names);
    header.e_shoff = sizeof(header) + whole.content_.size() + whole.names_.size();
    std::string bytes = bytes_of(header) + whole.content_ + whole.names_ + bytes_of(Elf64_Shdr{});
    for (const Elf64_Shdr& section : whole.sections_) bytes += bytes_of(section);
    return bytes;
  }

 private:
  std::string names_ = std::string(1, '\0');
  std::string content_;
  std::vector<Elf64_Shdr> sections_;
};

// A line table of DWARF version 4, of one unit: what follows its length.
inline std::string line_unit(const std::string& content) {
  return bytes_of(static_cast<std::uint32_t>(content.size())) + content;
}
// Version 4 with `tables`, directories and files, and a program.
inline std::string line_table_4(const std::string& tables, const std::string& program) {
  const std::string header{1, 1, 1, -5, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
  return line_unit(bytes_of(std::uint16_t{4}) + bytes_of(static_cast<std::uint32_t>(header.size() + tables.size())) +
                   header + tables + program);
}
// Version 5; directories and files each of `formats` pairs of content and form.
inline std::string line_table_5(const std::string& tables, const std::string& program) {
  const std::string header{1, 1, 1, -5, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
  return line_unit(bytes_of(std::uint16_t{5}) + std::string{8, 0} +
                   bytes_of(static_cast<std::uint32_t>(header.size() + tables.size())) + header + tables + program);
}
inline std::string at_address(std::uint64_t address) { return std::string{0, 9, 2} + bytes_of(address); }
// A row of the address and line that are current.
inline const std::string kCopy(1, 1);
inline std::string advance_to(std::uint64_t by) {
  std::string bytes(1, 2);
  for (; by >= 0x80; by >>= 7) bytes += static_cast<char>((by & 0x7f) | 0x80);
  return bytes + static_cast<char>(by);
}
inline const std::string kEndOfSequence{0, 1, 1};

}  // namespace cistern
