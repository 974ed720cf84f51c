#pragma once

// AwaitedFrees: freed blocks of one stream, each of which waits for an event on every other stream of the same device
// that used it; an entry is one of these events.
//
// What PendingFrees is for a heap, for a few frees of a stream that serves itself: whoever takes the heap's lock finds
// them in PendingFrees (StreamHits::hand_over_awaited). Those of several streams are asked together, in the same order.
// Takes no host memory: the heap has promised a place there for each that may be here. While the stream follows steps,
// the blocks are those that waited when it began, and entries have their addresses alone (StreamHits::carry_out_steps).
// Not thread-safe: guarded by the stream's lock. O(entries), times the streams of whose frees the order is asked.

#include "allocator/pending_frees.h"
#include "runtime/driver_api.h"
#include "runtime/event_pool.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace cistern {

class AwaitedFrees {
 public:
  // Of the free of one block: who records its events has it, and the streams that still need one.
  struct Recording {
    std::uint64_t address = 0;
    Block* block = nullptr;  // null: its steps are followed
    StreamUses uses;
  };
  struct Entry : PendingFrees::Entry {
    std::uint64_t address = 0;       // of the block; 0: the entry is over
    std::uint64_t number = 0;        // of the free, among those of all streams
    std::uint64_t freed_at = 0;      // see Block
    Recording* recording = nullptr;  // who will bring the event; null: it is there
  };
  // A stream that has more at once leaves them to the heap.
  static constexpr std::size_t kMost = 32;

  // What the lists lie in.
  struct Storage {
    std::array<Entry, kMost> entries;  // by descending id of their stream
    std::array<Block*, kMost> blocks;
    std::array<CUevent, kMost> idle;
  };

  // Nothing there is looked at before it is written. It outlives this.
  explicit AwaitedFrees(Storage& storage) : entries_(storage.entries), blocks_(storage.blocks), idle_(storage.idle) {}
  // Gives the idle events back.
  ~AwaitedFrees() {
    while (idle_count_ != 0) pool_->release(idle_[--idle_count_]);
  }
  AwaitedFrees(const AwaitedFrees&) = delete;
  AwaitedFrees& operator=(const AwaitedFrees&) = delete;

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::span<const Entry> entries() const noexcept { return {entries_.data(), size_}; }

  // How many places the heap's PendingFrees keeps for these, under the heap's lock.
  [[nodiscard]] std::size_t promised() const noexcept { return promised_; }
  void set_promised(std::size_t places) noexcept { promised_ = places; }
  // So many more may come.
  [[nodiscard]] std::size_t room() const noexcept { return promised_ - std::min(promised_, size_); }

  // One without an event yet, behind those of its stream and of streams with a higher id. Requires: there is room.
  Entry& add(int device, const StreamIdentity& stream, Recording& recording, std::uint64_t number,
             std::uint64_t freed_at) noexcept {
    std::size_t place = size_++;
    for (; place != 0 && entries_[place - 1].stream.id < stream.id; --place) entries_[place] = entries_[place - 1];
    // Member by member: what was written so and is read as a whole soon after stalls the processor.
    Entry& entry = entries_[place];
    entry.event = nullptr;
    entry.device = device;
    entry.stream = stream;
    entry.block = recording.block;
    entry.address = recording.address;
    entry.number = number;
    entry.freed_at = freed_at;
    entry.recording = &recording;
    return entry;
  }
  // The one that the recording has to bring an event of that stream; null: somebody took it over.
  [[nodiscard]] Entry* find(const Recording& recording, const StreamIdentity& stream) noexcept {
    Entry* const end = entries_.data() + size_;
    Entry* const found = std::find_if(entries_.data(), end, [&](const Entry& entry) {
      return entry.recording == &recording && entry.stream.id == stream.id;
    });
    return found == end ? nullptr : found;
  }
  // Whether the block waits for another event than the entry's.
  [[nodiscard]] bool has_others(const Entry& entry) const noexcept {
    return std::any_of(entries_.data(), entries_.data() + size_,
                       [&](const Entry& other) { return &other != &entry && other.address == entry.address; });
  }

  // The blocks that wait. Requires: as many as there are entries at most.
  void begin(Block* block) noexcept { blocks_[count_++] = block; }
  // Requires: it waits.
  void end(const Block* block) noexcept {
    --count_;
    *std::find(blocks_.data(), blocks_.data() + count_, block) = blocks_[count_];
  }
  [[nodiscard]] std::span<Block* const> blocks() const noexcept { return {blocks_.data(), count_}; }
  // The one at the address; null: there is none.
  [[nodiscard]] Block* block_at(std::uint64_t address) const noexcept {
    for (Block* const block : blocks())
      if (block->address == address) return block;
    return nullptr;
  }
  // All entries, which have addresses alone, are of these blocks now. False: one is of none.
  [[nodiscard]] bool know_blocks() noexcept {
    for (Block* const block : blocks()) block->pending_events = 0;
    for (Entry& entry : std::span(entries_.data(), size_)) {
      if (entry.address == 0) continue;
      entry.block = block_at(entry.address);
      if (entry.block == nullptr) return false;
      ++entry.block->pending_events;
      entry.block->freed_at = entry.freed_at;
      if (entry.recording != nullptr) entry.recording->block = entry.block;
    }
    return true;
  }
  void clear() noexcept { size_ = count_ = 0; }

