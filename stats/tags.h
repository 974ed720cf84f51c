#pragma once

// Tags: names that say what memory is for, interned as numbers of 16 bits, and the calling
// thread's current one.
//
// Thread safety: everything here may be called from any thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cistern {

using TagId = std::uint16_t;
// No tag: outside every TagScope.
inline constexpr TagId kUntagged = 0;

// The tag of the calling thread's innermost TagScope, which alone writes it. Initial-exec: read on
// the path of every allocation, where the call that a shared library makes otherwise would show.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local TagId current_tag_of_thread;
[[nodiscard]] inline TagId current_tag() noexcept { return current_tag_of_thread; }

// Names and their numbers, from 1 in the order in which they came. A number is never given back, so
// that what carries one can always be named.
class TagRegistry {
 public:
  static constexpr std::size_t kBound = 65535;
  static constexpr std::size_t kLongestName = 255;

  explicit TagRegistry(std::size_t bound = kBound) : bound_(bound) {}

  // The number of a name, given to it at its first use. Throws InvalidArgument for a name that is
  // empty, longer than kLongestName bytes, no UTF-8 or with control characters, and for one name
  // more than the bound; std::bad_alloc. Nothing is interned then.
  [[nodiscard]] TagId intern(std::string_view name);
  // The number of a name that was interned, or kUntagged.
  [[nodiscard]] TagId find(std::string_view name) const;
  // The name, which lives as long as the registry; "" for kUntagged. Requires: an interned number.
  [[nodiscard]] const std::string& name(TagId tag) const;
  // All names, from number 1.
  [[nodiscard]] std::vector<std::string> names() const;
  // How many there are: the numbers in use are 1 to this.
  [[nodiscard]] std::size_t size() const;

  // For fork: nothing else may be called between the two.
  void lock_for_fork() const { mutex_.lock(); }
  void unlock_after_fork() const { mutex_.unlock(); }

 private:
  const std::size_t bound_;
  const std::string unnamed_;
  mutable std::mutex mutex_;
  std::deque<std::string> names_;                        // of 1, 2, ...
  std::unordered_map<std::string_view, TagId> numbers_;  // views of those
};

// The process's own, never destroyed: blocks outlive static objects.
[[nodiscard]] TagRegistry& tag_registry();

}  // namespace cistern
