// After the DWARF standard, version 5, section 6.2, and version 4's for older tables.

#include "stats/dwarf_lines.h"

#include "stats/byte_reader.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// Numbers of the standard, by its names.
enum Form : std::uint64_t {
  DW_FORM_data2 = 0x05,
  DW_FORM_data4 = 0x06,
  DW_FORM_data8 = 0x07,
  DW_FORM_string = 0x08,
  DW_FORM_block = 0x09,
  DW_FORM_data1 = 0x0b,
  DW_FORM_strp = 0x0e,
  DW_FORM_udata = 0x0f,
  DW_FORM_data16 = 0x1e,
  DW_FORM_line_strp = 0x1f,
};
enum Content : std::uint64_t { DW_LNCT_path = 1, DW_LNCT_directory_index = 2 };
enum Opcode : std::uint8_t {
  DW_LNS_copy = 1,
  DW_LNS_advance_pc = 2,
  DW_LNS_advance_line = 3,
  DW_LNS_set_file = 4,
  DW_LNS_const_add_pc = 8,
  DW_LNS_fixed_advance_pc = 9,
};
enum ExtendedOpcode : std::uint8_t { DW_LNE_end_sequence = 1, DW_LNE_set_address = 2 };

struct Header {
  unsigned version = 0;
  std::size_t offset_bytes = 4;  // of an offset into a section
  std::uint8_t min_instruction_length = 1;
  std::int8_t line_base = 0;
  std::uint8_t line_range = 1;
  std::uint8_t opcode_base = 1;
  std::array<std::uint8_t, 256> operands{};  // of each standard opcode
  ByteReader tables;                         // of directories and files
  ByteReader program;
};

std::optional<Header> read_header(ByteReader& section) {
  Header header;
  std::uint64_t length = section.number(4);
  if (length == 0xffffffff) {
    length = section.number(8);
    header.offset_bytes = 8;
  }
  ByteReader unit = section.part(length);
  header.version = static_cast<unsigned>(unit.number(2));
  if (unit.is_bad() || header.version < 2 || header.version > 5) return std::nullopt;
  if (header.version == 5) unit.skip(2);  // sizes of addresses and of segment selectors
  ByteReader rest = unit.part(unit.number(header.offset_bytes));
  header.program = unit;
  header.min_instruction_length = rest.byte();
  if (header.version >= 4) rest.skip(1);  // operations an instruction: of VLIW machines
  rest.skip(1);                           // whether rows are statements at first
  header.line_base = static_cast<std::int8_t>(rest.byte());
  header.line_range = rest.byte();
  header.opcode_base = rest.byte();
  for (unsigned opcode = 1; opcode < header.opcode_base; ++opcode) header.operands[opcode] = rest.byte();
  if (rest.is_bad() || header.line_range == 0 || header.opcode_base == 0) return std::nullopt;
  header.tables = rest;
  return header;
}

// The directories and files of a unit: read only if a wanted address is in it.
class FileTable {
 public:
  FileTable(const Header& header, const DwarfSections& sections)
      : sections_(sections), offset_bytes_(header.offset_bytes), first_file_(header.version == 5 ? 0 : 1) {
    ByteReader tables = header.tables;
    if (header.version == 5)
      read_5(tables);
    else
      read_4(tables);
  }

  [[nodiscard]] std::string path(std::uint64_t number) const {
    if (number < first_file_ || number - first_file_ >= files_.size()) return "";
    const Entry& file = files_[number - first_file_];
    std::string name = text(file.path);
    if (name.empty() || name.starts_with('/') || file.directory >= directories_.size()) return name;
    const std::string directory = text(directories_[file.directory].path);
    std::string path;
    // The first is where the compiler ran; others may be relative to it.
    if (!directory.starts_with('/') && file.directory != 0) path.append(text(directories_[0].path)).append("/");
    path.append(directory);
    if (!path.empty() && path.back() != '/') path += '/';
    return path.append(name);
  }

 private:
  // So many of a unit's files and directories are kept: a table of nothing else would be many times larger
  // here than in the file.
  static constexpr std::size_t kMostEntries = std::size_t{1} << 16;

