#pragma once

// The budgets of one heap: limits on live bytes, by tag or for all.
//
// They compare what the recorder counts as live: the one place where a figure decides (see
// docs/decisions/0013-budgets-read-the-live-bytes.md).
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include <cistern/scope.h>

#include "stats/tags.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cistern {

struct BudgetLimits {
  TagId tag = kUntagged;  // kUntagged: of the whole device
  std::string tag_name;
  std::size_t soft_bytes = kUnlimited;
  std::size_t hard_bytes = kUnlimited;
  std::function<void(const BudgetCrossing&)> on_soft;
};

// What is live of one tag, and of all.
struct LiveBytes {
  std::size_t of_tag = 0;
  std::size_t of_all = 0;
};

class Budgets {
 public:
  struct Entry {
    std::uint64_t number;  // ascending
    std::shared_ptr<const BudgetLimits> limits;
  };

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // Throws std::bad_alloc, unchanged.
  void add(std::shared_ptr<const BudgetLimits> limits) {
    entries_.push_back({last_ + 1, std::move(limits)});
    ++last_;
  }
  // Returns the limits, to be let go without the lock; null if they are not here.
  std::shared_ptr<const BudgetLimits> remove(const BudgetLimits* limits) noexcept {
    const auto place = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.limits.get() == limits; });
    if (place == entries_.end()) return nullptr;
    std::shared_ptr<const BudgetLimits> removed = std::move(place->limits);
    entries_.erase(place);
    return removed;
  }

  // The first whose hard limit `bytes` more for the tag would pass; null: none.
  [[nodiscard]] const BudgetLimits* refusing(TagId tag, std::size_t bytes, const LiveBytes& live) const {
    for (const Entry& entry : entries_)
      if (concerns(*entry.limits, tag) && live_of(*entry.limits, live) + bytes > entry.limits->hard_bytes)
        return entry.limits.get();
    return nullptr;
  }
  // The first after number `last` whose soft limit was passed by the last `bytes` of the tag's that
  // are live now; without limits: none.
  [[nodiscard]] Entry next_passed(std::uint64_t last, TagId tag, std::size_t bytes, const LiveBytes& live) const {
    for (const Entry& entry : entries_) {
      const std::size_t soft = entry.limits->soft_bytes;
      if (entry.number <= last || !concerns(*entry.limits, tag)) continue;
      if (const std::size_t now = live_of(*entry.limits, live); now > soft && now - bytes <= soft) return entry;
    }
    return {last, nullptr};
  }

  [[nodiscard]] static std::size_t live_of(const BudgetLimits& limits, const LiveBytes& live) {
    return limits.tag == kUntagged ? live.of_all : live.of_tag;
  }

 private:
  [[nodiscard]] static bool concerns(const BudgetLimits& limits, TagId tag) {
    return limits.tag == kUntagged || limits.tag == tag;
  }

  std::vector<Entry> entries_;
  std::uint64_t last_ = 0;
};

}  // namespace cistern