  // An event that nobody uses; null if there is none at hand.
  [[nodiscard]] CUevent take_idle_event() noexcept { return idle_count_ != 0 ? idle_[--idle_count_] : nullptr; }
  [[nodiscard]] bool has_idle_event() const noexcept { return idle_count_ != 0; }
  // `pool` gets it in the end, and must outlive this.
  void keep_idle_event(CUevent event, EventPool& pool) noexcept {
    pool_ = &pool;
    if (idle_count_ == idle_.size())
      pool.release(event);
    else
      idle_[idle_count_++] = event;
  }

  // The lists of several streams as one, in the order of PendingFrees. They are as many as kLists, if that says so.
  template <std::size_t kLists>
  class Merged;

  // What the last round failed with, for the heap; see HeapState::failed_query_.
  void note_failure(CUresult result) noexcept { failure_ = result; }
  [[nodiscard]] CUresult take_failure() noexcept { return std::exchange(failure_, CUDA_SUCCESS); }

 private:
  std::array<Entry, kMost>& entries_;
  std::size_t size_ = 0;
  std::array<Block*, kMost>& blocks_;
  std::size_t count_ = 0;  // of those
  std::size_t promised_ = 0;
  std::array<CUevent, kMost>& idle_;
  std::size_t idle_count_ = 0;
  EventPool* pool_ = nullptr;  // where idle events are from
  CUresult failure_ = CUDA_SUCCESS;
};

template <std::size_t kLists>
class AwaitedFrees::Merged {
 public:
  // Of at most so many streams.
  static constexpr std::size_t kMostLists = kLists == std::dynamic_extent ? 64 : kLists;
  using Lists = std::span<AwaitedFrees* const, kLists>;

  explicit Merged(Lists lists) noexcept : lists_(lists) {
    for (std::size_t i = 0; i < lists_.size(); ++i) places_[i] = {};
  }
  // Which list has the next entry; none: all were seen.
  [[nodiscard]] std::optional<std::size_t> next() const noexcept {
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < lists_.size(); ++i)
      if (places_[i].next != lists_[i]->size_ && (!first.has_value() || comes_before(entry(i), entry(*first))))
        first = i;
    return first;
  }
  [[nodiscard]] Entry& entry(std::size_t list) const noexcept { return lists_[list]->entries_[places_[list].next]; }
  // Past the list's entry, which goes or stays.
  void drop(std::size_t list) noexcept {
    entry(list).address = 0;
    ++places_[list].next;
  }
  void keep(std::size_t list) noexcept {
    Place& place = places_[list];
    std::array<Entry, kMost>& entries = lists_[list]->entries_;
    if (place.kept != place.next) {
      entries[place.kept] = entries[place.next];
      entries[place.next].address = 0;
    }
    ++place.kept;
    ++place.next;
  }
  // The same of all that are of its stream.
  void keep_stream(std::size_t list) noexcept {
    Place& place = places_[list];
    const AwaitedFrees& of = *lists_[list];
    const std::uint64_t id = entry(list).stream.id;
    if (place.kept == place.next && of.entries_[of.size_ - 1].stream.id == id) {
      place.kept = place.next = of.size_;
      return;
    }
    while (place.next != of.size_ && entry(list).stream.id == id) keep(list);
  }
  // Those that were not come to stay, too.
  void end() noexcept {
    for (std::size_t i = 0; i < lists_.size(); ++i) {
      while (places_[i].next != lists_[i]->size_) keep_stream(i);
      lists_[i]->size_ = places_[i].kept;
    }
  }

  // Asks each stream's events in order, up to the first that is not done; not those of streams of which
  // is_behind(entry) says that they are not done. completed(list, entry) when one is; false from it ends the round, and
  // the entry stays. Returns the first result that is neither "done" nor "not ready", which ends the round as well;
  // "not ready" if completed ended it.
  template <class IsBehind, class Completed>
  [[nodiscard]] CUresult poll(const DriverApi& api, EventPool& pool, IsBehind&& is_behind,
                              Completed&& completed) noexcept;

 private:
  struct Place {
    std::size_t next = 0;
    std::size_t kept = 0;
  };
  [[nodiscard]] static bool comes_before(const Entry& a, const Entry& b) noexcept {
    return a.stream.id != b.stream.id ? a.stream.id > b.stream.id : a.number < b.number;
  }

  Lists lists_;
  std::array<Place, kMostLists> places_;  // as many as there are lists
};

template <std::size_t kLists>
template <class IsBehind, class Completed>
CUresult AwaitedFrees::Merged<kLists>::poll(const DriverApi& api, EventPool& pool, IsBehind&& is_behind,
                                            Completed&& completed) noexcept {
  CUresult ended_by = CUDA_SUCCESS;
  std::optional<std::uint64_t> behind;  // the stream whose event is not done
  for (std::optional<std::size_t> list = next(); list.has_value(); list = next()) {
    const Entry& asked = entry(*list);
    CUresult result = CUDA_ERROR_NOT_READY;
    if (behind != asked.stream.id && asked.event != nullptr && !is_behind(asked)) {
      result = api.event_query(asked.event);
      if (result == CUDA_SUCCESS && !completed(*list, asked)) {
        ended_by = CUDA_ERROR_NOT_READY;
        break;
      }
    }
    if (result == CUDA_SUCCESS) {
      lists_[*list]->keep_idle_event(asked.event, pool);
      drop(*list);
      continue;
    }
    if (result != CUDA_ERROR_NOT_READY) {
      ended_by = result;
      break;
    }
    behind = asked.stream.id;
    keep_stream(*list);
  }
  end();
  return ended_by;
}

}  // namespace cistern
