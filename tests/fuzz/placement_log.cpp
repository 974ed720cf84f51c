// The log of places beside a list of its entries: blocks of three streams come, go and are taken in part, and places
// are noted, found, followed and passed over in the states that come again so. A state is compared as the set that it
// stands for.

#include "allocator/placement_log.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr StreamNumber kStreams = 3;
constexpr std::size_t kMostBlocks = 3;      // few, so that states come again
constexpr std::size_t kMostLookedAt = 64;   // along entries of one state
constexpr std::size_t kMostEntries = 6000;  // in one program

using Number = PlacementLog::Number;
using Position = PlacementLog::Position;
constexpr Number kNone = PlacementLog::kNone;

class Program {
 public:
  Program(std::size_t capacity, Steps steps) : log_(capacity), steps_(steps) { log_.add_stream(kStreams - 1); }

  void run() {
    while (steps_.more() && serial_ < static_cast<Sectors>(kMostEntries)) {
      step();
      const auto stream = static_cast<StreamNumber>(steps_.byte() % kStreams);
      compare(here(stream), 1 + static_cast<Sectors>(steps_.byte() % 40));
    }
    compare_all();
  }

 private:
  struct Entry {
    Position position;
    LoggedPlace place;
    Sectors asked = 0;
    Number known = kNone;
    bool is_foremost = false;
  };
  struct Block {
    StreamNumber stream = 0;
    LoggedPlace place;
    LoggedPlace taken;
    bool is_live = true;  // or waits
  };
  // What a position stands for: of whom, who asks, and the places and bytes that are live or taken then.
  using Parts = std::multiset<std::tuple<int, std::int64_t, std::int64_t>>;
  using State = std::tuple<bool, StreamNumber, Parts, Parts>;
  using Sums = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;

  [[nodiscard]] State state(bool of_all, StreamNumber stream) const {
    Parts live;
    Parts taken;
    for (const Block& block : blocks_) {
      if (!of_all && block.stream != stream) continue;
      if (block.is_live) live.emplace(0, block.place.address, block.place.sectors);
      taken.emplace(0, block.taken.address, block.taken.sectors);
    }
    for (const auto& [handle, owner] : hands_)
      if (of_all || owner == stream) taken.emplace(1 + owner, handle, 0);
    return {of_all, stream, std::move(live), std::move(taken)};
  }
  // The same state is the same position, and another one another.
  void compare_state(bool of_all, StreamNumber stream, const Position& position) {
    const State state = this->state(of_all, stream);
    const Sums sums{position.key.hash, position.key.check, position.taken.hash, position.taken.check};
    require(sums_of_.emplace(state, sums).first->second == sums, "equal states are one position");
    require(state_of_.emplace(sums, state).first->second == state, "what differs is known under other positions");
  }
  Position here(StreamNumber stream) {
    const Position own = log_.own_position(stream);
    const Position all = log_.position_among_all(stream);
    compare_state(false, stream, own);
    compare_state(true, stream, all);
    return steps_.byte() % 4 == 0 ? all : own;
  }

  void step() {
    const std::uint64_t kind = steps_.byte();
    const auto stream = static_cast<StreamNumber>(kind / 16 % kStreams);
    switch (kind % 16) {
      case 0:
      case 1:
      case 2:
        return arrive(stream);
      case 3:
      case 4:
        return leave();
      case 5:
        return change_hands(stream);
      case 6:
      case 7:
      case 8:
        return append(here(stream));
      case 9:
        return append_many(stream, kind / 16 * (is_long() ? 100 : 8));
      case 10:
        return pass_over();
      case 11:
        return note_free(stream);
      case 12:
      case 13:
        return follow(stream);
      case 14:
        if (kind / 16 == 0) forget();
        return;
      default:
        log_.grow(steps_.word() % (is_long() ? 4096 : 200));
    }
  }
  [[nodiscard]] bool is_long() const { return log_.capacity() >= LogReach::kFewest; }
  void arrive(StreamNumber stream) {
    if (blocks_.size() == kMostBlocks) return leave();
    const std::uint64_t text = steps_.byte();
    const LoggedPlace place{static_cast<Sectors>(text % 3), 8};
    arrive({stream, place, {place.address, text / 8 % 2 == 0 ? 8 : 7}});
  }
  void arrive(const Block& block) {
    blocks_.push_back(block);
    log_.arrived(block.stream, PlacementLog::mark_of(block.place), PlacementLog::mark_of(block.taken));
  }
  // Or what it took comes free, if it left before.
  void leave() {
    if (blocks_.empty()) return;
    const std::uint64_t text = steps_.byte();
    const auto block = blocks_.begin() + static_cast<std::ptrdiff_t>(text % blocks_.size());
    if (std::exchange(block->is_live, false)) log_.left(block->stream, PlacementLog::mark_of(block->place));
    if (text >= 192) return;
    log_.came_free(block->stream, PlacementLog::mark_of(block->taken));
    blocks_.erase(block);
  }
  void change_hands(StreamNumber stream) {
    const auto handle = static_cast<std::int32_t>(steps_.byte() % 2);
    const auto mark = [&](StreamNumber of) { return PlacementLog::mark_of_bound(handle, 5, of); };
    if (const auto owner = hands_.find(handle); owner != hands_.end()) {
      log_.changed_hands(owner->second, PlacementLog::less(mark(owner->second)));
      hands_.erase(owner);
    } else {
      log_.changed_hands(stream, mark(stream));
      hands_[handle] = stream;
    }
  }

