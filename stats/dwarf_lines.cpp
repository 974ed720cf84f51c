// After the DWARF standard, version 5, section 6.2, and version 4's for older tables.

#include "stats/dwarf_lines.h"

#include "stats/byte_reader.h"

#include <algorithm>
#include <array>
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
    if (file.path.starts_with('/') || file.directory >= directories_.size()) return std::string(file.path);
    std::string_view directory = directories_[file.directory].path;
    std::string path;
    // The first is where the compiler ran; others may be relative to it.
    if (!directory.starts_with('/') && file.directory != 0) path.append(directories_[0].path).append("/");
    path.append(directory);
    if (!path.empty() && path.back() != '/') path += '/';
    return path.append(file.path);
  }

 private:
  struct Entry {
    std::string_view path;
    std::uint64_t directory = 0;
  };

  void read_4(ByteReader& tables) {
    directories_.emplace_back();  // where the compiler ran: named elsewhere
    for (std::string_view path = tables.string(); !path.empty(); path = tables.string())
      directories_.push_back({path, 0});
    for (std::string_view path = tables.string(); !path.empty(); path = tables.string()) {
      files_.push_back({path, tables.uleb()});
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
      Entry& entry = entries.emplace_back();
      for (const Format& format : formats) {
        std::string_view text;
        std::uint64_t value = 0;
        if (!read_value(tables, format.form, text, value)) return {};
        if (format.content == DW_LNCT_path) entry.path = text;
        if (format.content == DW_LNCT_directory_index) entry.directory = value;
      }
    }
    return entries;
  }
  // False: a form that line tables do not use, so that what follows cannot be read.
  [[nodiscard]] bool read_value(ByteReader& tables, std::uint64_t form, std::string_view& text,
                                std::uint64_t& value) const {
    const auto at = [&](std::string_view section) {
      const std::uint64_t offset = tables.number(offset_bytes_);
      ByteReader reader(section);
      reader.skip(offset);
      text = reader.string();
    };
    switch (form) {
      case DW_FORM_string:
        text = tables.string();
        break;
      case DW_FORM_line_strp:
        at(sections_.line_str);
        break;
      case DW_FORM_strp:
        at(sections_.str);
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

// Runs a unit's program: each pair of rows covers the instructions between them.
class LineProgram {
 public:
  LineProgram(const Header& header, const DwarfSections& sections, std::span<SourceLine> wanted)
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
    const auto before = [](const SourceLine& line, std::uint64_t address) { return line.address < address; };
    auto found = std::lower_bound(wanted_.begin(), wanted_.end(), last_.address, before);
    for (; found != wanted_.end() && found->address < row_.address; ++found) {
      if (std::exchange(found->is_found, true)) continue;
      if (!files_) files_.emplace(header_, sections_);
      found->file = files_->path(last_.file);
      found->line = last_.line;
    }
  }

  const Header& header_;
  const DwarfSections& sections_;
  std::span<SourceLine> wanted_;
  std::optional<FileTable> files_;
  Row row_;
  Row last_;
  bool has_last_ = false;
};

}  // namespace

void find_source_lines(const DwarfSections& sections, std::span<SourceLine> wanted) {
  ByteReader section(sections.line);
  while (!section.at_end())
    if (const std::optional<Header> header = read_header(section)) LineProgram(*header, sections, wanted).run();
}

}  // namespace cistern
