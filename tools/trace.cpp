#include "tools/trace.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <limits>
#include <ostream>
#include <set>
#include <unordered_map>

#include "tools/input_file.h"
#include "tools/seeded_hash.h"

namespace cistern {
namespace {

constexpr std::uint32_t kNotLive = std::numeric_limits<std::uint32_t>::max();
// Statistics are signed.
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

// From the file's ids, which may be any numbers, to those of the blocks that live. Most files
// count from 0 or 1, so small ids are looked up in a table.
class LiveIds {
 public:
  // `table_limit`: ids below it go to the table, which grows as they come.
  explicit LiveIds(std::size_t table_limit) : table_limit_(table_limit) {}

  // The block's entry, kNotLive when new.
  std::uint32_t& operator[](std::uint64_t id) {
    if (id >= table_limit_) return others_.try_emplace(id, kNotLive).first->second;
    const auto index = static_cast<std::size_t>(id);
    if (index >= table_.size()) table_.resize(std::min(table_limit_, 2 * index + 64), kNotLive);
    return table_[index];
  }
  [[nodiscard]] std::uint32_t find(std::uint64_t id) const {
    if (id < table_.size()) return table_[static_cast<std::size_t>(id)];
    const auto found = others_.find(id);
    return found == others_.end() ? kNotLive : found->second;
  }
  void erase(std::uint64_t id) {
    if (id < table_limit_)
      table_[static_cast<std::size_t>(id)] = kNotLive;
    else
      others_.erase(id);
  }

 private:
  std::size_t table_limit_;
  std::vector<std::uint32_t> table_;
  std::unordered_map<std::uint64_t, std::uint32_t, SeededHash> others_;
};

class TraceParser {
 public:
  // The table costs less than the text even when a single line has the largest id it holds.
  TraceParser(std::string_view text, std::string_view name) : text_(text), live_(text.size() / 8 + 1) {
    trace_.name = name;
    trace_.operations.reserve(text.size() / 12);
  }

  Trace parse() {
    const char* next = text_.data();
    const char* const end = next + text_.size();
    while (next != end) {
      const auto* line_end = static_cast<const char*>(std::memchr(next, '\n', static_cast<std::size_t>(end - next)));
      start_ = cursor_ = next;
      line_end_ = line_end != nullptr ? line_end : end;
      ++line_;
      parse_line();
      next = line_end != nullptr ? line_end + 1 : end;
    }
    trace_.id_count = static_cast<std::uint32_t>(bytes_of_.size());
    trace_.streams.assign(streams_.begin(), streams_.end());
    return std::move(trace_);
  }

 private:
  void parse_line() {
    switch (cursor_ != line_end_ ? *cursor_++ : '\0') {
      case 'a':
        return parse_allocate();
      case 'r':
        return parse_record();
      case 'f':
        return parse_free();
      case 'i':
        expect_line_end("'i' alone");
        ++trace_.steps;
        trace_.operations.push_back({.kind = TraceOperation::step});
        return;
      case '#':
        if (cursor_ != line_end_ && *cursor_ == ' ') ++cursor_;
        trace_.comments.emplace_back(cursor_, line_end_);
        return;
      default:
        fail("'a ID BYTES STREAM', 'r ID STREAM', 'f ID', 'i' or '# TEXT'");
    }
  }

  void parse_allocate() {
    constexpr std::string_view form = "'a ID BYTES STREAM', decimal integers with one space before each";
    const std::uint64_t id = number(form, std::numeric_limits<std::uint64_t>::max());
    const std::uint64_t bytes = number(form, kMostBytes);
    const std::uint32_t stream = stream_number(form);
    expect_line_end(form);
    std::uint32_t& entry = live_[id];
    if (entry != kNotLive) fail(fmt::format("an id that is not live, and block {} is", id));
    if (bytes > kMostBytes - live_bytes_) fail("fewer than 2^63 live bytes in all");
    entry = take_id(bytes);
    live_bytes_ += bytes;
    trace_.peak_live_bytes = std::max(trace_.peak_live_bytes, live_bytes_);
    ++trace_.allocations;
    trace_.operations.push_back({.bytes = bytes, .id = entry, .stream = stream, .kind = TraceOperation::allocate});
  }

  void parse_record() {
    constexpr std::string_view form = "'r ID STREAM', decimal integers with one space before each";
    const std::uint64_t id = number(form, std::numeric_limits<std::uint64_t>::max());
    const std::uint32_t stream = stream_number(form);
    expect_line_end(form);
    ++trace_.records;
    trace_.operations.push_back({.id = live_id(id), .stream = stream, .kind = TraceOperation::record});
  }

