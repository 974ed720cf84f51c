#include "stats/elf_file.h"

#include "stats/byte_reader.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace cistern {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
// Of sections that are small: names of sections, notes, the name of another file.
constexpr std::uint64_t kMostSmallBytes = std::uint64_t{1} << 20;
constexpr std::size_t kMostNameBytes = std::size_t{64} << 10;

template <class Value>
Value value_at(std::string_view bytes, std::size_t index) {
  Value value{};
  std::memcpy(&value, bytes.data() + index * sizeof(Value), sizeof(Value));
  return value;
}

std::string_view string_of(std::string_view strings, std::uint64_t place) {
  ByteReader reader(strings);
  reader.skip(place);
  return reader.string();
}

}  // namespace

std::string build_id_of(std::string_view notes) {
  ByteReader reader(notes);
  while (!reader.at_end()) {
    const std::uint64_t name_bytes = reader.number(4);
    const std::uint64_t value_bytes = reader.number(4);
    const std::uint64_t type = reader.number(4);
    const auto padded = [](std::uint64_t bytes) { return (bytes + 3) & ~std::uint64_t{3}; };
    ByteReader name = reader.part(padded(name_bytes));
    ByteReader value = reader.part(padded(value_bytes));
    if (reader.is_bad() || type != NT_GNU_BUILD_ID || name.string() != "GNU") continue;
    std::string id;
    for (std::uint64_t i = 0; i < value_bytes; ++i) id += fmt::format("{:02x}", value.byte());
    return id;
  }
  return "";
}

ElfFile::ElfFile(std::unique_ptr<const FileBytes> file)
    : file_(std::move(file)), left_(std::min(file_->size(), kMostBytes)) {
  read_sections();
  if (shrank_) forget();
}

ElfFile::Part ElfFile::part(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (offset > file_->size() || bytes > file_->size() - offset) return {};
  return {offset, bytes};
}

// Parts of an honest file do not overlap: all of them together are no more than it.
bool ElfFile::may_keep(std::uint64_t bytes) noexcept {
  if (bytes > left_) return false;
  left_ -= bytes;
  return true;
}

ElfFile::Bytes ElfFile::take(const Part& part, std::uint64_t most) {
  Bytes bytes;
  if (part.bytes == 0 || part.bytes > most || !may_keep(part.bytes)) return bytes;
  // Not initialised: all of it is read.
  bytes.memory.reset(new char[part.bytes]);
  if (file_->read(part.offset, bytes.memory.get(), part.bytes) == part.bytes)
    bytes.size = part.bytes;
  else
    shrank_ = true;
  return bytes;
}

std::string ElfFile::string_at(const Part& strings, std::uint64_t offset, std::size_t most) const {
  std::string text;
  std::array<char, 256> some;
  while (offset < strings.bytes && text.size() <= most) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(some.size(), strings.bytes - offset));
    const std::size_t count = file_->read(strings.offset + offset, some.data(), wanted);
    const std::string_view read(some.data(), count);
    text.append(read.substr(0, read.find('\0')));
    if (read.find('\0') != std::string_view::npos) return text.size() <= most ? text : "";
    if (count < wanted) return "";
    offset += count;
  }
  return "";
}

