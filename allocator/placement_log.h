#pragma once

// Where each request was placed, by what was live then: the same request in the same state is placed there again.
//
// The state is a sum over blocks that were not freed yet, so that an allocation and a free are one addition
// each, and equal sets of places are equal states however they came about. It has 128 bits: that two different sets
// of places look alike is not to be expected in the life of any machine, and who takes an equal state for an equal
// set relies on it. Of one state and stream several places may be known; none is overwritten while the ring has room,
// or repeated passes would alternate between two.
// A request up to an eighth smaller takes a part of a place, and the state goes on as if it took all of it. So equal
// states are not equal bytes: a second sum is of what was really taken, and of whose the bytes are.
// Both sums are there of each stream's blocks and bytes, and of all streams'. A place whose bytes were the stream's
// is known by what the stream's own were, whatever others do meanwhile: nobody else's block is there as long as they
// are the stream's. One that had bytes of others is known by all.
// Entries are found by state, and where a state has several, by state, size and second sum: what comes again comes
// behind the one that it came behind, mostly, and is looked for there first.
// Host memory: a ring of at most `capacity` entries, fewer where nothing that is old is asked for, and of some states
// alone (log_reach.h), in which the oldest makes way: 64 bytes an entry, 12 of what is looked at in chains, and 15 to
// 30 of the indexes. While it is not full it grows where it is. Complexity: O(1) expected, and O(64) for candidates;
// O(n) where it becomes shorter, or longer after it was full. Not thread-safe: guarded by the heap's lock, or by a
// stream's turn in pages (StreamHits::turn_in_pages).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/free_runs.h"
#include "allocator/growing_table.h"
#include "allocator/hash_index.h"
#include "allocator/log_reach.h"
#include "allocator/page_size.h"

namespace cistern {

struct LoggedPlace {
  Sectors address = 0;
  Sectors sectors = 0;  // of the request that was placed there first
  friend bool operator==(const LoggedPlace&, const LoggedPlace&) = default;
};

class PlacementLog {
 public:
  // Of a state, or what one place adds to it.
  struct Key {
    std::uint64_t hash = 0;
    std::uint64_t check = 0;  // independent of `hash`
    friend bool operator==(const Key&, const Key&) = default;
  };
  // What the owner knows of a place: a number of its own, which the log hands back.
  using Number = HashIndex::Number;
  static constexpr Number kNone = HashIndex::kNone;

  // What places are known under.
  struct Position {
    Key key;    // of the state, and of the stream that asks
    Key taken;  // what was, when the place was free last
    friend bool operator==(const Position&, const Position&) = default;
  };

  struct Entry {
    Position position;
    LoggedPlace place;
    Number known = kNone;
    std::uint32_t less = 0;    // sectors that the request was smaller than the place's
    Number served_by = kNone;  // the entry that said so, if it was not this one
    // `exact` finds it: of its key, size and second sum the oldest that was not passed over.
    bool is_foremost : 1 = false;
    bool is_indexed : 1 = false;  // among those, by the index of these; else it is alone in its chain
    bool has_heirs : 1 = false;   // others may be found in its place
    bool has_others : 1 = false;  // it is the oldest of its chain, and not alone there
    // What it asked for lies beside all the places of its state: when it was found free there, or another of its place
    // and as large at least, no block had less than its place.
    bool is_beside_whole : 1 = false;
    [[nodiscard]] Sectors asked() const { return place.sectors - static_cast<Sectors>(less); }
  };

  // How a request was served.
  struct Served {
    std::uint32_t less;    // sectors that it was smaller than the place
    Number entry;          // what said so
    bool is_beside_whole;  // as of the entry
  };

  explicit PlacementLog(std::size_t capacity)
      : capacity_(capacity), room_(capacity < LogReach::kFewest ? capacity : LogReach::kFewest) {}

  [[nodiscard]] static Key mark_of(const LoggedPlace& place);
  // The same of a bound of bytes in a handle that belong to a stream. What a stretch adds is the difference of its
  // bounds: bytes of a stream add the same in however many pieces they came to it.
  [[nodiscard]] static Key mark_of_bound(std::int32_t handle, Sectors offset, StreamNumber stream);
  // Streams up to that number may have blocks from here on. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream) {
    if (const auto count = static_cast<std::size_t>(stream) + 1; own_.size() < count) own_.resize(count);
  }
  // Free bytes became the stream's, or are no longer: what they add as its, or take away.
  void changed_hands(StreamNumber stream, const Key& change) {
    add(all_.taken, change);
    add(own(stream).taken, change);
  }
  // A block of the stream is live at the place of this mark, or was freed: what the state is made of. `taken` is the
  // mark of what it has of the place.
  void arrived(StreamNumber stream, const Key& place, const Key& taken) {
    for (Sums* sums : {&all_, &own(stream)}) {
      add(sums->state, place);
      add(sums->taken, taken);
    }
  }
  void left(StreamNumber stream, const Key& place) {
    add(all_.state, less(place));
    add(own(stream).state, less(place));
  }
  // What a freed block had of its place is free. Until then it counts: also while it waits for events.
  void came_free(StreamNumber stream, const Key& taken) {
    add(all_.taken, less(taken));
    add(own(stream).taken, less(taken));
  }
  [[nodiscard]] static Key less(const Key& key) { return {0 - key.hash, 0 - key.check}; }
  static void add(Key& sum, const Key& key) {
    sum.hash += key.hash;
    sum.check += key.check;
  }

