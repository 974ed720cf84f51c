#include "stats/elf_file.h"

#include "stats/byte_reader.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace cistern {
namespace {

std::string_view map(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status {};
  std::string_view bytes;
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped != MAP_FAILED) bytes = {static_cast<const char*>(mapped), size};
  }
  ::close(file);
  return bytes;
}

std::string_view part(std::string_view bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.substr(offset, size);
}

template <class Value>
Value value_at(std::string_view bytes, std::size_t index) {
  Value value{};
  std::memcpy(&value, bytes.data() + index * sizeof(Value), sizeof(Value));
  return value;
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

ElfFile::ElfFile(const std::string& path) : bytes_(map(path)) { read(); }

ElfFile::~ElfFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

ElfFile::ElfFile(ElfFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      build_id_(std::move(other.build_id_)),
      debug_link_(std::move(other.debug_link_)),
      lines_(std::exchange(other.lines_, {})),
      symbols_(std::move(other.symbols_)) {}

void ElfFile::read() {
  if (bytes_.size() < sizeof(Elf64_Ehdr)) return;
  const auto header = value_at<Elf64_Ehdr>(bytes_, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_shentsize != sizeof(Elf64_Shdr))
    return;
  const std::string_view table = part(bytes_, header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  const std::size_t count = table.size() / sizeof(Elf64_Shdr);
  if (header.e_shstrndx >= count) return;
  const auto bytes_of = [&](const Elf64_Shdr& section) {
    // Without a decompressor: such a section is as if it was not there.
    const bool readable = section.sh_type != SHT_NOBITS && (section.sh_flags & SHF_COMPRESSED) == 0;
    return readable ? part(bytes_, section.sh_offset, section.sh_size) : std::string_view();
  };
  const std::string_view names = bytes_of(value_at<Elf64_Shdr>(table, header.e_shstrndx));
  for (std::size_t i = 0; i < count; ++i) {
    const auto section = value_at<Elf64_Shdr>(table, i);
    const std::string_view bytes = bytes_of(section);
    ByteReader name_reader(names);
    name_reader.skip(section.sh_name);
    const std::string_view name = name_reader.string();
    if (name == ".debug_line") lines_.line = bytes;
    if (name == ".debug_line_str") lines_.line_str = bytes;
    if (name == ".debug_str") lines_.str = bytes;
    if (name == ".gnu_debuglink") debug_link_ = ByteReader(bytes).string();
    if (section.sh_type == SHT_NOTE && build_id_.empty()) build_id_ = build_id_of(bytes);
    if ((section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM) && section.sh_link < count)
      read_symbols(bytes, bytes_of(value_at<Elf64_Shdr>(table, section.sh_link)));
  }
  std::sort(symbols_.begin(), symbols_.end(), [](const Symbol& a, const Symbol& b) {
    return a.address != b.address ? a.address < b.address : a.bytes < b.bytes;
  });
}

void ElfFile::read_symbols(std::string_view table, std::string_view names) {
  for (std::size_t i = 0; i < table.size() / sizeof(Elf64_Sym); ++i) {
    const auto symbol = value_at<Elf64_Sym>(table, i);
    const unsigned type = symbol.st_info & 0xf;
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
    ByteReader name(names);
    name.skip(symbol.st_name);
    symbols_.push_back({symbol.st_value, symbol.st_size, name.string()});
  }
}

std::string_view ElfFile::function_at(std::uint64_t address) const {
  auto after = std::upper_bound(symbols_.begin(), symbols_.end(), address,
                                [](std::uint64_t at, const Symbol& symbol) { return at < symbol.address; });
  if (after == symbols_.begin()) return "";
  const Symbol& symbol = *--after;
  return symbol.bytes == 0 || address < symbol.address + symbol.bytes ? symbol.name : std::string_view();
}

}  // namespace cistern
