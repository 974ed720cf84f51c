// ELF files: of any bytes something is known or nothing, at most their own size is kept of them, and of a
// file that shrinks while it is read either the same is known or nothing.

#include <array>
#include <memory>
#include <string>

#include "stats/elf_file.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/property.h"

namespace cistern {
namespace {

constexpr std::array<std::uint64_t, 7> kAddresses{0, 1, 0x1000, 0x1004, 0x1013, 0x234, ~std::uint64_t{0}};

struct Known {
  std::string build_id;
  std::string debug_link;
  std::array<std::string, kAddresses.size()> functions;
  std::array<SourceLine, kAddresses.size()> lines;
  std::size_t line_bytes = 0;

  explicit Known(const ElfFile& file) : build_id(file.build_id()), debug_link(file.debug_link()) {
    for (std::size_t i = 0; i < kAddresses.size(); ++i) {
      functions[i] = file.function_at(kAddresses[i]);
      lines[i].address = kAddresses[i];
    }
    std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
    line_bytes = file.lines().line.size() + file.lines().line_str.size();
    find_source_lines(file.lines(), lines);
  }
};

ElfFile read(std::unique_ptr<const FileBytes> bytes) {
  ElfFile file(std::move(bytes));
  file.load();
  return file;
}

void require_whole(std::string_view bytes) {
  const Known known(read(std::make_unique<MemoryFile>(bytes)));
  require(known.line_bytes <= bytes.size(), "no more is kept than there is");
  require(known.build_id.size() % 2 == 0, "a build id is of whole bytes");
  require(known.build_id.find_first_not_of("0123456789abcdef") == std::string::npos, "a build id is hexadecimal");
  for (const std::string& name : known.functions) require(name.size() <= bytes.size(), "names are the file's");

  for (const int read_number : {1, 3, 5, 7, 9}) {
    const ElfFile file = read(std::make_unique<MemoryFile>(bytes, read_number, bytes.size() / 3));
    const Known of_less(file);
    require(of_less.build_id.empty() || of_less.build_id == known.build_id, "a shrinking file's build id");
    for (std::size_t i = 0; i < kAddresses.size(); ++i) {
      require(of_less.functions[i].empty() || of_less.functions[i] == known.functions[i], "a shrinking file's names");
      require(!of_less.lines[i].is_found || of_less.lines[i].line == known.lines[i].line, "a shrinking file's lines");
    }
  }
}

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cistern::require_whole(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