  void parse_free() {
    constexpr std::string_view form = "'f ID', a decimal integer with one space before it";
    const std::uint64_t id = number(form, std::numeric_limits<std::uint64_t>::max());
    expect_line_end(form);
    const std::uint32_t block = live_id(id);
    live_.erase(id);
    live_bytes_ -= bytes_of_[block];
    free_ids_.push_back(block);
    ++trace_.frees;
    trace_.operations.push_back({.id = block, .kind = TraceOperation::free});
  }

  // The number after one space at the cursor.
  std::uint64_t number(std::string_view form, std::uint64_t most) {
    if (cursor_ == line_end_ || *cursor_ != ' ') fail(form);
    std::uint64_t value = 0;
    const auto [stop, error] = std::from_chars(cursor_ + 1, line_end_, value);
    if (error == std::errc::invalid_argument) fail(form);
    if (error != std::errc{} || value > most) fail(fmt::format("a number of at most {}", most));
    cursor_ = stop;
    return value;
  }

  std::uint32_t stream_number(std::string_view form) {
    const auto stream = static_cast<std::uint32_t>(number(form, std::numeric_limits<std::uint32_t>::max()));
    streams_.insert(stream);
    return stream;
  }

  void expect_line_end(std::string_view form) const {
    if (cursor_ != line_end_) fail(form);
  }

  std::uint32_t live_id(std::uint64_t id) const {
    const std::uint32_t block = live_.find(id);
    if (block == kNotLive) fail(fmt::format("the id of a live block, and {} is not", id));
    return block;
  }

  // The id that was freed last, so that those in use stay few and near each other.
  std::uint32_t take_id(std::uint64_t bytes) {
    if (free_ids_.empty()) {
      if (bytes_of_.size() == kNotLive) fail("fewer than 2^32 - 1 blocks that live at once");
      bytes_of_.push_back(bytes);
      return static_cast<std::uint32_t>(bytes_of_.size() - 1);
    }
    const std::uint32_t id = free_ids_.back();
    free_ids_.pop_back();
    bytes_of_[id] = bytes;
    return id;
  }

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string_view line(start_, static_cast<std::size_t>(line_end_ - start_));
    fail_input(trace_.name, line_, line, expected);
  }

  std::string_view text_;
  const char* start_ = nullptr;  // of the line
  const char* cursor_ = nullptr;
  const char* line_end_ = nullptr;
  std::size_t line_ = 0;

  Trace trace_;
  LiveIds live_;
  std::vector<std::uint64_t> bytes_of_;  // by id
  std::vector<std::uint32_t> free_ids_;
  std::set<std::uint32_t> streams_;
  std::uint64_t live_bytes_ = 0;
};

void append_field(std::string& out, std::uint64_t value) {
  char digits[20];
  out += ' ';
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void append_operation(std::string& out, const TraceOperation& operation) {
  switch (operation.kind) {
    case TraceOperation::allocate:
      out += 'a';
      append_field(out, operation.id);
      append_field(out, operation.bytes);
      append_field(out, operation.stream);
      break;
    case TraceOperation::record:
      out += 'r';
      append_field(out, operation.id);
      append_field(out, operation.stream);
      break;
    case TraceOperation::free:
      out += 'f';
      append_field(out, operation.id);
      break;
    case TraceOperation::step:
      out += 'i';
      break;
  }
  out += '\n';
}

void append_comment(std::string& out, std::string_view comment) {
  out += "# ";
  for (char character : comment) {
    out += character;
    if (character == '\n') out += "# ";
  }
  out += '\n';
}

}  // namespace

Trace parse_trace(std::string_view text, std::string_view name) { return TraceParser(text, name).parse(); }

Trace read_trace(const std::string& path) { return parse_trace(read_input_file(path), path); }

void write_trace(const Trace& trace, std::ostream& out) {
  constexpr std::size_t chunk = std::size_t{1} << 16;
  std::string text;
  const auto flush_above = [&](std::size_t size) {
    if (text.size() <= size) return;
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    text.clear();
  };
  for (const std::string& comment : trace.comments) append_comment(text, comment);
  for (const TraceOperation& operation : trace.operations) {
    append_operation(text, operation);
    flush_above(chunk);
  }
  flush_above(0);
}

}  // namespace cistern
