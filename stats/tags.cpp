#include "stats/tags.h"

#include <cistern/error.h>

#include "stats/utf8.h"

#include <fmt/format.h>

#include <algorithm>

namespace cistern {
namespace {

bool is_control(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20 || byte == 0x7F;
}

void require_name(std::string_view name) {
  if (name.empty()) throw InvalidArgument("the name of a tag is empty: expected 1 to 255 bytes");
  if (name.size() > TagRegistry::kLongestName)
    throw InvalidArgument(
        fmt::format("the name of a tag is {} bytes long: expected 1 to {}", name.size(), TagRegistry::kLongestName));
  if (!is_utf8(name) || std::any_of(name.begin(), name.end(), is_control))
    throw InvalidArgument(
        fmt::format("the name of a tag, of {} bytes, is no UTF-8 or has control characters: expected text of one line",
                    name.size()));
}

}  // namespace

constinit thread_local TagId current_tag_of_thread = kUntagged;

TagId TagRegistry::intern(std::string_view name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
  }
  require_name(name);
  const std::lock_guard lock(mutex_);
  if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
  if (names_.size() == bound_)
    throw InvalidArgument(
        fmt::format("tag '{}': {} names are in use already, as many as there can be", name, names_.size()));
  names_.emplace_back(name);
  try {
    numbers_.emplace(names_.back(), static_cast<TagId>(names_.size()));
  } catch (...) {
    names_.pop_back();
    throw;
  }
  return static_cast<TagId>(names_.size());
}

TagId TagRegistry::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto known = numbers_.find(name);
  return known == numbers_.end() ? kUntagged : known->second;
}

const std::string& TagRegistry::name(TagId tag) const {
  if (tag == kUntagged) return unnamed_;
  const std::lock_guard lock(mutex_);
  return names_[tag - std::size_t{1}];
}

std::vector<std::string> TagRegistry::names() const {
  const std::lock_guard lock(mutex_);
  return {names_.begin(), names_.end()};
}

std::size_t TagRegistry::size() const {
  const std::lock_guard lock(mutex_);
  return names_.size();
}

TagRegistry& tag_registry() {
  static TagRegistry& registry = *new TagRegistry();
  return registry;
}

}  // namespace cistern