  // Entries lie one behind the other in a ring.
  [[nodiscard]] Number number_of(std::size_t age) const { return static_cast<Number>((oldest_ + age) % log_.room()); }
  [[nodiscard]] std::size_t age_of(Number number) const { return (number + log_.room() - oldest_) % log_.room(); }
  Number pick() { return number_of(steps_.word() % entries_.size()); }
  [[nodiscard]] Entry& entry(Number number) { return entries_[age_of(number)]; }

  void append(const Position& position) {
    const std::uint64_t text = steps_.word();
    const LoggedPlace place{++serial_, 1 + static_cast<Sectors>(text % 40)};
    PlacementLog::Served by{0, kNone, false};
    if (text / 40 % 4 == 0 && !entries_.empty())
      by = {static_cast<std::uint32_t>(text / 160 % static_cast<std::uint64_t>(place.sectors)), pick(), false};
    append(position, place, by);
  }
  void append(const Position& position, const LoggedPlace& place, const PlacementLog::Served& by) {
    const bool is_kept = log_.keeps(position);
    const std::size_t room = log_.room();
    const bool is_full = log_.size() == room;
    const bool takes_no_memory = log_.has_room();
    const std::size_t next = expected_ == kNone ? 0 : age_of(expected_);
    const auto known = static_cast<Number>(place.address * 3);
    log_.append(position, place, known, by);
    if (log_.capacity() == 0) return require(log_.size() == 0, "a log of nothing keeps nothing");
    if (!is_kept) return require(log_.size() == entries_.size(), "what is not kept changes nothing");
    require(!takes_no_memory || log_.room() == room || (log_.room() > room && oldest_ == 0),
            "a log that has room stays where it is");
    if (log_.room() != room) {
      moved(next, room);
    } else if (is_full) {
      drop_oldest();
    }
    entries_.push_back({position, place, place.sectors - static_cast<Sectors>(by.less), known});
    make_foremost(entries_.size() - 1);
    require(log_.size() == entries_.size() && log_.size() <= log_.room(), "how many entries there are");
    require(log_.room() <= log_.capacity(), "there are no more than there may be");
    compare_entry(entries_.size() - 1);
  }
  // It is longer, or shorter: as many of the newest as there is room for, found anew but where it grew where it was.
  void moved(std::size_t next, std::size_t room_before) {
    std::size_t gone = entries_.size() - std::min(entries_.size(), log_.room());
    require(gone == 0 || log_.room() < room_before, "a log that grows loses nothing");
    if (log_.room() > room_before && oldest_ == 0) return;
    oldest_ = 0;
    if (expected_ != kNone) expected_ = next >= gone ? static_cast<Number>(next - gone) : kNone;
    for (; gone != 0; --gone) entries_.pop_front();
    for (Entry& entry : entries_) entry.is_foremost = false;
    for (std::size_t i = 0; i < entries_.size(); ++i) make_foremost(i);
    if (entries_.size() == log_.room()) drop_oldest();
  }
  void drop_oldest() {
    find_another(0);
    entries_.pop_front();
    oldest_ = static_cast<Number>((oldest_ + 1) % log_.room());
  }
  [[nodiscard]] static bool are_alike(const Entry& a, const Entry& b) {
    return a.position == b.position && a.asked == b.asked;
  }
  void make_foremost(std::size_t age) {
    Entry& entry = entries_[age];
    entry.is_foremost = std::none_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
      return &other != &entry && other.is_foremost && are_alike(other, entry);
    });
  }
  void find_another(std::size_t age) {
    if (!std::exchange(entries_[age].is_foremost, false)) return;
    std::size_t looked_at = 0;
    for (std::size_t i = age + 1; i < entries_.size() && looked_at < kMostLookedAt; ++i) {
      if (entries_[i].position.key != entries_[age].position.key) continue;
      ++looked_at;
      if (are_alike(entries_[i], entries_[age])) return make_foremost(i);
    }
  }
  // Each in a state of its own.
  void append_many(StreamNumber stream, std::uint64_t count) {
    for (; count != 0; --count) {
      const LoggedPlace place{++serial_, 8};
      log_.arrived(stream, PlacementLog::mark_of(place), PlacementLog::mark_of(place));
      append(log_.own_position(stream), place, {0, kNone, false});
      log_.left(stream, PlacementLog::mark_of(place));
      log_.came_free(stream, PlacementLog::mark_of(place));
    }
  }
  void pass_over() {
    if (entries_.empty()) return;
    const Number number = pick();
    log_.pass_over(number);
    find_another(age_of(number));
  }
  // In a position that is its own, or differs in what is taken, or in the state: then nothing is noted.
  void note_free(StreamNumber stream) {
    if (entries_.empty()) return;
    const Number number = pick();
    Entry& noted = entry(number);
    const Position position = here(stream);
    const LoggedPlace place{noted.place.address, noted.place.sectors + (steps_.byte() % 8 == 0 ? 1 : 0)};
    log_.note_free(number, position, place, 5, false);
    if (noted.position.key == position.key && noted.place == place) {
      noted.known = 5;
      if (!noted.is_foremost || noted.position != position) {
        noted.position = position;
        noted.is_foremost = false;
        make_foremost(age_of(number));
      }
    }
    compare_entry(age_of(number));
  }
  void follow(StreamNumber stream) {
    const Position position = here(stream);
    const auto sectors = 1 + static_cast<Sectors>(steps_.byte() % 40);
    std::vector<Number> found;
    log_.candidates(position, sectors, found);
    if (found.empty()) return;
    const Number number = found[steps_.byte() % found.size()];
    const Number by = log_.entry(number).served_by;
    require(by == kNone || by < log_.room(), "what served an entry is an entry's number");
    log_.follow(number);
    expected_ = static_cast<Number>(((by == kNone ? number : by) + 1) % log_.room());
  }
  void forget() {
    log_.forget();
    entries_.clear();
    oldest_ = 0;
    require(log_.size() == 0, "what is forgotten is gone");
  }

  // In the order in which they are tried.
  [[nodiscard]] std::vector<Number> candidates(const Position& position, Sectors sectors) const {
    std::vector<std::tuple<bool, bool, bool, Sectors, std::size_t>> ranks;
    std::size_t looked_at = 0;
    for (std::size_t age = 0; age < entries_.size(); ++age) {
      const Entry& entry = entries_[age];
      if (entry.position.key != position.key) continue;
      const bool is_exact = entry.asked == sectors;
      const bool is_first = is_exact && entry.is_foremost && entry.position == position;
      if (looked_at++ >= kMostLookedAt && !is_first) continue;
      const bool is_less = sectors < entry.asked && sectors >= entry.asked - entry.asked / 8 - 1 &&
                           4 * sectors >= 3 * entry.place.sectors - 4;
      if (is_exact)
        ranks.emplace_back(false, !is_first, entry.position != position, 0, age);
      else if (is_less)
        ranks.emplace_back(true, number_of(age) != expected_, false, entry.place.sectors, age);
    }
    std::sort(ranks.begin(), ranks.end());
    std::vector<Number> numbers;
    for (const auto& rank : ranks) numbers.push_back(number_of(std::get<4>(rank)));
    return numbers;
  }
  void compare(const Position& position, Sectors sectors) {
    log_.fetch(position, sectors);
    std::vector<Number> found{kNone};
    log_.candidates(position, sectors, found);
    require(found.size() <= PlacementLog::kMostCandidates, "there are not too many to try");
    const std::vector<Number> expected = log_.keeps(position) ? candidates(position, sectors) : std::vector<Number>();
    require(found == expected, "which entries may serve a request, and in which order");
    const bool has_first = !expected.empty() && is_first(expected.front(), position, sectors);
    require(log_.exact(position, sectors) == (has_first ? expected.front() : kNone), "the first of just that size");
    for (const Number number : found) compare_entry(age_of(number));
  }
  [[nodiscard]] bool is_first(Number number, const Position& position, Sectors sectors) const {
    const Entry& entry = entries_[age_of(number)];
    return entry.is_foremost && entry.asked == sectors && entry.position == position;
  }
  void compare_entry(std::size_t age) const {
    const Entry& expected = entries_[age];
    require(log_.has(number_of(age)), "an entry has its number");
    const PlacementLog::Entry& entry = log_.entry(number_of(age));
    require(entry.position == expected.position && entry.place == expected.place && entry.asked() == expected.asked &&
                entry.known == expected.known && entry.is_foremost == expected.is_foremost,
            "an entry is what was noted");
  }
  void compare_all() const {
    log_.audit();
    for (std::size_t age = 0; age < entries_.size(); ++age) compare_entry(age);
    require(!log_.has(static_cast<Number>(log_.room())) && !log_.has(kNone), "other numbers are of no entry");
  }

  PlacementLog log_;
  Steps steps_;
  std::vector<Block> blocks_;
  std::map<std::int32_t, StreamNumber> hands_;  // whose the bytes of a handle are
  std::map<State, Sums> sums_of_;
  std::map<Sums, State> state_of_;
  std::deque<Entry> entries_;  // oldest first
  Number oldest_ = 0;          // its number
  Number expected_ = kNone;
  Sectors serial_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Steps steps(data, size);
  const std::uint64_t text = steps.byte();
  // Most are of a few entries; some so long that not all states may be kept.
  const std::size_t capacity = text < 240 ? text / 2 : 1024 + 64 * (text - 240);
  Program(capacity, steps).run();
  return 0;
}