  // A string where it stands, looked for when it is asked for.
  struct Text {
    enum { here, line_str, str } section = here;
    std::uint64_t offset = 0;
    std::string_view text;  // here
  };
  struct Entry {
    Text path;
    std::uint64_t directory = 0;
  };

  [[nodiscard]] std::string text(const Text& of) const {
    std::string_view text = of.text;
    if (of.section == Text::str) return sections_.str ? sections_.str(of.offset) : "";
    if (of.section == Text::line_str) {
      if (of.offset >= sections_.line_str.size()) return "";
      text = sections_.line_str.substr(of.offset, kMostPathBytes + 1);
      const std::size_t end = text.find('\0');
      if (end == std::string_view::npos) return "";
      text = text.substr(0, end);
    }
    return text.size() <= kMostPathBytes ? std::string(text) : "";
  }
  static void keep(std::vector<Entry>& entries, const Entry& entry) {
    if (entries.size() < kMostEntries) entries.push_back(entry);
  }

  void read_4(ByteReader& tables) {
    directories_.emplace_back();  // where the compiler ran: named elsewhere
    for (std::string_view path = tables.string(); !path.empty(); path = tables.string())
      keep(directories_, {{Text::here, 0, path}, 0});
    for (std::string_view path = tables.string(); !path.empty(); path = tables.string()) {
      keep(files_, {{Text::here, 0, path}, tables.uleb()});
      static_cast<void>(tables.uleb());  // when it was changed
      static_cast<void>(tables.uleb());  // how long it is
    }
  }
  void read_5(ByteReader& tables) {
    directories_ = read_entries(tables);
    files_ = read_entries(tables);
  }
  std::vector<Entry> read_entries(ByteReader& tables) const {
    struct Format {
      std::uint64_t content = 0;
      std::uint64_t form = 0;
    };
    std::vector<Format> formats(tables.byte());
    for (Format& format : formats) {
      format.content = tables.uleb();
      format.form = tables.uleb();
    }
    std::vector<Entry> entries;
    for (std::uint64_t left = tables.uleb(); left != 0 && !tables.is_bad() && !formats.empty(); --left) {
      Entry entry;
      for (const Format& format : formats) {
        Text text;
        std::uint64_t value = 0;
        if (!read_value(tables, format.form, text, value)) return {};
        if (format.content == DW_LNCT_path) entry.path = text;
        if (format.content == DW_LNCT_directory_index) entry.directory = value;
      }
      keep(entries, entry);
    }
    return entries;
  }
  // False: a form that line tables do not use, so that what follows cannot be read.
  [[nodiscard]] bool read_value(ByteReader& tables, std::uint64_t form, Text& text, std::uint64_t& value) const {
    switch (form) {
      case DW_FORM_string:
        text.text = tables.string();
        break;
      case DW_FORM_line_strp:
        text = {Text::line_str, tables.number(offset_bytes_), {}};
        break;
      case DW_FORM_strp:
        text = {Text::str, tables.number(offset_bytes_), {}};
        break;
      case DW_FORM_udata:
        value = tables.uleb();
        break;
      case DW_FORM_data1:
        value = tables.number(1);
        break;
      case DW_FORM_data2:
        value = tables.number(2);
        break;
      case DW_FORM_data4:
        value = tables.number(4);
        break;
      case DW_FORM_data8:
        value = tables.number(8);
        break;
      case DW_FORM_data16:
        tables.skip(16);
        break;
      case DW_FORM_block:
        tables.skip(tables.uleb());
        break;
      default:
        return false;
    }
    return !tables.is_bad();
  }

  const DwarfSections& sections_;
  const std::size_t offset_bytes_;
  const std::uint64_t first_file_;
  std::vector<Entry> directories_;
  std::vector<Entry> files_;
};

