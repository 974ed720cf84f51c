#include "tools/located_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "allocator/quoted_text.h"
#include "tools/input_file.h"

namespace cistern {
namespace {

constexpr std::size_t kMostLevels = 64;

// Reads the text for the parser and tells how far it is: the parser's own events do not.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// What the parser expected, from its message: "[name] [where: ]syntax error while parsing X -
// what is wrong; last read: 'text'; expected Y". Text that was read comes only after "last read".
std::string expectation(std::string_view message) {
  constexpr std::string_view expected = "; expected ", name = "] ", reason = " - ";
  const std::size_t read = message.find("; last read: ");
  const std::size_t found = message.find(expected);
  if (read == std::string_view::npos && found != std::string_view::npos)
    return std::string(message.substr(found + expected.size()));
  message = message.substr(0, read);
  for (std::string_view lead : {name, reason})
    if (const std::size_t start = message.find(lead); start != std::string_view::npos)
      message.remove_prefix(start + lead.size());
  return fmt::format("valid JSON ({})", message.substr(0, 100));
}

class TreeBuilder {
 public:
  using Json = nlohmann::json;

  TreeBuilder(std::string_view text, std::string_view name, std::span<const std::string_view> skipped)
      : text_(text), name_(name), skipped_(skipped), reached_(text.data()) {}

  LocatedJson build() {
    const CountingIterator first(text_.data(), &reached_);
    const CountingIterator last(text_.data() + text_.size(), &reached_);
    Json::sax_parse(first, last, this);
    return std::move(root_);
  }

  // The parser's events. It goes on while they return true.
  bool null() { return add({}); }
  bool boolean(bool value) { return add({.type = LocatedJson::Type::boolean, .boolean = value}); }
  bool number_integer(std::int64_t value) { return add({.type = LocatedJson::Type::integer, .integer = value}); }
  bool number_unsigned(std::uint64_t value) {
    LocatedJson json{.type = LocatedJson::Type::integer};
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      json.integer = static_cast<std::int64_t>(value);
    else
      json.integer = value;
    return add(std::move(json));
  }
  bool number_float(double value, const std::string& /*digits*/) {
    return add({.type = LocatedJson::Type::number, .number = value});
  }
  bool string(std::string& value) { return add({.type = LocatedJson::Type::string, .text = std::move(value)}); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // never in a text
  bool start_object(std::size_t /*elements*/) { return open(LocatedJson::Type::object); }
  bool start_array(std::size_t /*elements*/) { return open(LocatedJson::Type::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (depth_in_skipped_ == 0) key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) {
    fail_at(std::min(position == 0 ? 0 : position - 1, text_.size()), expectation(error.what()));
  }

 private:
  // The last character that was read is on the line of the value that it ended, even where a
  // line feed had to be read to end a number.
  [[nodiscard]] std::size_t offset() const {
    const auto read = static_cast<std::size_t>(reached_ - text_.data());
    return read == 0 ? 0 : read - 1;
  }

  // Quotes the text around the offset, on its line.
  [[noreturn]] void fail_at(std::size_t offset, std::string_view expected) const {
    constexpr std::size_t before = 40, after = 20;
    const std::size_t line_start = offset == 0 ? 0 : text_.find_last_of('\n', offset - 1) + 1;
    const std::size_t start = std::max(line_start, offset > before ? offset - before : 0);
    const std::size_t end = std::min(text_.find('\n', offset), offset + after);
    fail_input(name_, line_of(text_, offset), text_.substr(start, end - start), expected);
  }

  bool add(LocatedJson value) {
    if (depth_in_skipped_ == 0)
      place(std::move(value));
    else
      count_in_skipped();
    return true;
  }

  bool open(LocatedJson::Type type) {
    if (depth_in_skipped_ > 0) {
      count_in_skipped();
      ++depth_in_skipped_;
      return true;
    }
    const bool skipped = !open_.empty() && open_.back()->type == LocatedJson::Type::object &&
                         std::find(skipped_.begin(), skipped_.end(), key_) != skipped_.end();
    LocatedJson& opened = place({.type = type});
    if (open_.size() == kMostLevels) fail_at(opened.offset, fmt::format("at most {} levels", kMostLevels));
    open_.push_back(&opened);
    depth_in_skipped_ = skipped ? 1 : 0;
    return true;
  }

  bool close() {
    if (depth_in_skipped_ > 0) --depth_in_skipped_;
    if (depth_in_skipped_ == 0) open_.pop_back();
    return true;
  }

  void count_in_skipped() {
    if (depth_in_skipped_ == 1) ++open_.back()->size;
  }

  // Puts the value where it belongs. An open value's siblings come only after it is closed, so
  // that the pointers to those that are open stay good.
  LocatedJson& place(LocatedJson value) {
    value.offset = offset();
    if (open_.empty()) return root_ = std::move(value);
    LocatedJson& parent = *open_.back();
    ++parent.size;
    if (parent.type == LocatedJson::Type::object) parent.names.push_back(std::move(key_));
    return parent.elements.emplace_back(std::move(value));
  }

  std::string_view text_;
  std::string_view name_;
  std::span<const std::string_view> skipped_;
  const char* reached_;
  LocatedJson root_;
  std::vector<LocatedJson*> open_;
  std::size_t depth_in_skipped_ = 0;  // 0: outside; 1: directly in a skipped value
  std::string key_;
};

}  // namespace

const LocatedJson* LocatedJson::find(std::string_view name) const {
  const auto found = std::find(names.rbegin(), names.rend(), name);
  return found == names.rend() ? nullptr : &elements[static_cast<std::size_t>(names.rend() - found) - 1];
}

std::string LocatedJson::brief() const {
  switch (type) {
    case Type::null:
      return "null";
    case Type::boolean:
      return boolean ? "true" : "false";
    case Type::integer:
      return std::visit([](auto value) { return fmt::format("{}", value); }, integer);
    case Type::number:
      return fmt::format("{}", number);
    case Type::string:
      return fmt::format("\"{}\"", text);
    case Type::array:
      return size == 0 ? "[]" : "[...]";
    case Type::object:
      break;
  }
  return size == 0 ? "{}" : "{...}";
}

LocatedJson parse_located_json(std::string_view text, std::string_view name,
                               std::span<const std::string_view> skipped) {
  return TreeBuilder(text, name, skipped).build();
}

}  // namespace cistern
