#include "tools/usage.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <ostream>
#include <string_view>

#include "allocator/quoted_text.h"
#include "runtime/byte_size.h"

namespace cistern {
namespace {

// The whole text as a number; nothing if it is none, or none that a Number holds.
template <class Number, class... Base>
std::optional<Number> read_number(std::string_view text, Base... base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// A number of at least 0, as snapshots hold handles and parts of names.
std::optional<std::int64_t> read_natural(std::string_view text) {
  const auto number =
      text.starts_with("0x") ? read_number<std::int64_t>(text.substr(2), 16) : read_number<std::int64_t>(text);
  return number && *number >= 0 && text.find('-') == text.npos ? number : std::nullopt;
}

std::optional<std::pair<std::int64_t, std::int64_t>> read_pair(std::string_view text) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const auto first = read_natural(text.substr(0, comma));
  const auto second = read_natural(text.substr(std::min(comma + 1, text.size())));
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

std::string joined(const std::vector<std::string>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ", choices[i]);
  return text;
}

// An option whose text `read` makes a value of; nothing: not what was expected.
template <class Value, class Read>
CLI::Option* add_value(CLI::App& app, const std::string& name, std::optional<Value>& value,
                       const std::string& description, const std::string& expected, Read read) {
  const std::function<void(const std::string&)> assign = [&app, &value, name, expected, read](const std::string& text) {
    value = read(text);
    if (!value)
      throw InvalidArgument(fmt::format("{}: {} {}: expected {}", app.get_name(), name, quoted_text(text), expected));
  };
  return app.add_option_function(name, assign, description);
}

}  // namespace

bool parse_usage(CLI::App& app, const Arguments& arguments, const CommandStreams& streams) {
  // CLI11 takes a vector from its end.
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    streams.out << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(fmt::format("{}: {}; see {} --help", app.get_name(), error.what(), app.get_name()));
  }
  return true;
}

CLI::Option* add_whole_number(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                              const std::string& description, std::uint64_t least) {
  const auto read = [least](std::string_view text) {
    const auto number = read_number<std::uint64_t>(text);
    return number && *number >= least ? number : std::nullopt;
  };
  return add_value(app, name, value, description, fmt::format("a whole number from {}, below 2^64", least), read)
      ->type_name("N");
}

CLI::Option* add_share(CLI::App& app, const std::string& name, std::optional<double>& value,
                       const std::string& description) {
  const auto read = [](std::string_view text) {
    const auto number = read_number<double>(text);
    // Not a number is in no range.
    return number && *number >= 0 && *number <= 1 ? number : std::nullopt;
  };
  return add_value(app, name, value, description, "a number from 0 to 1", read)->type_name("SHARE");
}

CLI::Option* add_byte_size(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                           const std::string& description) {
  return add_value(app, name, value, description,
                   "a whole number of bytes below 2^64, or one with KiB, MiB, GiB or TiB", parse_byte_size)
      ->type_name("BYTES|40GiB");
}

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::optional<std::size_t>& value,
                        const std::string& description, const std::vector<std::string>& choices) {
  const auto read = [choices](std::string_view text) -> std::optional<std::size_t> {
    const auto found = std::ranges::find(choices, text);
    if (found == choices.end()) return std::nullopt;
    return static_cast<std::size_t>(found - choices.begin());
  };
  return add_value(app, name, value, fmt::format("{}: {}", description, joined(choices)), joined(choices), read)
      ->type_name("NAME");
}

CLI::Option* add_stream(CLI::App& app, const std::string& name, std::optional<std::int64_t>& value,
                        const std::string& description) {
  return add_value(app, name, value, description, "a stream's handle, a whole number from 0 or 0x and its digits",
                   read_natural)
      ->type_name("HANDLE");
}

CLI::Option* add_pool_id(CLI::App& app, const std::string& name,
                         std::optional<std::pair<std::int64_t, std::int64_t>>& value, const std::string& description) {
  return add_value(app, name, value, description, "a pool's two numbers with a comma between, such as 0,1", read_pair)
      ->type_name("N,N");
}

}  // namespace cistern
