#include "allocator/placement_log.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>

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

std::size_t PlacementLog::slot_of(const Key& key) const {
  const Number tag = tag_of(key);
  const std::size_t last = last_slot();
  std::size_t slot = first_slot(tag);
  for (; slots_[slot].oldest != kNone; slot = (slot + 1) & last)
    if (slots_[slot].tag == tag && ring_[slots_[slot].oldest].position.key == key) break;
  return slot;
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
  if (slots_.empty() || !keeps(position)) return;
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
  for (Number at = slots_[slot_of(position.key)].oldest; at != kNone && looked_at < kMostLookedAt;
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
  if (next_ < ring_.size() && ring_[next_].is_foremost && is_exact(next_, position, sectors)) return next_;
  const Chain& chain = slots_[slot_of(position.key)];
  if (chain.oldest != chain.newest) return exact_[exact_slot_of(position, sectors)].entry;
  if (chain.oldest == kNone || !ring_[chain.oldest].is_foremost) return kNone;
  return is_exact(chain.oldest, position, sectors) ? chain.oldest : kNone;
}

std::size_t PlacementLog::exact_slot_of(const Position& position, Sectors sectors) const {
  const Number tag = tag_of(position, sectors);
  const std::size_t last = last_slot();
  std::size_t slot = first_slot(tag);
  for (; exact_[slot].entry != kNone; slot = (slot + 1) & last)
    if (exact_[slot].tag == tag && is_exact(exact_[slot].entry, position, sectors)) break;
  return slot;
}

void PlacementLog::fetch(const Position& position, Sectors sectors) const noexcept {
  if (size_ == 0 || !keeps(position)) return;
  prefetch(&slots_[first_slot(tag_of(position.key))]);
  prefetch(&exact_[first_slot(tag_of(position, sectors))]);
}

// It makes way for the next one, once the ring is full.
void PlacementLog::fetch_oldest() const noexcept {
  const Entry& oldest = ring_[oldest_];
  prefetch(&slots_[first_slot(tag_of(oldest.position.key))]);
  if (oldest.is_indexed) prefetch(&exact_[first_slot(tag_of(oldest.position, oldest.asked()))]);
  prefetch(&ring_[behind(oldest_)]);
}

// Unless an older entry is found in its place. Requires: it is in its chain.
void PlacementLog::make_foremost(Number place) {
  const Chain& chain = slots_[slot_of(ring_[place].position.key)];
  if (chain.oldest != chain.newest) return index(place);
  ring_[place].is_foremost = true;
}

void PlacementLog::index(Number place) {
  Entry& entry = ring_[place];
  Exact& slot = exact_[exact_slot_of(entry.position, entry.asked())];
  entry.is_foremost = entry.is_indexed = slot.entry == kNone;
  if (!entry.is_foremost) {
    ring_[slot.entry].has_heirs = true;
    return;
  }
  slot = {place, tag_of(entry.position, entry.asked())};
  entry.has_heirs = links_[place].next != kNone;  // one of them may be of its kind
}

// Those that are found by way of its slot move up.
void PlacementLog::make_unfound(Number place) {
  Entry& entry = ring_[place];
  entry.is_foremost = false;
  if (!std::exchange(entry.is_indexed, false)) return;
  const std::size_t last = last_slot();
  std::size_t slot = exact_slot_of(entry.position, entry.asked());
  for (std::size_t at = (slot + 1) & last; exact_[at].entry != kNone; at = (at + 1) & last) {
    const std::size_t first = first_slot(exact_[at].tag);
    if (((at - first) & last) < ((at - slot) & last)) continue;
    exact_[slot] = exact_[at];
    slot = at;
  }
  exact_[slot] = {};
}

void PlacementLog::append(const Position& position, const LoggedPlace& place, Number known, const Served& by) {
  if (capacity_ == 0) return;
  const bool is_kept = keeps(position);
  reach_.comes(is_kept);
  if (!is_kept) return;
  Number served_by = has(by.entry) ? origin_of(by.entry) : kNone;
  if (room_ < ring_.size() || (size_ == ring_.size() && room_ != size_)) resize(room_, served_by);
  if (size_ == ring_.size()) drop_oldest();
  const auto at = static_cast<Number>((oldest_ + size_) % ring_.size());
  ++size_;
  ring_[at] = {position, place, known, by.less, served_by, false, false, false, by.is_beside_whole};
  is_lost_ = true;
  link(at);
  if (size_ < ring_.size()) return;
  room_ = reach_.room(size_, capacity_);
  fetch_oldest();
}

void PlacementLog::note_free(Number number, const Position& position, const LoggedPlace& place, Number known,
                             bool is_beside_whole) {
  if (number >= ring_.size() || ring_[number].position.key != position.key || ring_[number].place != place) return;
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

// Puts the entry at the end of its key's chain.
void PlacementLog::link(Number place) {
  links_[place] = {kNone, static_cast<std::uint32_t>(std::min(ring_[place].asked(), kLongest))};
  Entry& entry = ring_[place];
  Chain& chain = slots_[slot_of(entry.position.key)];
  entry.is_indexed = entry.has_heirs = false;
  entry.is_foremost = chain.oldest == kNone;
  if (entry.is_foremost) {
    chain = {place, place, tag_of(entry.position.key)};
    return;
  }
  if (ring_[chain.oldest].is_foremost && !ring_[chain.oldest].is_indexed) index(chain.oldest);
  links_[chain.newest].next = place;
  chain.newest = place;
  index(place);
}

void PlacementLog::forget() {
  for (Entry& entry : ring_) entry = {};
  std::fill(slots_.begin(), slots_.end(), Chain{});
  std::fill(exact_.begin(), exact_.end(), Exact{});
  oldest_ = 0;
  size_ = 0;
  expected_ = next_ = kNone;
  ++times_forgotten_;
}

void PlacementLog::grow(std::size_t capacity) {
  if (capacity <= capacity_) return;
  capacity_ = capacity;
  if (size_ == ring_.size() && room_ == size_) room_ = reach_.room(size_, capacity_);
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
  const Number next = links_[oldest_].next;
  const std::size_t slot = slot_of(dropped.position.key);
  if (next == kNone)
    empty_slot(slot);
  else
    slots_[slot].oldest = next;
  oldest_ = behind(oldest_);
  --size_;
}

// Chains that are found by way of this slot move up.
void PlacementLog::empty_slot(std::size_t slot) {
  const std::size_t last = last_slot();
  for (std::size_t at = (slot + 1) & last; slots_[at].oldest != kNone; at = (at + 1) & last) {
    const std::size_t first = first_slot(slots_[at].tag);
    if (((at - first) & last) < ((at - slot) & last)) continue;
    slots_[slot] = slots_[at];
    slot = at;
  }
  slots_[slot] = {};
}

// Keeps the newest entries that there is room for. `kept`: a number that may become another.
void PlacementLog::resize(std::size_t entries, Number& kept) {
  const std::size_t count = std::bit_ceil(2 * entries);
  LargeTable<Chain> slots(count);
  LargeTable<Exact> exact(count);
  LargeTable<Entry> ring(entries);
  LargeTable<Link> links(entries);
  const std::size_t gone = size_ - std::min(size_, entries);
  for (std::size_t i = gone; i < size_; ++i) ring[i - gone] = ring_[(oldest_ + i) % ring_.size()];
  const auto moved = [&](Number number) {
    const bool stays = number < ring_.size() && age_of(number) >= gone;
    return stays ? static_cast<Number>(age_of(number) - gone) : kNone;
  };
  for (Entry& entry : ring) entry.served_by = moved(entry.served_by);
  kept = moved(kept);
  expected_ = moved(expected_);
  next_ = moved(next_);
  ring_.swap(ring);
  links_.swap(links);
  slots_.swap(slots);
  exact_.swap(exact);
  shift_ = 32 - std::countr_zero(count);
  oldest_ = 0;
  size_ -= gone;
  for (std::size_t i = 0; i < size_; ++i) link(static_cast<Number>(i));
}

void PlacementLog::audit() const {
  std::size_t chained = 0;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    const Chain& chain = slots_[slot];
    if (chain.oldest == kNone) continue;
    const Key key = ring_[chain.oldest].position.key;
    if (slot_of(key) != slot) throw std::logic_error("a chain of the placement log is not found");
    Number last = kNone;
    for (Number at = chain.oldest; at != kNone; last = at, at = links_[at].next) {
      if (age_of(at) >= size_) throw std::logic_error("a chain of the placement log leaves the ring");
      if (links_[at].asked != std::min(ring_[at].asked(), kLongest))
        throw std::logic_error("an entry of the placement log has another size in its chain");
      if (ring_[at].position.key != key) throw std::logic_error("an entry of the placement log is in a foreign chain");
      if (last != kNone && age_of(last) >= age_of(at))
        throw std::logic_error("a chain of the placement log is not by age");
      ++chained;
    }
    if (last != chain.newest) throw std::logic_error("a chain of the placement log does not end at its newest");
  }
  if (chained != size_) throw std::logic_error("an entry of the placement log is in no chain");
  std::size_t found = 0;
  for (std::size_t slot = 0; slot < exact_.size(); ++slot) {
    if (exact_[slot].entry == kNone) continue;
    ++found;
    const Entry& entry = ring_[exact_[slot].entry];
    if (!entry.is_foremost || !entry.is_indexed || exact_slot_of(entry.position, entry.asked()) != slot)
      throw std::logic_error("an entry of the placement log is not found by its size and sums");
  }
  for (std::size_t i = 0; i < size_; ++i) {
    const Entry& entry = ring_[(oldest_ + i) % ring_.size()];
    found -= entry.is_indexed ? 1 : 0;
    const Chain& chain = slots_[slot_of(entry.position.key)];
    if (entry.is_foremost && !entry.is_indexed && chain.oldest != chain.newest)
      throw std::logic_error("an entry of the placement log is not found among others of its state");
  }
  if (found != 0) throw std::logic_error("an entry of the placement log is found that is not there");
}

}  // namespace cistern
