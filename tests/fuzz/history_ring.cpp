// The ring of a history beside a queue of its entries: it grows, overwrites, continues another one and gets other
// limits, while cuts of before are held and must stay as they were.

#include "stats/history_ring.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kMostEntries = 40000;  // of one program
constexpr std::size_t kUnlimited = std::size_t{1} << 40;

// Few, about as many as a chunk has, several chunks, or all.
std::size_t capacity_from(std::uint64_t text) {
  switch (text % 4) {
    case 0:
      return 1 + text / 4;
    case 1:
      return HistoryRing::kChunk - 4 + text / 4 % 8;
    case 2:
      return HistoryRing::kChunk * (1 + text / 16) + text / 4 % 4;
    default:
      return text < 128 ? 5000 + text : kUnlimited;
  }
}

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps), capacity_(capacity_from(steps_.byte())) {
    ring_ = HistoryRing(capacity_, steps_.byte() % 4 * 1000);
  }

  void run() {
    while (steps_.more() && serial_ < kMostEntries) {
      step();
      compare();
    }
    compare_all();
    while (!cuts_.empty()) drop_cut(0);
  }

 private:
  struct Held {
    HistoryRing::Cut cut;
    std::vector<std::uint64_t> entries;
  };

  void step() {
    const std::uint64_t kind = steps_.byte();
    switch (kind % 8) {
      case 0:
        return write(1 + kind / 8);
      case 1:
        return write(steps_.word() % 3000);
      case 2:
        // Up to the end of a chunk, or just behind it.
        return write(HistoryRing::kChunk - entries_.size() % HistoryRing::kChunk + kind / 8 % 3);
      case 3:
        return claim(1 + steps_.byte(), kind / 8 % 4);
      case 4:
        return cut();
      case 5:
        if (!cuts_.empty()) drop_cut(kind / 8 % cuts_.size());
        return;
      case 6:
        return change_capacity(kind / 8 % 2 == 0, steps_.byte(), steps_.byte());
      default:
        spare_.provide();
        compare_all();
        HistoryRing moved(std::move(ring_));
        require(ring_.size() == 0 && ring_.next(spare_) == nullptr, "a ring that was moved from holds nothing");
        ring_ = std::move(moved);
    }
  }
  void note(HistoryEntry& entry) {
    const bool overwrites = entries_.size() == capacity_;
    is_full_ = is_full_ || overwrites;
    require(ring_.is_full() == is_full_, "whether entries are overwritten");
    if (overwrites) {
      require(entry.ticks == entries_.front(), "the oldest is overwritten");
      entries_.pop_front();
    }
    entries_.push_back(++serial_);
    entry = {.ticks = serial_,
             .place = serial_ * 3,
             .size = static_cast<std::int64_t>(serial_),
             .stream = 1,
             .pool = 2,
             .stack = 3,
             .text = 4,
             .tag = 5};
  }
  void write(std::size_t count) {
    for (; count != 0 && serial_ < kMostEntries; --count) {
      HistoryEntry* const place = ring_.has_next() ? ring_.next_in_chunk() : ring_.next(spare_);
      require(place != nullptr, "there is a place for each");
      note(*place);
    }
  }
  // Places that are filled when others were written behind them.
  void claim(std::size_t count, std::size_t behind) {
    const HistoryRing::Claim claim = ring_.claim(count);
    if (claim.first == nullptr) return;
    for (std::size_t i = 0; i < count; ++i) note(claim.first[i]);
    const std::vector<HistoryEntry> filled(claim.first, claim.first + count);
    for (; behind != 0 && ring_.has_next(); --behind) note(*ring_.next_in_chunk());
    std::copy(filled.begin(), filled.end(), claim.first);
    ChunkHold::end_filling(claim.chunk);
  }
  void cut() {
    if (cuts_.size() == 3) drop_cut(0);
    Held held;
    held.cut.reserve(ring_.size());
    require(held.cut.has_room_for(ring_.size()), "there is room for what was reserved");
    ring_.cut_to(held.cut);
    held.entries.assign(entries_.begin(), entries_.end());
    cuts_.push_back(std::move(held));
  }
  static void require_same(const HistoryEntry& entry, std::uint64_t serial) {
    require(entry.ticks == serial && entry.place == serial * 3 && entry.tag == 5, "an entry is what was written");
  }
  void drop_cut(std::size_t which) {
    const Held& held = cuts_[which];
    require(held.cut.size() == held.entries.size(), "how many entries a cut has");
    std::size_t at = 0;
    held.cut.for_each([&](const HistoryEntry& entry) {
      require(at < held.entries.size(), "a cut has no more");
      require_same(entry, held.entries[at++]);
    });
    require(at == held.entries.size(), "a cut has all that was there");
    cuts_.erase(cuts_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  // The ring's own; or that of another one that goes on from there.
  void change_capacity(bool is_other, std::uint64_t text, std::uint64_t made) {
    if (is_full_) return;
    const std::size_t capacity = std::max<std::size_t>(capacity_from(text), std::max<std::size_t>(entries_.size(), 1));
    capacity_ = capacity;
    if (is_other) {
      HistoryRing other(made == 255 ? 0 : capacity_from(made));
      other.set_capacity(capacity);
      if (other.continue_from(ring_)) {
        ring_.swap(other);
        return;
      }
      require(other.size() == 0, "a ring without room holds nothing");
    }
    ring_.set_capacity(capacity);
  }

  void compare() const {
    require(ring_.size() == entries_.size(), "how many entries there are");
    require(ring_.is_full() == is_full_, "whether it is full");
    require(ring_.limit() == capacity_, "after how many it overwrites");
    if (entries_.size() < 300) compare_all();
  }
  void compare_all() const {
    std::size_t at = 0;
    ring_.for_each([&](const HistoryEntry& entry) {
      require(at < entries_.size(), "there are no more");
      require_same(entry, entries_[at++]);
    });
    require(at == entries_.size(), "all are visited, oldest first");
  }

  Steps steps_;
  SpareChunk spare_;
  HistoryRing ring_;
  std::size_t capacity_;
  std::deque<std::uint64_t> entries_;
  bool is_full_ = false;
  std::uint64_t serial_ = 0;
  std::vector<Held> cuts_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program(Steps(data, size)).run();
  return 0;
}
