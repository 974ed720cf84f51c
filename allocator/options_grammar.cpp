#include "allocator/options_grammar.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include "allocator/quoted_text.h"

namespace cistern {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";
constexpr std::string_view kSeparators = ",:[]";

std::string without_white_space(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char character : text)
    if (kWhiteSpace.find(character) == std::string_view::npos) out += character;
  return out;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() const { return position_ == text_.size(); }
  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] std::string_view since(std::size_t start) const { return text_.substr(start, position_ - start); }
  // The key that errors name from here on.
  void set_key(std::string_view key) { key_ = key; }

  bool take(char separator) {
    if (at_end() || text_[position_] != separator) return false;
    ++position_;
    return true;
  }

  std::string_view word(std::string_view expected) {
    const std::size_t start = position_;
    position_ = std::min(text_.find_first_of(kSeparators, start), text_.size());
    if (position_ == start) fail(expected);
    return since(start);
  }

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string place =
        key_.empty() ? fmt::format("options {}", quoted_text(text_)) : fmt::format("option {}", quoted_text(key_));
    const std::string found = at_end() ? "the end of the text" : quoted_text(text_.substr(position_));
    throw InvalidArgument(fmt::format("{}: {}: expected {}", place, found, expected));
  }

 private:
  std::string_view text_;
  std::size_t position_ = 0;
  std::string_view key_;
};

OptionItem parse_item(Scanner& scanner) {
  OptionItem item;
  item.name = scanner.word("a name:value pair of the list");
  if (!scanner.take(':')) scanner.fail(fmt::format("':' and a value after {}", quoted_text(item.name)));
  item.value = scanner.word(fmt::format("a value after {}", quoted_text(item.name + ':')));
  return item;
}

void parse_value(Scanner& scanner, OptionPair& pair) {
  const std::size_t start = scanner.position();
  pair.is_list = scanner.take('[');
  if (pair.is_list) {
    do pair.items.push_back(parse_item(scanner));
    while (scanner.take(','));
    if (!scanner.take(']')) scanner.fail("',' or ']' in the list");
  } else {
    scanner.word("a value, or a list in [ ]");
  }
  pair.value = scanner.since(start);
}

}  // namespace

std::vector<OptionPair> parse_option_pairs(std::string_view text) {
  const std::string compact = without_white_space(text);
  Scanner scanner(compact);
  std::vector<OptionPair> pairs;
  while (!scanner.at_end()) {
    scanner.set_key({});
    const std::string_view key = scanner.word("a key");
    scanner.set_key(key);
    if (!scanner.take(':')) scanner.fail("':' and a value, as in key:value");
    OptionPair& pair = pairs.emplace_back();
    pair.key = key;
    parse_value(scanner, pair);
    if (!scanner.at_end() && !scanner.take(',')) scanner.fail("',' before the next key");
  }
  return pairs;
}

}  // namespace cistern
