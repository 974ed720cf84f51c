#pragma once

// A tree of values as files hold it, nothing lost: every key in its order, integers and fractions apart,
// lists and tuples apart, and what several places share, shared. Compact: a value is a word.
//
// Thread safety: a Document may be read from any number of threads; while it is built, by one.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/seeded_hash.h"

namespace cistern {

// One value of a Document, which gives what it means. Equal ones are the same scalar, the same text
// or the very same container; but numbers that are no small integers may be equal and compare unequal.
class Value {
 public:
  enum class Kind : std::uint8_t { null, boolean, integer, number, string, list, tuple, object };

  constexpr Value() = default;
  [[nodiscard]] Kind kind() const { return static_cast<Kind>(word_ & 0x7); }
  [[nodiscard]] bool is(Kind kind_asked) const { return kind() == kind_asked; }
  [[nodiscard]] bool is_sequence() const { return is(Kind::list) || is(Kind::tuple); }
  [[nodiscard]] bool is_container() const { return is_sequence() || is(Kind::object); }
  friend bool operator==(Value, Value) = default;

 private:
  friend class Document;
  // Four bits of kind (of integers, the fourth: a large one, in a table) and sixty of value or index.
  static constexpr std::uint64_t kLarge = 0x8;
  Value(Kind kind, std::int64_t payload, std::uint64_t large = 0)
      : word_((static_cast<std::uint64_t>(payload) << 4) | large | static_cast<std::uint64_t>(kind)) {}
  [[nodiscard]] std::int64_t payload() const { return static_cast<std::int64_t>(word_) >> 4; }
  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(word_ >> 4); }
  [[nodiscard]] bool is_large() const { return (word_ & kLarge) != 0; }

  std::uint64_t word_ = 0;
};

// A member of an object; `name` is a string.
struct Member {
  Value name;
  Value value;
};

// An object's members, in order.
class Members {
 public:
  class Iterator {
   public:
    explicit Iterator(const Value* at) : at_(at) {}
    Member operator*() const { return {at_[0], at_[1]}; }
    Iterator& operator++() {
      at_ += 2;
      return *this;
    }
    friend bool operator==(Iterator, Iterator) = default;

   private:
    const Value* at_;
  };

  // Names and values in turn.
  explicit Members(std::span<const Value> content) : content_(content) {}
  [[nodiscard]] std::size_t size() const { return content_.size() / 2; }
  [[nodiscard]] Member operator[](std::size_t index) const { return {content_[2 * index], content_[2 * index + 1]}; }
  [[nodiscard]] Iterator begin() const { return Iterator(content_.data()); }
  [[nodiscard]] Iterator end() const { return Iterator(content_.data() + content_.size()); }

 private:
  std::span<const Value> content_;
};

// How large a Document is.
struct DocumentExtent {
  std::size_t levels = 0;  // of containers; more than kMostLevels where one is in itself
  // Where nothing is shared, and a text counts as one and one more for each 16 bytes; at most 2^64 - 1.
  std::uint64_t values = 0;
};

class Document {
 public:
  // Levels of containers inside each other that readers accept: PyTorch's snapshots have 7.
  static constexpr std::size_t kMostLevels = 64;

  Document();
  ~Document();
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;

  [[nodiscard]] Value root() const { return root_; }
  void set_root(Value value) { root_ = value; }

  // What a value is. Requires: it is of that kind, and of this document.
  [[nodiscard]] bool boolean(Value value) const { return value.payload() != 0; }
  // Nothing if the integer is not of the type's range. Integers are -2^63 to 2^64 - 1.
  [[nodiscard]] std::optional<std::int64_t> as_signed(Value integer) const;
  [[nodiscard]] std::optional<std::uint64_t> as_unsigned(Value integer) const;
  [[nodiscard]] double number(Value value) const { return numbers_[value.index()]; }
  [[nodiscard]] std::string_view text(Value string) const { return texts_[string.index()]; }
  [[nodiscard]] std::span<const Value> elements(Value sequence) const;
  [[nodiscard]] Members members(Value object) const;

  // The string, if it occurs: to look for a member in many objects, without comparing texts.
  [[nodiscard]] std::optional<Value> find_string(std::string_view text) const;
  // The member of that name, nullptr if there is none. Cost: the object's members.
  [[nodiscard]] const Value* find(Value object, Value name) const;
  [[nodiscard]] const Value* find(Value object, std::string_view name) const;

  // How many containers there are, each named by a number below that.
  [[nodiscard]] std::size_t containers() const { return containers_.size(); }
  [[nodiscard]] std::size_t container_number(Value container) const { return container.index(); }

  // Of the root. Cost: every value, once.
  [[nodiscard]] DocumentExtent extent() const;

  // New values. A text is kept once, however often it is made.
  [[nodiscard]] Value make_boolean(bool value) const { return {Value::Kind::boolean, value ? 1 : 0}; }
  [[nodiscard]] Value make_integer(std::int64_t value);
  [[nodiscard]] Value make_unsigned(std::uint64_t value);
  [[nodiscard]] Value make_number(double value);
  [[nodiscard]] Value make_string(std::string_view text);
  // A list, a tuple, or an object of names and values in turn. Of a name that is repeated, the last value counts.
  [[nodiscard]] Value make_container(Value::Kind kind, std::span<const Value> content);
  // The same, or an equal one that was made so before: what many places have in common is kept once.
  [[nodiscard]] Value make_shared_container(Value::Kind kind, std::span<const Value> content);
  // Adds to a list's elements, or to an object's names and values. An object may have a name more than once until
  // settle(). Spans of the container become invalid.
  void append(Value container, std::span<const Value> content);
  // Ends appending to objects.
  void settle();

  // Changes members in place. The name must not be another member's.
  void replace_member(Value object, Value name, Member replacement);
  void remove_member(Value object, Value name);

 private:
  // Elements, or names and values in turn: `size` of them at `content`, where `capacity` fit.
  struct Container {
    Value* content;
    std::uint32_t size;
    std::uint32_t capacity;
  };
  [[nodiscard]] const Container& container(Value value) const { return containers_[value.index()]; }
  [[nodiscard]] Container& container(Value value) { return containers_[value.index()]; }
  Value add_large(std::uint64_t bits, bool is_negative);
  Container new_container(std::span<const Value> content);
  static void drop_repeated_names(Container& object);

  Value root_;
  // Strings and contents, never given back one by one; on the heap, so that a Document can move.
  std::unique_ptr<std::pmr::monotonic_buffer_resource> memory_;
  std::deque<Container> containers_;
  std::vector<Value> appended_objects_;
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, std::size_t, SeededHash> text_numbers_;
  std::unordered_map<std::uint64_t, Value> shared_;  // by a seeded hash of kind and content
  std::vector<double> numbers_;
  std::vector<std::uint64_t> large_integers_;
};

// How many values a file of `bytes` bytes may fill out to where nothing is shared: any that a person
// meant, and not so many that writing them would never end.
[[nodiscard]] constexpr std::uint64_t most_values_of(std::uint64_t bytes) {
  return (std::uint64_t{1} << 20) + 64 * bytes;
}

}  // namespace cistern
