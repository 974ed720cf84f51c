#include "allocator/options_values.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "allocator/quoted_text.h"

namespace cistern {
namespace {

constexpr std::uint64_t kMostMebibytes = std::uint64_t{std::numeric_limits<std::int64_t>::max()} >> 20;

// from_chars takes neither white space nor a sign for unsigned types, and tells what is left over.
template <class Number>
bool parse_whole(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end && !text.empty();
}

}  // namespace

void fail_option(const OptionPair& pair, std::string_view expected) {
  throw InvalidArgument(
      fmt::format("option {}: {}: expected {}", quoted_text(pair.key), quoted_text(pair.value), expected));
}

bool parse_integer(std::string_view text, std::uint64_t& number) { return parse_whole(text, number); }

bool parse_number(std::string_view text, double& number) { return parse_whole(text, number) && std::isfinite(number); }

const std::string& single_value(const OptionPair& pair, std::string_view expected) {
  if (pair.is_list) fail_option(pair, fmt::format("{}, not a list", expected));
  return pair.value;
}

bool boolean_value(const OptionPair& pair) {
  const std::string& value = single_value(pair, "True or False");
  if (value != "True" && value != "False") fail_option(pair, "True or False");
  return value == "True";
}

std::uint64_t integer_value(const OptionPair& pair, std::uint64_t least, std::uint64_t most, std::string_view unit) {
  const std::string expected = fmt::format("an integer{}{} from {} to {}", unit.empty() ? "" : " ", unit, least, most);
  std::uint64_t number = 0;
  if (!parse_integer(single_value(pair, expected), number) || number < least || number > most)
    fail_option(pair, expected);
  return number;
}

std::size_t mebibytes_value(const OptionPair& pair, std::uint64_t least) {
  return integer_value(pair, least, kMostMebibytes, "of MiB") << 20;
}

double number_value(const OptionPair& pair, std::string_view expected) {
  double number = 0;
  if (!parse_number(single_value(pair, expected), number)) fail_option(pair, expected);
  return number;
}

std::size_t choice_value(const OptionPair& pair, std::span<const std::string_view> choices) {
  const std::string expected = fmt::format("{}", fmt::join(choices, " or "));
  const std::string& value = single_value(pair, expected);
  for (std::size_t index = 0; index < choices.size(); ++index)
    if (value == choices[index]) return index;
  fail_option(pair, expected);
}

}  // namespace cistern