void ElfFile::read_sections() {
  Elf64_Ehdr header{};
  if (file_->read(0, reinterpret_cast<char*>(&header), sizeof(header)) != sizeof(header)) return;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_shentsize != sizeof(Elf64_Shdr))
    return;
  // 65,535 of them at most: no more than 4 MiB.
  const Bytes table = take(part(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)), kMostBytes);
  const std::size_t count = table.size / sizeof(Elf64_Shdr);
  if (header.e_shstrndx >= count) return;
  const auto section_at = [&](std::size_t i) { return value_at<Elf64_Shdr>(table.view(), i); };
  const auto part_of = [&](const Elf64_Shdr& section) {
    // Without a decompressor: such a section is as if it was not there.
    const bool readable = section.sh_type != SHT_NOBITS && (section.sh_flags & SHF_COMPRESSED) == 0;
    return readable ? part(section.sh_offset, section.sh_size) : Part();
  };
  const Bytes names = take(part_of(section_at(header.e_shstrndx)), kMostSmallBytes);
  std::array<bool, 2> has_table{};
  for (std::size_t i = 0; i < count && !shrank_; ++i) {
    const Elf64_Shdr section = section_at(i);
    const Part bytes = part_of(section);
    const std::string_view name = string_of(names.view(), section.sh_name);
    if (name == ".debug_line") line_part_ = bytes;
    if (name == ".debug_line_str") line_str_part_ = bytes;
    if (name == ".debug_str") str_part_ = bytes;
    if (name == ".gnu_debuglink" && debug_link_.empty())
      debug_link_ = ByteReader(take(bytes, kMostSmallBytes).view()).string();
    if (section.sh_type == SHT_NOTE && build_id_.empty()) build_id_ = build_id_of(take(bytes, kMostSmallBytes).view());
    if ((section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM) && section.sh_link < count &&
        !std::exchange(has_table[section.sh_type == SHT_DYNSYM ? 1 : 0], true))
      tables_.push_back({bytes, part_of(section_at(section.sh_link))});
  }
}

void ElfFile::load() {
  std::uint64_t symbols = 0;
  for (SymbolTable& table : tables_) {
    if (!may_keep(table.symbols.bytes)) table.symbols = {};
    symbols += table.symbols.bytes / sizeof(Elf64_Sym);
  }
  static_assert(sizeof(Symbol) <= sizeof(Elf64_Sym), "what is kept of a file is no larger than it");
  symbols_.reserve(symbols);
  for (std::uint32_t i = 0; i < tables_.size() && !shrank_; ++i) shrank_ = !read_symbols(i);
  line_ = take(line_part_, kMostBytes);
  line_str_ = take(line_str_part_, kMostBytes);
  if (shrank_) return forget();
  std::sort(symbols_.begin(), symbols_.end(), [](const Symbol& a, const Symbol& b) {
    return a.address != b.address ? a.address < b.address : a.bytes < b.bytes;
  });
}

// False: the table is not there any more.
bool ElfFile::read_symbols(std::uint32_t table) {
  const Part part = tables_[table].symbols;
  std::array<Elf64_Sym, 512> some;
  const std::uint64_t count = part.bytes / sizeof(Elf64_Sym);
  for (std::uint64_t first = 0; first < count; first += some.size()) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(some.size(), count - first));
    const std::size_t bytes = wanted * sizeof(Elf64_Sym);
    const std::uint64_t offset = part.offset + first * sizeof(Elf64_Sym);
    if (file_->read(offset, reinterpret_cast<char*>(some.data()), bytes) != bytes) return false;
    for (std::size_t i = 0; i < wanted; ++i) {
      const unsigned type = some[i].st_info & 0xf;
      if ((type == STT_FUNC || type == STT_GNU_IFUNC) && some[i].st_shndx != SHN_UNDEF)
        symbols_.push_back({some[i].st_value, some[i].st_size, some[i].st_name, table});
    }
  }
  return true;
}

// Parts of what was there and parts of what is there now would name the wrong code.
void ElfFile::forget() noexcept {
  build_id_.clear();
  debug_link_.clear();
  tables_.clear();
  symbols_.clear();
  line_part_ = line_str_part_ = str_part_ = Part();
  line_ = Bytes();
  line_str_ = Bytes();
}

DwarfSections ElfFile::lines() const {
  return {line_.view(), line_str_.view(),
          [this](std::uint64_t offset) { return string_at(str_part_, offset, kMostPathBytes); }};
}

std::string ElfFile::function_at(std::uint64_t address) const {
  auto after = std::upper_bound(symbols_.begin(), symbols_.end(), address,
                                [](std::uint64_t at, const Symbol& symbol) { return at < symbol.address; });
  if (after == symbols_.begin()) return "";
  const Symbol& symbol = *--after;
  if (symbol.bytes != 0 && address - symbol.address >= symbol.bytes) return "";
  return string_at(tables_[symbol.table].names, symbol.name, kMostNameBytes);
}

}  // namespace cistern
