#pragma once

// Whether two documents say the same, whatever their forms were.

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "tools/document.h"

namespace cistern {

// Lists and tuples of equal elements are equal, and objects of equal members in any order; an integer
// equals no fraction. 2^64 - 1 and -1 are equal: PyTorch's forms have only the second.
class DocumentEquality {
 public:
  DocumentEquality(const Document& a, const Document& b) : a_(a), b_(b) {}

  bool operator()(Value a, Value b) {
    if (a.is_sequence() != b.is_sequence()) return false;
    if (!a.is_sequence() && a.kind() != b.kind()) return false;
    switch (a.kind()) {
      case Value::Kind::null:
        return true;
      case Value::Kind::boolean:
        return a_.boolean(a) == b_.boolean(b);
      case Value::Kind::integer:
        return integer(a_, a) == integer(b_, b);
      case Value::Kind::number:
        return std::bit_cast<std::uint64_t>(a_.number(a)) == std::bit_cast<std::uint64_t>(b_.number(b));
      case Value::Kind::string:
        return a_.text(a) == b_.text(b);
      case Value::Kind::list:
      case Value::Kind::tuple:
        return once(a, b, [&] {
          return std::ranges::equal(a_.elements(a), b_.elements(b), [this](Value x, Value y) { return (*this)(x, y); });
        });
      case Value::Kind::object:
        break;
    }
    return once(a, b, [&] { return a_.members(a).size() == b_.members(b).size() && has_members_of(a, b); });
  }

  // Whether each member of `a`, but those called as in `left_out`, is in `b`.
  bool has_members_of(Value a, Value b, const std::set<std::string_view>& left_out = {}) {
    for (const Member member : a_.members(a)) {
      const std::string_view name = a_.text(member.name);
      if (left_out.contains(name)) continue;
      const Value* other = b_.find(b, name);
      if (other == nullptr || !(*this)(member.value, *other)) return false;
    }
    return true;
  }

 private:
  // Shared containers may be compared very often otherwise.
  template <class Compare>
  bool once(Value a, Value b, Compare&& compare) {
    const auto pair = std::pair(a_.container_number(a), b_.container_number(b));
    if (known_equal_.contains(pair)) return true;
    if (!compare()) return false;
    known_equal_.insert(pair);
    return true;
  }

  static std::uint64_t integer(const Document& document, Value value) {
    if (const auto number = document.as_signed(value)) return static_cast<std::uint64_t>(*number);
    return *document.as_unsigned(value);
  }

  const Document& a_;
  const Document& b_;
  std::set<std::pair<std::size_t, std::size_t>> known_equal_;
};

inline bool is_equal(const Document& a, const Document& b) { return DocumentEquality(a, b)(a.root(), b.root()); }

// The same of snapshots; the list of all stacks, and the version, are our JSON's alone.
inline bool is_same_snapshot(const Document& a, const Document& b) {
  const std::set<std::string_view> ours{"stacks", "schema_version"};
  return DocumentEquality(a, b).has_members_of(a.root(), b.root(), ours) &&
         DocumentEquality(b, a).has_members_of(b.root(), a.root(), ours);
}

}  // namespace cistern
