#pragma once

// JSON values that know where in their text they stand, so that a reader can say which line
// does not fit. What a reader has no use for can be left out: a snapshot's history is many
// times larger than the rest.
//
// Thread safety: values and functions of their arguments alone.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cistern {

struct LocatedJson {
  enum class Type : std::uint8_t { null, boolean, integer, number, string, array, object };

  Type type = Type::null;
  bool boolean = false;
  std::size_t offset = 0;  // in the text, of a character on the value's (or its opening) line
  std::size_t size = 0;    // of an array: its elements, those left out included
  // Of an integer, one of the two: unsigned only above what is signed.
  std::variant<std::int64_t, std::uint64_t> integer = {};
  double number = 0;                       // of a number with fraction or exponent
  std::string text = {};                   // of a string
  std::vector<std::string> names = {};     // of an object, for each element
  std::vector<LocatedJson> elements = {};  // of an array or object

  // The member of that name, the last of several; nullptr if there is none.
  [[nodiscard]] const LocatedJson* find(std::string_view name) const;
  // In a few characters, for errors: a scalar as it is, [...] or {...} for the rest.
  [[nodiscard]] std::string brief() const;
};

// Parses `text`, called `name` in errors. Members whose names are in `skipped` are checked and
// keep their type and size, but not what they contain.
// Throws InvalidArgument "NAME:LINE: 'text': expected ..." for what is not JSON, or more than
// 64 levels deep.
[[nodiscard]] LocatedJson parse_located_json(std::string_view text, std::string_view name,
                                             std::span<const std::string_view> skipped);

}  // namespace cistern
