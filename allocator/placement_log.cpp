#include "allocator/placement_log.h"

#include <algorithm>
#include <stdexcept>

namespace cistern {
namespace {

// A chain is not followed further: in states that recur with many requests of one stream it would be long.
constexpr int kMostLookedAt = 64;
constexpr std::size_t kFirstEntries = 1024;

std::uint64_t mix(std::uint64_t bits) {
  bits ^= bits >> 30;
  bits *= 0xBF58476D1CE4E5B9ULL;
  bits ^= bits >> 27;
  bits *= 0x94D049BB133111EBULL;
  return bits ^ bits >> 31;
}

// A request up to an eighth smaller takes a part of the place, and the state goes on as if it took all of it.
bool serves(const LoggedPlace& place, Sectors sectors) {
  return place.sectors >= sectors && sectors >= place.sectors - place.sectors / 8 - 1;
}

}  // namespace

std::uint64_t PlacementLog::mark_of(const LoggedPlace& place) {
  return mix(static_cast<std::uint64_t>(place.address) * 0x9E3779B97F4A7C15ULL +
             static_cast<std::uint64_t>(place.sectors));
}

PlacementLog::Key PlacementLog::key_of(StreamNumber stream) const {
  return mix(state_ + mix(static_cast<std::uint64_t>(stream) + 1));
}

void PlacementLog::candidates(Key key, Sectors sectors, std::vector<LoggedPlace>& places) const {
  places.clear();
  const auto chain = chains_.find(key);
  if (chain == chains_.end()) return;
  int looked_at = 0;
  for (Number at = chain->second.oldest; at != kNone && looked_at < kMostLookedAt; at = entry(at).next, ++looked_at) {
    const LoggedPlace& place = entry(at).place;
    if (!serves(place, sectors)) continue;
    const auto after = std::upper_bound(places.begin(), places.end(), place,
                                        [](const auto& a, const auto& b) { return a.sectors < b.sectors; });
    places.insert(after, place);
  }
}

void PlacementLog::append(Key key, const LoggedPlace& place) {
  if (capacity_ == 0) return;
  if (size() == ring_.size()) {
    if (ring_.size() < capacity_)
      enlarge_ring();
    else
      drop_oldest();
  }
  const Number number = next_;
  const auto [chain, is_new] = chains_.try_emplace(key, Chain{number, number});
  ++next_;
  entry(number) = {key, place, kNone};
  if (is_new) return;
  entry(chain->second.newest).next = number;
  chain->second.newest = number;
}

void PlacementLog::forget() {
  oldest_ = next_;
  chains_.clear();
}

void PlacementLog::grow(std::size_t capacity) { capacity_ = std::max(capacity_, capacity); }

// The oldest entry of all is the oldest of its key.
void PlacementLog::drop_oldest() {
  const Entry& dropped = entry(oldest_++);
  const auto chain = chains_.find(dropped.key);
  if (dropped.next == kNone)
    chains_.erase(chain);
  else
    chain->second.oldest = dropped.next;
}

void PlacementLog::enlarge_ring() {
  std::vector<Entry> larger(std::min(capacity_, std::max(kFirstEntries, 2 * ring_.size())));
  for (Number number = oldest_; number < next_; ++number)
    larger[static_cast<std::size_t>(number % larger.size())] = entry(number);
  ring_.swap(larger);
}

void PlacementLog::audit() const {
  std::size_t chained = 0;
  for (const auto& [key, chain] : chains_) {
    Number last = kNone;
    for (Number at = chain.oldest; at != kNone; last = at, at = entry(at).next) {
      if (at < oldest_ || at >= next_) throw std::logic_error("a chain of the placement log leaves the ring");
      if (entry(at).key != key) throw std::logic_error("an entry of the placement log is in a foreign chain");
      if (last != kNone && last >= at) throw std::logic_error("a chain of the placement log is not by age");
      ++chained;
    }
    if (last != chain.newest) throw std::logic_error("a chain of the placement log does not end at its newest");
  }
  if (chained != size()) throw std::logic_error("an entry of the placement log is in no chain");
}

}  // namespace cistern
