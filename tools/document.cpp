#include "tools/document.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace cistern {
namespace {

using Kind = Value::Kind;

// What fits beside the kind in a word.
constexpr std::int64_t kMostSmall = (std::int64_t{1} << 59) - 1;
constexpr std::int64_t kLeastSmall = -kMostSmall - 1;

// Few names: comparing each with each is faster than sorting.
constexpr std::size_t kFewNames = 16;

// A long text costs as much as many values where it is written out.
constexpr std::size_t kTextBytesAValue = 16;

std::uint32_t checked_size(std::size_t size) {
  if (size > std::numeric_limits<std::uint32_t>::max()) throw std::length_error("a container of 2^32 values or more");
  return static_cast<std::uint32_t>(size);
}

std::uint64_t hash_of(Kind kind, std::span<const Value> content) {
  const std::string_view bytes(reinterpret_cast<const char*>(content.data()), content.size_bytes());
  return seeded_hash(bytes) + static_cast<std::uint64_t>(kind);
}

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

// Measures each container once, below at most kMostLevels others.
class Measurer {
 public:
  explicit Measurer(const Document& document) : document_(document), extents_(document.containers()) {}

  DocumentExtent measure(Value value, std::size_t levels_above) {
    if (value.is(Kind::string)) return {0, 1 + document_.text(value).size() / kTextBytesAValue};
    if (!value.is_container()) return {0, 1};
    DocumentExtent& known = extents_[document_.container_number(value)];
    if (known.values != 0) return known;
    if (levels_above == Document::kMostLevels) return {Document::kMostLevels + 1, 1};
    DocumentExtent extent{0, 1};
    for (const Value inside : document_.elements(value)) {
      const DocumentExtent part = measure(inside, levels_above + 1);
      extent.levels = std::max(extent.levels, part.levels);
      extent.values = saturating_sum(extent.values, part.values);
      // What lies deeper is not accepted, and need not be measured.
      if (levels_above + extent.levels > Document::kMostLevels) return {Document::kMostLevels + 1, 1};
    }
    ++extent.levels;
    return known = extent;
  }