  // Whether the log has to do with the state: `candidates` and `exact` find nothing of others, and `append` does
  // nothing.
  [[nodiscard]] bool keeps(const Position& position) const { return reach_.is_kept(position.key.check); }
  // Has the processor bring what `candidates` and `append` look at, before they do: most of it lies in no cache.
  void fetch(const Position& position, Sectors sectors) const noexcept;

  // The same of the state that the stream is in now, whatever is asked for next, if an entry came last.
  void fetch_state_of(StreamNumber stream) const noexcept {
    if (is_lost_) chains_.fetch(tag_of(own_position(stream).key));
  }

  // What places are known under, now: those whose bytes were the stream's own, and those that had others' too.
  [[nodiscard]] Position own_position(StreamNumber stream) const {
    const auto index = static_cast<std::size_t>(stream);
    return index < own_.size() ? position(own_[index], stream, 0) : position({}, stream, 0);
  }
  [[nodiscard]] Position position_among_all(StreamNumber stream) const { return position(all_, stream, kOfAll); }
  // Entries whose request was just as large, the oldest first; then those up to an eighth larger: first the one that
  // came behind what was followed last, for a state may have been passed twice with much the same request, then the
  // smallest, then the oldest. Replaces what is in `entries`.
  void candidates(const Position& position, Sectors sectors, std::vector<Number>& entries) const;
  // The first of these, if it was of just that size, and its place free when just these bytes were taken; else none.
  [[nodiscard]] Number exact(const Position& position, Sectors sectors) const;
  // The entry that came behind the origin of what was followed last, or behind that, if it is of this state and may
  // serve such a request; else none.
  [[nodiscard]] Number expected(const Position& position, Sectors sectors) const;
  // Whether an entry has the number. It is another one's once all were put elsewhere (resize).
  [[nodiscard]] bool has(Number number) const { return number < length_ && age_of(number) < size_; }
  // Until the log changes.
  [[nodiscard]] const Entry& entry(Number number) const { return ring_[number]; }
  // The request was served as the entry says.
  void follow(Number number) {
    reach_.asked_for(size_ - 1 - age_of(number));
    is_lost_ = false;
    expected_ = behind(origin_of(number));
    next_ = behind(number);
  }
  // The place was found free in this position. Throws std::bad_alloc, with all entries as they were.
  void append(const Position& position, const LoggedPlace& place, Number known = kNone,
              const Served& by = {0, kNone, false});
  // The same of an entry, if it is still that of the key and place, and what the owner knows of it now.
  void note_free(Number number, const Position& position, const LoggedPlace& place, Number known, bool is_beside_whole);
  // What `exact` finds is not to be found by it; another one of the same position and size is, if it is not far.
  // It is found again if it is noted again, or where all are put elsewhere.
  void pass_over(Number number);
  // All entries go; the state stays.
  void forget();
  // How often that was.
  [[nodiscard]] std::uint64_t times_forgotten() const { return times_forgotten_; }
  // More entries than now; never fewer.
  void grow(std::size_t capacity);
  // Addresses for so many entries: to grow to them takes no more host memory than they fill. Throws std::bad_alloc,
  // unchanged.
  void expect(std::size_t capacity);