// The addresses asked for that no table had yet: each is found once, however often tables name it.
class Wanted {
 public:
  explicit Wanted(std::span<SourceLine> lines) : lines_(lines), next_(lines.size() + 1) {
    std::iota(next_.begin(), next_.end(), std::size_t{0});
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i].is_found) take(i);
  }
  [[nodiscard]] bool all_found() const noexcept { return found_ == lines_.size(); }
  // Calls visit(line) for each from `begin` to before `end`: it is found.
  template <class Visit>
  void find(std::uint64_t begin, std::uint64_t end, Visit&& visit) {
    if (lines_.empty() || begin > lines_.back().address || end <= lines_.front().address) return;
    const auto before = [](const SourceLine& line, std::uint64_t address) { return line.address < address; };
    const auto first = std::lower_bound(lines_.begin(), lines_.end(), begin, before);
    auto i = left_from(static_cast<std::size_t>(first - lines_.begin()));
    for (; i < lines_.size() && lines_[i].address < end; i = left_from(i)) {
      take(i);
      visit(lines_[i]);
    }
  }

 private:
  void take(std::size_t i) {
    lines_[i].is_found = true;
    next_[i] = i + 1;
    ++found_;
  }
  // The first that is left from `i` on; what is passed on the way is halved.
  std::size_t left_from(std::size_t i) {
    for (; next_[i] != i; i = next_[i]) next_[i] = next_[next_[i]];
    return i;
  }

  std::span<SourceLine> lines_;
  std::vector<std::size_t> next_;  // one after the last: itself
  std::size_t found_ = 0;
};

// Runs a unit's program: each pair of rows covers the instructions between them.
class LineProgram {
 public:
  LineProgram(const Header& header, const DwarfSections& sections, Wanted& wanted)
      : header_(header), sections_(sections), wanted_(wanted) {}

  void run() {
    ByteReader program = header_.program;
    while (!program.at_end()) {
      const std::uint8_t opcode = program.byte();
      if (opcode >= header_.opcode_base) {
        const unsigned adjusted = opcode - header_.opcode_base;
        advance(adjusted / header_.line_range);
        move_line(header_.line_base + static_cast<int>(adjusted % header_.line_range));
        emit();
      } else if (opcode == 0) {
        run_extended(program.part(program.uleb()));
      } else {
        run_standard(opcode, program);
      }
    }
  }

 private:
  struct Row {
    std::uint64_t address = 0;
    std::uint64_t file = 1;
    std::int64_t line = 1;
  };

  // A damaged file's lines may lead anywhere: they wrap.
  void move_line(std::int64_t by) {
    row_.line = static_cast<std::int64_t>(static_cast<std::uint64_t>(row_.line) + static_cast<std::uint64_t>(by));
  }
  void advance(std::uint64_t instructions) { row_.address += instructions * header_.min_instruction_length; }
  void run_standard(std::uint8_t opcode, ByteReader& program) {
    switch (opcode) {
      case DW_LNS_copy:
        emit();
        break;
      case DW_LNS_advance_pc:
        advance(program.uleb());
        break;
      case DW_LNS_advance_line:
        move_line(program.sleb());
        break;
      case DW_LNS_set_file:
        row_.file = program.uleb();
        break;
      case DW_LNS_const_add_pc:
        advance((255U - header_.opcode_base) / header_.line_range);
        break;
      case DW_LNS_fixed_advance_pc:
        row_.address += program.number(2);
        break;
      default:
        for (unsigned i = 0; i < header_.operands[opcode]; ++i) static_cast<void>(program.uleb());
    }
  }
  void run_extended(ByteReader operation) {
    switch (operation.byte()) {
      case DW_LNE_end_sequence:
        emit();
        row_ = Row{};
        has_last_ = false;
        break;
      case DW_LNE_set_address:
        row_.address = operation.number(8);
        break;
      default:
        break;
    }
  }
  // Code that the linker threw away is left with the address 0.
  void emit() {
    if (has_last_ && last_.address != 0 && row_.address > last_.address) note();
    last_ = row_;
    has_last_ = true;
  }
  void note() {
    wanted_.find(last_.address, row_.address, [this](SourceLine& line) {
      if (!files_) files_.emplace(header_, sections_);
      line.file = files_->path(last_.file);
      line.line = last_.line;
    });
  }

  const Header& header_;
  const DwarfSections& sections_;
  Wanted& wanted_;
  std::optional<FileTable> files_;
  Row row_;
  Row last_;
  bool has_last_ = false;
};

}  // namespace

void find_source_lines(const DwarfSections& sections, std::span<SourceLine> wanted) {
  ByteReader section(sections.line);
  Wanted left(wanted);
  while (!section.at_end() && !left.all_found())
    if (const std::optional<Header> header = read_header(section)) LineProgram(*header, sections, left).run();
}

}  // namespace cistern
