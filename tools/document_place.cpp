#include "tools/document_place.h"

#include <fmt/format.h>

namespace cistern {
namespace {

using Kind = Value::Kind;

std::string integer_range(std::int64_t least, std::int64_t most) {
  if (most != std::numeric_limits<std::int64_t>::max()) return fmt::format("an integer from {} to {}", least, most);
  if (least != std::numeric_limits<std::int64_t>::min()) return fmt::format("an integer of at least {}", least);
  return "an integer";
}

}  // namespace

std::int64_t DocumentPlace::integer(std::int64_t least, std::int64_t most) const {
  const std::optional<std::int64_t> integer = is(Kind::integer) ? document_->as_signed(value_) : std::nullopt;
  if (!integer || *integer < least || *integer > most) fail(integer_range(least, most));
  return *integer;
}

std::uint64_t DocumentPlace::address() const {
  const std::optional<std::uint64_t> address = is(Kind::integer) ? document_->as_unsigned(value_) : std::nullopt;
  if (!address) fail(integer_range(0, std::numeric_limits<std::int64_t>::max()));
  return *address;
}

double DocumentPlace::number() const {
  if (is(Kind::number)) return document_->number(value_);
  if (!is(Kind::integer)) fail("a number");
  if (const auto integer = document_->as_signed(value_)) return static_cast<double>(*integer);
  return static_cast<double>(*document_->as_unsigned(value_));
}

bool DocumentPlace::boolean() const {
  if (!is(Kind::boolean)) fail("true or false");
  return document_->boolean(value_);
}

std::string_view DocumentPlace::text() const {
  if (!is(Kind::string)) fail("a string");
  return document_->text(value_);
}

std::pair<std::int64_t, std::int64_t> DocumentPlace::pair() const {
  if (size() != 2) fail("a list of two integers");
  return {(*this)[0].integer(0), (*this)[1].integer(0)};
}

const DocumentPlace& DocumentPlace::list() const {
  if (!value_.is_sequence()) fail("a list");
  return *this;
}

const DocumentPlace& DocumentPlace::object() const {
  if (!is(Kind::object)) fail("an object");
  return *this;
}

DocumentPlace DocumentPlace::member(std::string_view name) const& {
  const Value* found = document_->find(value_, name);
  if (found == nullptr) fail(fmt::format("the key \"{}\"", name));
  return inside(name, *found);
}

std::string DocumentPlace::path() const {
  if (parent_ == nullptr) return "";
  const std::string before = parent_->path();
  if (key_.empty()) return fmt::format("{}[{}]", before, index_);
  return fmt::format("{}{}{}", before, before.empty() ? "" : ".", key_);
}

std::string DocumentPlace::brief() const {
  switch (value_.kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return document_->boolean(value_) ? "true" : "false";
    case Kind::integer:
      if (const auto integer = document_->as_signed(value_)) return fmt::format("{}", *integer);
      return fmt::format("{}", *document_->as_unsigned(value_));
    case Kind::number:
      return fmt::format("{}", document_->number(value_));
    case Kind::string:
      return fmt::format("\"{}\"", document_->text(value_));
    case Kind::list:
    case Kind::tuple:
      return document_->elements(value_).empty() ? "[]" : "[...]";
    case Kind::object:
      break;
  }
  return document_->elements(value_).empty() ? "{}" : "{...}";
}

}  // namespace cistern
