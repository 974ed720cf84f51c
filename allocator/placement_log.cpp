#include "allocator/placement_log.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "allocator/prefetch.h"
#include "stats/invariant.h"

namespace cistern {
namespace {

// A chain is not followed further: in states that recur with many requests of one stream it would be long.
constexpr int kMostLookedAt = 64;
static_assert(kMostLookedAt < PlacementLog::kMostCandidates);
// A link has no larger size.
constexpr Sectors kLongest = std::numeric_limits<std::uint32_t>::max();

std::uint64_t mix(std::uint64_t bits) {
  bits ^= bits >> 30;
  bits *= 0xBF58476D1CE4E5B9ULL;
  bits ^= bits >> 27;
  bits *= 0x94D049BB133111EBULL;
  return bits ^ bits >> 31;
}

}  // namespace

PlacementLog::Key PlacementLog::mark_of(const LoggedPlace& place) {
  const auto address = static_cast<std::uint64_t>(place.address);
  const auto sectors = static_cast<std::uint64_t>(place.sectors);
  return {mix(address * 0x9E3779B97F4A7C15ULL + sectors), mix(sectors * 0xC2B2AE3D27D4EB4FULL + ~address)};
}

PlacementLog::Key PlacementLog::mark_of_bound(std::int32_t handle, Sectors offset, StreamNumber stream) {
  const auto place = static_cast<std::uint64_t>(handle) << 32 ^ static_cast<std::uint64_t>(offset);
  const std::uint64_t of = kOfStream * (static_cast<std::uint64_t>(stream) + 1);
  return {mix(mix(place + of) ^ place), mix(mix(~place ^ of) + of)};
}

// Whether the link says so, which knows sizes beyond 2 TiB only as such.
bool PlacementLog::may_serve(Number number, Sectors sectors) const {
  const Sectors asked = links_[number].asked;
  return asked == kLongest || (asked >= sectors && asked - asked / 8 - 1 <= sectors);
}

// Whether it is of a request as large or up to an eighth larger, and most of its place is asked for.
bool PlacementLog::serves(Number number, Sectors sectors) const {
  const Sectors asked = ring_[number].asked();
  return asked >= sectors && sectors >= asked - asked / 8 - 1 && 4 * sectors >= 3 * ring_[number].place.sectors - 4;
}

void PlacementLog::candidates(const Position& position, Sectors sectors, std::vector<Number>& entries) const {
  entries.clear();
  if (!keeps(position)) return;
  const auto rank = [&](Number number) {
    const Entry& entry = ring_[number];
    return entry.asked() == sectors ? std::tuple(false, entry.position != position, Sectors{0})
                                    : std::tuple(true, number != expected_, entry.place.sectors);
  };
  const Number first = exact(position, sectors);
  if (first != kNone) entries.push_back(first);
  // All of their entries are on their way before the first is looked at.
  std::array<Number, kMostLookedAt> found;
  std::size_t count = 0;
  int looked_at = 0;
  for (Number at = oldest_of(position.key); at != kNone && looked_at < kMostLookedAt;
       at = links_[at].next, ++looked_at) {
    if (!may_serve(at, sectors) || at == first) continue;
    prefetch(&ring_[at]);
    found[count++] = at;
  }
  for (const Number at : std::span(found).first(count)) {
    if (ring_[at].asked() != sectors && !serves(at, sectors)) continue;
    const auto after =
        std::upper_bound(entries.begin(), entries.end(), at, [&](Number a, Number b) { return rank(a) < rank(b); });
    entries.insert(after, at);
  }
}

PlacementLog::Number PlacementLog::expected(const Position& position, Sectors sectors) const {
  if (!keeps(position)) return kNone;
  for (const Number number : {expected_, next_})
    if (has(number) && ring_[number].position.key == position.key && serves(number, sectors)) return number;
  return kNone;
}

PlacementLog::Number PlacementLog::exact(const Position& position, Sectors sectors) const {
  if (size_ == 0 || !keeps(position)) return kNone;
  if (has(next_) && ring_[next_].is_foremost && is_exact(next_, position, sectors)) return next_;
  const Number oldest = oldest_of(position.key);
  if (oldest == kNone) return kNone;
  if (ring_[oldest].has_others) return indexed(position, sectors);
  return ring_[oldest].is_foremost && is_exact(oldest, position, sectors) ? oldest : kNone;
}

void PlacementLog::fetch(const Position& position, Sectors sectors) const noexcept {
  if (size_ == 0 || !keeps(position)) return;
  chains_.fetch(tag_of(position.key));
  exact_.fetch(tag_of(position, sectors));
}

// It makes way for the next one, once the ring is full.
void PlacementLog::fetch_oldest() const noexcept {
  const Entry& oldest = ring_[oldest_];
  chains_.fetch(tag_of(oldest.position.key));
  if (oldest.is_indexed) exact_.fetch(tag_of(oldest.position, oldest.asked()));
  prefetch(&ring_[behind(oldest_)]);
}

// Unless an older entry is found in its place. Requires: it is in its chain.
void PlacementLog::make_foremost(Number place) {
  if (ring_[oldest_of(ring_[place].position.key)].has_others) return index(place);
  ring_[place].is_foremost = true;
}

void PlacementLog::index(Number place) {
  Entry& entry = ring_[place];
  const Number first = indexed(entry.position, entry.asked());
  const bool is_added = first == kNone && exact_.add(tag_of(entry.position, entry.asked()), place);
  entry.is_foremost = entry.is_indexed = is_added;
  if (is_added) entry.has_heirs = links_[place].next != kNone;  // one of them may be of its kind
  if (first != kNone) ring_[first].has_heirs = true;
}

void PlacementLog::make_unfound(Number place) {
  Entry& entry = ring_[place];
  if (entry.is_indexed) exact_.remove(tag_of(entry.position, entry.asked()), place);
  entry.is_foremost = entry.is_indexed = false;
}

void PlacementLog::append(const Position& position, const LoggedPlace& place, Number known, const Served& by) {
  if (capacity_ == 0) return;
  const bool is_kept = keeps(position);
  reach_.comes(is_kept);
  if (!is_kept) return;
  Number served_by = has(by.entry) ? origin_of(by.entry) : kNone;
  if (room_ < length_ || (size_ == length_ && room_ != size_)) resize(room_, served_by);
  provide(std::min(size_ + 1, length_));
  if (size_ == length_) drop_oldest();
  is_lost_ = true;
  push({position, place, known, by.less, served_by, false, false, false, false, by.is_beside_whole});
  if (size_ < length_) return;
  room_ = reach_.room(size_, capacity_);
  fetch_oldest();
}

// Memory for so many entries, and for what the indexes have of the last.
void PlacementLog::provide(std::size_t entries) {
  ring_.provide(entries);
  links_.provide(entries);
  chains_.provide(1);
  exact_.provide(kMostIndexed);
}

// Requires: provide. Where no index can have the entry it is not kept.
void PlacementLog::push(const Entry& entry) {
  const Number place = of_age(size_);
  ring_[place] = entry;
  if (link(place)) ++size_;
}

void PlacementLog::note_free(Number number, const Position& position, const LoggedPlace& place, Number known,
                             bool is_beside_whole) {
  if (!has(number) || ring_[number].position.key != position.key || ring_[number].place != place) return;
  ring_[number].known = known;
  ring_[number].is_beside_whole = ring_[number].is_beside_whole || is_beside_whole;
  if (ring_[number].is_foremost && ring_[number].position == position) return;
  make_unfound(number);
  ring_[number].position.taken = position.taken;
  make_foremost(number);
}

void PlacementLog::pass_over(Number number) {
  if (ring_[number].is_foremost) find_another(number);
}

// Puts the entry at the end of its key's chain. False: it is in none.
bool PlacementLog::link(Number place) {
  Entry& entry = ring_[place];
  links_[place] = {kNone, static_cast<std::uint32_t>(std::min(entry.asked(), kLongest)), place};
  entry.is_indexed = entry.has_heirs = entry.has_others = false;
  const Number first = oldest_of(entry.position.key);
  entry.is_foremost = first == kNone;
  if (first == kNone) {
    has_missed_ = false;
    return chains_.add(tag_of(entry.position.key), place);
  }
  Entry& oldest = ring_[first];
  oldest.has_others = true;
  if (oldest.is_foremost && !oldest.is_indexed) index(first);
  links_[std::exchange(links_[first].newest, place)].next = place;
  index(place);
  return true;
}

void PlacementLog::forget() {
  chains_.clear();
  exact_.clear();
  oldest_ = 0;
  size_ = 0;
  expected_ = next_ = kNone;
  ++times_forgotten_;
}

void PlacementLog::grow(std::size_t capacity) {
  if (capacity <= capacity_) return;
  capacity_ = capacity;
  if (size_ == length_ && room_ == size_) room_ = reach_.room(size_, capacity_);
}

void PlacementLog::expect(std::size_t capacity) {
  ring_.expect(capacity);
  links_.expect(capacity);
  chains_.expect(capacity);
  exact_.expect(capacity);
}

// The next one of its kind is found in its place, if it is not far.
void PlacementLog::find_another(Number place) {
  const Entry& passed = ring_[place];
  make_unfound(place);
  if (!passed.has_heirs) return;
  int looked_at = 0;
  Number heir = links_[place].next;
  const auto is_heir = [&](Number number) {
    return links_[number].asked == links_[place].asked && is_exact(number, passed.position, passed.asked());
  };
  while (heir != kNone && !is_heir(heir)) heir = ++looked_at < kMostLookedAt ? links_[heir].next : kNone;
  if (heir == kNone) return;
  make_foremost(heir);
}

// The oldest entry of all is the oldest of its key.
void PlacementLog::drop_oldest() {
  const Entry& dropped = ring_[oldest_];
  if (dropped.is_foremost) find_another(oldest_);
  const Link& link = links_[oldest_];
  const Tag tag = tag_of(dropped.position.key);
  if (link.next == kNone) {
    chains_.remove(tag, oldest_);
  } else {
    chains_.replace(tag, oldest_, link.next);
    links_[link.next].newest = link.newest;
    ring_[link.next].has_others = links_[link.next].next != kNone;
  }
  oldest_ = behind(oldest_);
  --size_;
}

// Keeps the newest entries that there is room for. `kept`: a number that may become another.
void PlacementLog::resize(std::size_t entries, Number& kept) {
  if (entries > length_ && oldest_ == 0) {
    length_ = entries;
    return;
  }
  const std::size_t gone = size_ - std::min(size_, entries);
  const auto moved = [&](Number number) {
    const bool stays = number < length_ && age_of(number) >= gone;
    return stays ? static_cast<Number>(age_of(number) - gone) : kNone;
  };
  PlacementLog moved_log(entries);
  moved_log.length_ = entries;
  moved_log.expect(std::min(size_ - gone + 1, entries));
  for (std::size_t age = gone; age < size_; ++age) {
    Entry entry = ring_[of_age(age)];
    entry.served_by = moved(entry.served_by);
    moved_log.provide(moved_log.size_ + 1);
    moved_log.push(entry);
  }
  moved_log.provide(std::min(moved_log.size_ + 1, entries));
  kept = moved(kept);
  expected_ = moved(expected_);
  next_ = moved(next_);
  std::swap(ring_, moved_log.ring_);
  std::swap(links_, moved_log.links_);
  chains_.swap(moved_log.chains_);
  exact_.swap(moved_log.exact_);
  length_ = moved_log.length_;
  size_ = moved_log.size_;
  oldest_ = 0;
}

// Returns how many entries there are in the chain of that one.
std::size_t PlacementLog::audit_chain(Number oldest) const {
  const Key key = ring_[oldest].position.key;
  std::size_t count = 0;
  Number last = kNone;
  for (Number at = oldest; at != kNone; last = at, at = links_[at].next, ++count) {
    require(age_of(at) < size_, "a chain of the placement log leaves the ring");
    require(links_[at].asked == std::min(ring_[at].asked(), kLongest),
            "an entry of the placement log has another size in its chain");
    require(ring_[at].position.key == key, "an entry of the placement log is in a foreign chain");
    require(last == kNone || age_of(last) < age_of(at), "a chain of the placement log is not by age");
  }
  require(links_[oldest].newest == last, "a chain of the placement log does not end at its newest");
  require(ring_[oldest].has_others == (last != oldest), "whether an entry of the placement log is alone in its chain");
  return count;
}

void PlacementLog::audit() const {
  std::size_t chained = 0;
  std::size_t chains = 0;
  std::size_t indexed_ones = 0;
  for (std::size_t age = 0; age < size_; ++age) {
    const Number number = of_age(age);
    const Entry& entry = ring_[number];
    const Number oldest = oldest_of(entry.position.key);
    require(oldest != kNone, "a chain of the placement log is not found");
    if (oldest == number) {
      ++chains;
      chained += audit_chain(number);
    }
    if (entry.is_indexed) {
      ++indexed_ones;
      require(entry.is_foremost && indexed(entry.position, entry.asked()) == number,
              "an entry of the placement log is not found by its size and sums");
    }
    require(!entry.is_foremost || entry.is_indexed || !ring_[oldest].has_others,
            "an entry of the placement log is not found among others of its state");
  }
  require(chained == size_, "an entry of the placement log is in no chain");
  chains_.audit();
  exact_.audit();
  require(chains_.size() == chains && exact_.size() == indexed_ones,
          "an entry of the placement log is found that is not there");
}

}  // namespace cistern
