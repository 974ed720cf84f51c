#include "tools/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

namespace cistern {
namespace {

using Kind = Value::Kind;

constexpr std::array<std::string_view, 4> kSharedBelow{"forward_frames", "frames", "pool_id", "segment_pool_id"};

// Hands the source to the parser, byte by byte.
class SourceIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  // The end, where `source` is null.
  explicit SourceIterator(ByteSource* source) : source_(source) {}
  char operator*() const { return source_->peek(); }
  SourceIterator& operator++() {
    source_->skip();
    return *this;
  }
  SourceIterator operator++(int) {
    const SourceIterator before = *this;
    ++*this;
    return before;
  }
  // The parser compares with the end alone.
  bool operator==(const SourceIterator& /*end*/) const { return source_ == nullptr || source_->at_end(); }

 private:
  ByteSource* source_;
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

class DocumentBuilder {
 public:
  using Json = nlohmann::json;

  explicit DocumentBuilder(ByteSource& source) : source_(source) {}

  Document build() {
    Json::sax_parse(SourceIterator(&source_), SourceIterator(nullptr), this);
    document_.set_root(pending_.at(0));
    return std::move(document_);
  }

  // The parser's events. It goes on while they return true.
  bool null() { return add({}); }
  bool boolean(bool value) { return add(document_.make_boolean(value)); }
  bool number_integer(std::int64_t value) { return add(document_.make_integer(value)); }
  bool number_unsigned(std::uint64_t value) { return add(document_.make_unsigned(value)); }
  bool number_float(double value, const std::string& digits) {
    // The parser makes a fraction of an integer that is too large.
    if (digits.find_first_of(".eE") == std::string::npos)
      source_.fail(fmt::format("an integer from -2^63 to 2^64 - 1, not {}", digits.substr(0, 40)));
    return add(document_.make_number(value));
  }
  bool string(std::string& value) { return add(document_.make_string(value)); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // never in a text
  bool start_object(std::size_t /*elements*/) { return open(Kind::object); }
  bool start_array(std::size_t /*elements*/) { return open(Kind::list); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    next_is_shared_ = std::ranges::find(kSharedBelow, name) != kSharedBelow.end();
    pending_.push_back(document_.make_string(name));
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const nlohmann::detail::exception& error) {
    source_.fail(expectation(error.what()));
  }

 private:
  struct Level {
    Kind kind;
    bool is_shared;
    std::size_t start;  // of its content, in pending_
  };

  bool add(Value value) {
    pending_.push_back(value);
    next_is_shared_ = false;
    return true;
  }

  bool open(Kind kind) {
    if (levels_.size() == Document::kMostLevels) source_.fail(fmt::format("at most {} levels", Document::kMostLevels));
    const bool is_shared = next_is_shared_ || (!levels_.empty() && levels_.back().is_shared);
    levels_.push_back({kind, is_shared, pending_.size()});
    next_is_shared_ = false;
    return true;
  }

  bool close() {
    const Level level = levels_.back();
    levels_.pop_back();
    const std::span<const Value> content = std::span<const Value>(pending_).subspan(level.start);
    const Value made = level.is_shared ? document_.make_shared_container(level.kind, content)
                                       : document_.make_container(level.kind, content);
    pending_.resize(level.start);
    return add(made);
  }

  ByteSource& source_;
  Document document_;
  std::vector<Value> pending_;  // of the open containers; of objects, names and values in turn
  std::vector<Level> levels_;
  bool next_is_shared_ = false;  // by the name that has just been read
};

}  // namespace

Document read_json_document(ByteSource& source) { return DocumentBuilder(source).build(); }

}  // namespace cistern
