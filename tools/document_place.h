#pragma once

// A value of a Document and the way to it, e.g. segments[3].blocks[0].size: what a reader that
// checks a file says where something does not fit.
//
// Thread safety: as a Document's.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "tools/document.h"
#include "tools/input_file.h"

namespace cistern {

// Cheap to make, on the stack of whoever walks the document: it refers to the place around it.
class DocumentPlace {
 public:
  // The whole document, called `name` in errors. Both must outlive the place and those inside it.
  DocumentPlace(const Document& document, std::string_view name)
      : document_(&document), value_(document.root()), name_(name) {}

  [[nodiscard]] Value value() const { return value_; }
  [[nodiscard]] const Document& document() const { return *document_; }
  [[nodiscard]] bool is(Value::Kind kind) const { return value_.is(kind); }

  // Throws InvalidArgument "NAME: 'PATH: value': expected EXPECTED".
  [[noreturn]] void fail(std::string_view expected) const {
    const std::string way = path();
    fail_input(name_, way + (way.empty() ? "" : ": ") + brief(), expected);
  }

  // The value as what it must be; fail() otherwise.
  [[nodiscard]] std::int64_t integer(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                                     std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] std::uint64_t address() const;
  [[nodiscard]] double number() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::string_view text() const;
  // Two integers of at least 0.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> pair() const;
  // That it is a list or a tuple, or an object.
  const DocumentPlace& list() const;
  const DocumentPlace& object() const;

  // The elements of a list, or of an object of the name: fail() if it is no such thing.
  [[nodiscard]] std::size_t size() const { return document_->elements(list().value_).size(); }
  [[nodiscard]] DocumentPlace operator[](std::size_t index) const& {
    return {*this, document_->elements(value_)[index], {}, index};
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t index = 0; index < size(); ++index) visit((*this)[index]);
  }

  // The member of that name; fail() on this place if there is none. Requires: an object.
  [[nodiscard]] DocumentPlace member(std::string_view name) const&;
  [[nodiscard]] bool has(std::string_view name) const { return document_->find(value_, name) != nullptr; }
  // A member that was found, whose value is `value`.
  [[nodiscard]] DocumentPlace inside(std::string_view name, Value value) const& { return {*this, value, name, 0}; }

 private:
  DocumentPlace(const DocumentPlace& parent, Value value, std::string_view key, std::size_t index)
      : document_(parent.document_), value_(value), name_(parent.name_), parent_(&parent), key_(key), index_(index) {}
  [[nodiscard]] std::string path() const;
  // In a few characters: a scalar as it is, [...] or {...} for the rest.
  [[nodiscard]] std::string brief() const;

  const Document* document_;
  Value value_;
  std::string_view name_;
  const DocumentPlace* parent_ = nullptr;
  std::string_view key_ = {};  // empty: an element, at index_
  std::size_t index_ = 0;
};

}  // namespace cistern