 private:
  const Document& document_;
  std::vector<DocumentExtent> extents_;
};

// Whether a name occurs twice, and is to be looked for more closely.
bool repeats_names(std::span<const Value> content) {
  const Members members(content);
  if (members.size() <= kFewNames) {
    for (std::size_t i = 1; i < members.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (members[i].name == members[j].name) return true;
    return false;
  }
  std::vector<std::uint64_t> names;
  names.reserve(members.size());
  for (const Member member : members) names.push_back(std::bit_cast<std::uint64_t>(member.name));
  std::ranges::sort(names);
  return std::ranges::adjacent_find(names) != names.end();
}

}  // namespace

Document::Document() : memory_(std::make_unique<std::pmr::monotonic_buffer_resource>()) {}
Document::~Document() = default;
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;

std::optional<std::int64_t> Document::as_signed(Value integer) const {
  if (!integer.is_large()) return integer.payload();
  const std::uint64_t bits = large_integers_[integer.index() >> 1];
  const bool is_negative = (integer.index() & 1) != 0;
  if (!is_negative && bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::int64_t>(bits);
}

std::optional<std::uint64_t> Document::as_unsigned(Value integer) const {
  if (integer.is_large())
    return (integer.index() & 1) != 0 ? std::nullopt : std::optional(large_integers_[integer.index() >> 1]);
  if (integer.payload() < 0) return std::nullopt;
  return static_cast<std::uint64_t>(integer.payload());
}

std::span<const Value> Document::elements(Value sequence) const {
  const Container& found = container(sequence);
  return {found.content, found.size};
}

Members Document::members(Value object) const { return Members(elements(object)); }

std::optional<Value> Document::find_string(std::string_view text) const {
  const auto found = text_numbers_.find(text);
  if (found == text_numbers_.end()) return std::nullopt;
  return Value(Kind::string, static_cast<std::int64_t>(found->second));
}

const Value* Document::find(Value object, Value name) const {
  const Container& found = container(object);
  for (std::size_t at = 0; at < found.size; at += 2)
    if (found.content[at] == name) return found.content + at + 1;
  return nullptr;
}

const Value* Document::find(Value object, std::string_view name) const {
  const std::optional<Value> known = find_string(name);
  return known ? find(object, *known) : nullptr;
}

DocumentExtent Document::extent() const { return Measurer(*this).measure(root_, 0); }

Value Document::make_integer(std::int64_t value) {
  if (value >= kLeastSmall && value <= kMostSmall) return {Kind::integer, value};
  return add_large(static_cast<std::uint64_t>(value), value < 0);
}

Value Document::make_unsigned(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(kMostSmall)) return {Kind::integer, static_cast<std::int64_t>(value)};
  return add_large(value, false);
}

Value Document::make_number(double value) {
  numbers_.push_back(value);
  return {Kind::number, static_cast<std::int64_t>(numbers_.size() - 1)};
}

Value Document::make_string(std::string_view text) {
  const auto found = text_numbers_.find(text);
  if (found != text_numbers_.end()) return {Kind::string, static_cast<std::int64_t>(found->second)};
  auto* characters = static_cast<char*>(memory_->allocate(std::max<std::size_t>(text.size(), 1), 1));
  std::ranges::copy(text, characters);
  const std::size_t number = texts_.size();
  texts_.emplace_back(characters, text.size());
  text_numbers_.emplace(texts_.back(), number);
  return {Kind::string, static_cast<std::int64_t>(number)};
}

Value Document::make_container(Kind kind, std::span<const Value> content) {
  containers_.push_back(new_container(content));
  if (kind == Kind::object) drop_repeated_names(containers_.back());
  return {kind, static_cast<std::int64_t>(containers_.size() - 1)};
}

Value Document::make_shared_container(Kind kind, std::span<const Value> content) {
  const std::uint64_t hash = hash_of(kind, content);
  const auto found = shared_.find(hash);
  // Different content of one hash is rare, and need not be shared.
  if (found != shared_.end() && found->second.kind() == kind && std::ranges::equal(elements(found->second), content))
    return found->second;
  const Value made = make_container(kind, content);
  shared_.emplace(hash, made);
  return made;
}

void Document::append(Value value, std::span<const Value> content) {
  Container& grown = container(value);
  const std::uint32_t size = checked_size(grown.size + content.size());
  if (size > grown.capacity) {
    // Twice as much, so that what is moved is less than what is kept; but the first time exactly.
    const std::size_t capacity =
        grown.size == 0 ? size : std::min<std::size_t>(std::max<std::size_t>(size, 2ull * grown.capacity), UINT32_MAX);
    auto* moved = static_cast<Value*>(memory_->allocate(capacity * sizeof(Value), alignof(Value)));
    std::copy_n(grown.content, grown.size, moved);
    grown.content = moved;
    grown.capacity = static_cast<std::uint32_t>(capacity);
  }
  std::ranges::copy(content, grown.content + grown.size);
  const bool was_empty = grown.size == 0;
  grown.size = size;
  if (!value.is(Kind::object)) return;
  if (was_empty)
    drop_repeated_names(grown);
  else
    appended_objects_.push_back(value);
}

void Document::settle() {
  std::ranges::sort(appended_objects_, {}, [](Value object) { return object.index(); });
  appended_objects_.erase(std::unique(appended_objects_.begin(), appended_objects_.end()), appended_objects_.end());
  for (const Value object : appended_objects_) drop_repeated_names(container(object));
  appended_objects_ = {};
}

void Document::replace_member(Value object, Value name, Member replacement) {
  Container& changed = container(object);
  for (std::size_t at = 0; at < changed.size; at += 2)
    if (changed.content[at] == name) {
      changed.content[at] = replacement.name;
      changed.content[at + 1] = replacement.value;
    }
}

void Document::remove_member(Value object, Value name) {
  Container& changed = container(object);
  for (std::size_t at = 0; at < changed.size; at += 2) {
    if (changed.content[at] != name) continue;
    std::copy(changed.content + at + 2, changed.content + changed.size, changed.content + at);
    changed.size -= 2;
    return;
  }
}

Value Document::add_large(std::uint64_t bits, bool is_negative) {
  large_integers_.push_back(bits);
  const std::size_t index = large_integers_.size() - 1;
  return {Kind::integer, static_cast<std::int64_t>((index << 1) | (is_negative ? 1 : 0)), Value::kLarge};
}

Document::Container Document::new_container(std::span<const Value> content) {
  const std::uint32_t size = checked_size(content.size());
  if (size == 0) return {nullptr, 0, 0};
  auto* kept = static_cast<Value*>(memory_->allocate(content.size_bytes(), alignof(Value)));
  std::ranges::copy(content, kept);
  return {kept, size, size};
}

// The first place and the last value of each name, as Python does.
void Document::drop_repeated_names(Container& object) {
  if (!repeats_names({object.content, object.size})) return;
  std::unordered_map<std::uint64_t, std::uint32_t, SeededHash> place_of;
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at < object.size; at += 2) {
    const auto [place, is_new] = place_of.emplace(std::bit_cast<std::uint64_t>(object.content[at]), kept);
    object.content[place->second] = object.content[at];
    object.content[place->second + 1] = object.content[at + 1];
    if (is_new) kept += 2;
  }
  object.size = kept;
}

}  // namespace cistern