  // The sum of the places that were not left, of all streams.
  [[nodiscard]] const Key& state_of_all() const { return all_.state; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // For so many entries there is room now.
  [[nodiscard]] std::size_t room() const { return length_; }
  // The next `append` takes no host memory.
  [[nodiscard]] bool has_room() const {
    const bool is_longer = size_ < length_ ? room_ >= length_ : room_ > length_ && oldest_ == 0;
    const bool is_at_hand =
        is_longer ? size_ < links_.size() && size_ < ring_.size() : size_ == length_ && room_ == length_ && size_ != 0;
    return is_at_hand && chains_.has_room(1) && exact_.has_room(kMostIndexed);
  }
  // Room in a list of `candidates`.
  static constexpr std::size_t kMostCandidates = 65;
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  // Throws std::logic_error unless each entry is in its chain, once and by age, and found where `exact` looks. O(n).
  void audit() const;

 private:
  // What a walk along the entries of one key looks at: many would lie in as many cache lines of entries.
  struct Link {
    Number next = kNone;      // of the key; none: it is the newest
    std::uint32_t asked = 0;  // sectors, of an entry as large as this or larger
    Number newest = kNone;    // of the oldest
  };
  // By an append.
  static constexpr std::size_t kMostIndexed = 3;
  static constexpr std::uint64_t kOfStream = 0xD6E8FEB86659FD93ULL;
  static constexpr std::uint64_t kOfAll = 0xA0761D6478BD642FULL;
  struct Sums {
    Key state;
    Key taken;
  };
  [[nodiscard]] Sums& own(StreamNumber stream) { return own_[static_cast<std::size_t>(stream)]; }
  [[nodiscard]] static Position position(const Sums& sums, StreamNumber stream, std::uint64_t of) {
    const auto number = static_cast<std::uint64_t>(stream);
    return {{sums.state.hash + number * kOfStream + of, sums.state.check + number + of}, sums.taken};
  }

  using Tag = HashIndex::Tag;
  [[nodiscard]] static Tag tag_of(std::uint64_t hash) { return static_cast<Tag>(hash >> 32); }
  [[nodiscard]] static Tag tag_of(const Key& key) { return tag_of(key.hash * 0x9E3779B97F4A7C15ULL); }
  [[nodiscard]] static Tag tag_of(const Position& position, Sectors sectors) {
    return tag_of(hash_of(position, sectors));
  }
  // The oldest entry of the key; none: there is none.
  [[nodiscard]] Number oldest_of(const Key& key) const {
    if (has_missed_ && missed_ == key) return kNone;
    const Number found = chains_.find(tag_of(key), [&](Number number) { return ring_[number].position.key == key; });
    if (found == kNone) {
      has_missed_ = true;
      missed_ = key;
    }
    return found;
  }
  // What is found by its key, size and second sum, where there are several of the key.
  [[nodiscard]] Number indexed(const Position& position, Sectors sectors) const {
    return exact_.find(tag_of(position, sectors), [&](Number number) { return is_exact(number, position, sectors); });
  }
  // How many entries are older.
  [[nodiscard]] std::size_t age_of(Number place) const {
    return place >= oldest_ ? place - oldest_ : place + length_ - oldest_;
  }
  [[nodiscard]] Number behind(Number place) const { return place + 1 == length_ ? 0 : place + 1; }
  [[nodiscard]] Number of_age(std::size_t age) const {
    const std::size_t place = oldest_ + age;
    return static_cast<Number>(place < length_ ? place : place - length_);
  }
  // What served its request, or what served that, as long as it is there; else itself.
  [[nodiscard]] Number origin_of(Number number) const {
    const Number by = ring_[number].served_by;
    return by < length_ && age_of(by) < age_of(number) ? by : number;
  }
  [[nodiscard]] bool may_serve(Number number, Sectors sectors) const;
  [[nodiscard]] bool serves(Number number, Sectors sectors) const;
  [[nodiscard]] bool is_exact(Number number, const Position& position, Sectors sectors) const {
    const Entry& entry = ring_[number];
    return entry.position == position && entry.asked() == sectors;
  }
  [[nodiscard]] static std::uint64_t hash_of(const Position& position, Sectors sectors) {
    return (position.key.hash + position.taken.hash * 0xC2B2AE3D27D4EB4FULL + static_cast<std::uint64_t>(sectors)) *
           0x9E3779B97F4A7C15ULL;
  }
  [[nodiscard]] bool link(Number place);
  void make_foremost(Number place);
  void index(Number place);
  void make_unfound(Number place);
  void find_another(Number place);
  void drop_oldest();
  void provide(std::size_t entries);
  void push(const Entry& entry);
  void resize(std::size_t entries, Number& kept);
  void fetch_oldest() const noexcept;
  [[nodiscard]] std::size_t audit_chain(Number oldest) const;

  std::size_t capacity_;
  LogReach reach_;
  std::size_t room_;  // that there is to be: a longer ring once it is full
  Sums all_;
  std::vector<Sums> own_;     // of streams
  GrowingTable<Entry> ring_;  // with memory as far as entries came
  GrowingTable<Link> links_;  // of the ring's entries
  std::size_t length_ = 0;    // of the ring
  Number oldest_ = 0;         // a place in the ring
  std::size_t size_ = 0;
  HashIndex chains_;  // the oldest entries of their keys
  HashIndex exact_;   // entries that `exact` finds among others of their key
  // Of this key there is none: of a state that is new several questions are asked.
  mutable Key missed_;
  mutable bool has_missed_ = false;
  Number expected_ = kNone;  // behind what was followed last, or what served that first
  Number next_ = kNone;      // behind what was followed last
  bool is_lost_ = false;     // an entry came last
  std::uint64_t times_forgotten_ = 0;
};

}  // namespace cistern
