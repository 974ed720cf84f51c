#pragma once

// DeviceHistory: what happened on one device, as the Recorder tells it.
//
// Not thread-safe: who reports holds the heap's lock, or a stream's with that of the places that are claimed, or that
// of the stream that serves alone (StreamHits::write_by_stream_at). Nothing here fails a request: what cannot be kept
// is left out, and counted.

#include <cistern/history.h>
#include <cistern/snapshot.h>

#include "stats/history_ring.h"
#include "stats/history_stage.h"
#include "stats/raw_stack_table.h"
#include "stats/spare_chunk.h"
#include "stats/stack_capture.h"
#include "stats/tags.h"
#include "stats/text_table.h"
#include "stats/tick_clock.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cistern {

// Where a transition happens, and on whose account.
struct TracePoint {
  std::uint64_t address = 0;
  std::int64_t size = 0;    // bytes: requested of a block, all of a segment or range
  std::int64_t stream = 0;  // as SegmentInfo::stream
  std::int64_t pool = 0;    // see encode_pool
  StackId stack = kNoStackId;
  TagId tag = kUntagged;
  TextId text = kNoText;  // none: the text that is current
};

// A pool's id in one number: of the pair one is always 0.
[[nodiscard]] inline std::int64_t encode_pool(std::uint64_t first, std::uint64_t second) noexcept {
  return first != 0 ? static_cast<std::int64_t>(first) : -static_cast<std::int64_t>(second);
}
[[nodiscard]] inline std::pair<std::int64_t, std::int64_t> decode_pool(std::int64_t pool) noexcept {
  return pool > 0 ? std::pair<std::int64_t, std::int64_t>{pool, 0} : std::pair<std::int64_t, std::int64_t>{0, -pool};
}

// Throws InvalidArgument naming the first option out of range.
void require_valid(const HistoryOptions& options);

class DeviceHistory {
 public:
  // Records nothing until it has options.
  DeviceHistory() = default;
  DeviceHistory(const DeviceHistory&) = delete;
  DeviceHistory& operator=(const DeviceHistory&) = delete;

  [[nodiscard]] bool is_on() const noexcept { return recorded_actions_ != 0; }
  [[nodiscard]] bool records(TraceAction action) const noexcept { return (recorded_actions_ & bit(action)) != 0; }
  void add(TraceAction action, const TracePoint& at) noexcept {
    if (records(action)) write(static_cast<std::uint64_t>(action), at, 1, clock_.now());
  }
  void add(TraceAction action, const TracePoint& at, std::uint64_t ticks) noexcept {
    if (records(action)) write(static_cast<std::uint64_t>(action), at, 1, ticks);
  }
  // free_requested and free_completed of a free that was complete at once.
  void add_freed(const TracePoint& at) noexcept { add_freed(at, clock_.now()); }
  void add_freed(const TracePoint& at, std::uint64_t ticks) noexcept {
    const std::uint32_t both = bit(TraceAction::free_requested) | bit(TraceAction::free_completed);
    if ((recorded_actions_ & both) == both) {
      write(kFreed, at, 2, ticks);
    } else {
      add(TraceAction::free_requested, at, ticks);
      add(TraceAction::free_completed, at, ticks);
    }
  }

  // The same of a block that a stream hands out or has back by itself, without a stack or a text of its own.
  // An action is alloc, one of a free, or kFreed. As long as no entry refers to anything, none that goes is looked at.
  template <std::uint64_t kAction>
  void add_own(std::uint64_t address, std::int64_t size, std::int64_t stream, std::uint64_t ticks, TagId tag) noexcept {
    if (!writes_plainly_) [[unlikely]] {
      add_own_by_point(kAction, address, size, stream, ticks, tag);
      return;
    }
    HistoryEntry* const entry = ring_.next(spare_);
    if (entry == nullptr) [[unlikely]] {
      ++lost_;
      return;
    }
    write_own<kAction>(*entry, address, size, stream, ticks, tag);
  }
  // Whether that is at once, and then that: without a call, for who asked clock().counter().
  [[nodiscard, gnu::always_inline]] bool adds_own_at_once() const noexcept {
    return writes_plainly_ && ring_.has_next();
  }
  template <std::uint64_t kAction>
  [[gnu::always_inline]] void add_own_at_once(std::uint64_t address, std::int64_t size, std::int64_t stream,
                                              std::uint64_t ticks) noexcept {
    write_own<kAction>(*ring_.next_in_chunk(), address, size, stream, ticks, kUntagged);
  }

  // What a stream had staged, as it happened: between what other streams stage at the same time, entries are in
  // the order of this, and entries_of puts them in that of time. An action is alloc, one of a free, or kFreed.
  [[nodiscard]] static StagedEvent staged(std::uint64_t action, std::uint64_t address, std::int64_t size,
                                          std::uint64_t ticks, TagId tag = kUntagged) noexcept {
    assert(size >> 48 == 0 && "no device has as much");
    return {ticks, address | (action << 56), static_cast<std::uint64_t>(size) | (std::uint64_t{tag} << 48)};
  }
  void add(std::span<const StagedEvent> events, std::int64_t stream) noexcept;
  // The same in two steps, of which the second needs no lock, so that streams hold each other up for the first alone:
  // places, and what comes there. No places: they are to be added.
  [[nodiscard]] HistoryRing::Claim claim(std::size_t events, std::size_t entries) noexcept;
  // The trace entries that so many events are, if all actions are recorded.
  [[nodiscard]] static std::size_t entries_of(std::span<const StagedEvent> events) noexcept;
  static void fill(const HistoryRing::Claim& claim, std::span<const StagedEvent> events, std::int64_t stream) noexcept;

  // The number of a stack, for a request that holds it until let_go; none if stacks are not kept.
  [[nodiscard]] StackId intern(const CapturedStack& stack) noexcept;
  // For a block or segment, which holds it as well; none if stacks were turned off since it was gathered.
  [[nodiscard]] StackId keep(StackId stack) noexcept {
    if (stack == kNoStackId || options_.enabled == HistoryEnabled::none) return kNoStackId;
    stacks_.keep(stack);
    return stack;
  }
  // See RawStackTable.
  void drop_unused_stacks() noexcept { stacks_.drop_unused(); }
  void let_go(StackId& stack) noexcept {
    if (stack == kNoStackId) return;
    stacks_.let_go(stack);
    stack = kNoStackId;
  }

  // See RawStackTable.
  [[nodiscard]] std::span<const std::uintptr_t> frames_of(StackId stack) const noexcept {
    return stacks_.frames_of(stack);
  }

  // A text's number, which is held until it is used or dropped. Throws std::bad_alloc, unchanged.
  [[nodiscard]] TextId prepare_text(const SharedText& text) {
    const TextId id = texts_.intern(text);
    if (id != kNoText) ++prepared_texts_;
    return id;
  }
  void drop_text(TextId text) noexcept {
    if (text != kNoText) --prepared_texts_;
    let_go_text(text);
  }
  // What entries carry from now on. Requires: a prepared text, or none.
  void use_text(TextId text) noexcept {
    if (text != kNoText) {
      --prepared_texts_;
      entries_refer();
    }
    let_go_text(std::exchange(text_, text));
  }
  // An entry with a text of its own. Throws std::bad_alloc, unchanged.
  void annotate(TracePoint at, const SharedText& text);

  // What the ring that set_options needs with these options is made with.
  struct RingSize {
    std::size_t capacity = 0;
    std::size_t prepared = 0;
  };
  [[nodiscard]] RingSize ring_for(const HistoryOptions& options) const noexcept;
  // What is not used any more: to be destroyed without the lock, after what its entries refer to was let go.
  struct Retired {
    HistoryRing ring;
    ChunkHold spare;
    std::size_t let_go = 0;  // places of the ring whose references are gone
  };
  // Requires: valid options. `ring` is empty; unless the options clear it, what is held moves there. O(chunks),
  // but where a ring that overwrites becomes larger, which copies its entries.
  [[nodiscard]] Retired set_options(HistoryOptions& options, HistoryRing&& ring) noexcept;
  // Lets go what some of the old entries refer to; false when that was all. In pieces, between which the
  // lock is given up.
  [[nodiscard]] bool let_go_some(Retired& retired) noexcept;
  // To be called without the lock, by whoever takes it next.
  void provide() noexcept { spare_.provide(); }
  [[nodiscard]] const HistoryOptions& options() const noexcept { return options_; }
  [[nodiscard]] HistoryInfo info() const noexcept;

  // What a snapshot takes while it holds the heap's lock.
  struct Copy {
    HistoryRing::Cut entries;
    std::size_t shown = 0;   // trace entries that they are shown as, the newest
    bool is_staged = false;  // several streams may have written them out of order
    bool overflowed = false;
    RawStackTable::Copy stacks;
    std::vector<SharedText> texts;  // by number
  };
  // How much that is: for memory to be there before the lock is taken.
  struct Size {
    std::size_t entries = 0;
    std::size_t stacks = 0;
    std::size_t texts = 0;
  };
  [[nodiscard]] Size size() const noexcept { return {ring_.size(), stacks_.stacks_of_copy(), texts_.size()}; }
  // Shares the entries, the stacks and the texts. Throws std::bad_alloc; allocates nothing where `copy` has
  // room for as much. Requires: nothing is in it.
  void copy_to(Copy& copy) const;
  // A copy as a snapshot has it, but that its stacks are the device's own numbers. Called without
  // the lock.
  [[nodiscard]] static std::vector<TraceEntry> entries_of(const Copy& copy, const TickClock::Conversion& time);
  [[nodiscard]] const TickClock& clock() const noexcept { return clock_; }

  // The same without a copy, for when there is no host memory for one: visit(entry, its text), oldest
  // first; visit(addresses) for each number of a stack from 1, without addresses for what nothing refers to.
  template <class Visit>
  void for_each_shown(const TickClock::Conversion& time, Visit&& visit) const {
    show([this](auto&& take) { ring_.for_each(take); }, shown(), time,
         [&](const TraceEntry& entry) {
           visit(entry, texts_.text(static_cast<TextId>(std::max(entry.user_metadata, 0))));
         });
  }
  template <class Visit>
  void for_each_stack(Visit&& visit) const {
    stacks_.for_each(visit);
  }
  [[nodiscard]] std::size_t stack_count() const noexcept { return stacks_.stacks_of_copy(); }
  // history_audit.cpp: verifies that stacks and texts are counted as often as they are referred to: by
  // entries, by the texts that are current or prepared, by blocks and segments as `held` says by number - 1 of
  // the stack, and by as many `requests`. While old entries are being let go nothing is counted. Throws
  // std::logic_error naming what differs.
  void check(std::vector<std::uint64_t> held, std::uint64_t requests) const;
  // Whether anything is missing of what was recorded.
  [[nodiscard]] bool has_overflowed() const noexcept { return recorded_ > shown() || lost_ != 0; }

 private:
  // One that refers to nothing.
  static HistoryEntry plain_entry(std::uint64_t ticks, std::uint64_t place, std::int64_t size, std::int64_t stream,
                                  TagId tag) noexcept {
    return {ticks, place, size, stream, 0, kNoStackId, kNoText, tag};
  }
  template <std::uint64_t kAction>
  [[gnu::always_inline]] void write_own(HistoryEntry& entry, std::uint64_t address, std::int64_t size,
                                        std::int64_t stream, std::uint64_t ticks, TagId tag) noexcept {
    recorded_ += kAction == kFreed ? 2 : 1;
    entry = plain_entry(ticks, address | (kAction << 56), size, stream, tag);
  }
  void add_own_by_point(std::uint64_t action, std::uint64_t address, std::int64_t size, std::int64_t stream,
                        std::uint64_t ticks, TagId tag) noexcept;
  static TraceEntry describe(const HistoryEntry& entry, TraceAction action, std::int64_t time_us);
  // Calls visit(entry) for the newest `shown` trace entries of those that for_each(take) passes on.
  template <class ForEach, class Visit>
  static void show(ForEach&& for_each, std::size_t shown, const TickClock::Conversion& time, Visit&& visit);

  static HistoryOptions off() {
    HistoryOptions options;
    options.enabled = HistoryEnabled::none;
    options.context = HistoryContext::none;
    return options;
  }
  static constexpr std::uint32_t bit(TraceAction action) { return std::uint32_t{1} << static_cast<unsigned>(action); }
  [[nodiscard]] static std::uint32_t actions_of(const HistoryOptions& options) noexcept;
  [[nodiscard]] static std::size_t entries_wanted(const HistoryOptions& options) noexcept;
  [[nodiscard]] static bool clears(const HistoryOptions& options) noexcept {
    return options.clear_history || options.enabled == HistoryEnabled::none;
  }
  [[nodiscard]] std::size_t shown() const noexcept {
    return static_cast<std::size_t>(std::min<std::uint64_t>(recorded_ - gone_, ring_.limit()));
  }
  void write(std::uint64_t action, const TracePoint& at, unsigned entries, std::uint64_t ticks) noexcept {
    HistoryEntry* entry = ring_.next(spare_);
    if (entry == nullptr) {
      ++lost_;
      return;
    }
    // The event that goes was the last to count these.
    if (ring_.is_full()) drop_references(*entry);
    recorded_ += entries;
    entry->ticks = ticks;
    entry->place = at.address | (action << 56);
    entry->size = at.size;
    entry->stream = at.stream;
    entry->pool = at.pool;
    entry->stack = keeps_stacks_ ? keep(at.stack) : kNoStackId;
    // An annotation has its own text or none.
    const bool has_own = at.text != kNoText || action == static_cast<std::uint64_t>(TraceAction::annotate);
    entry->text = has_own ? at.text : text_;
    if (entry->text != kNoText) texts_.keep(entry->text);
    entry->tag = at.tag;
  }

  void drop_references(HistoryEntry entry) noexcept {
    let_go(entry.stack);
    let_go_text(entry.text);
  }
  void let_go_text(TextId text) noexcept {
    if (text != kNoText) texts_.let_go(text);
  }
  void keep_on(std::size_t capacity, HistoryRing& ring) noexcept;
  // Whether what a block's way into use and back is told as is all recorded, and no entry refers to anything.
  [[nodiscard]] bool can_write_plainly() const noexcept {
    constexpr std::uint32_t kOwn =
        bit(TraceAction::alloc) | bit(TraceAction::free_requested) | bit(TraceAction::free_completed);
    return !entries_refer_ && (recorded_actions_ & kOwn) == kOwn;
  }
  void entries_refer() noexcept {
    entries_refer_ = true;
    writes_plainly_ = false;
  }

  // What every thread reads that records.
  std::uint32_t recorded_actions_ = 0;
  bool keeps_stacks_ = false;    // entries do
  bool writes_plainly_ = false;  // as can_write_plainly says
  TickClock clock_;
  mutable SpareChunk spare_;  // to look at the ring makes it want one
  // What changes with every event lies apart, for streams that serve at the same time read the above.
  alignas(64) HistoryRing ring_;
  std::uint64_t recorded_ = 0;  // trace entries, since it was cleared
  std::uint64_t gone_ = 0;      // of those, overwritten before the ring changed its size
  std::uint64_t lost_ = 0;
  bool is_staged_ = false;      // some of what was recorded was staged
  bool entries_refer_ = false;  // to stacks or texts, perhaps: since it was cleared
  RawStackTable stacks_;
  TextTable texts_;
  TextId text_ = kNoText;
  std::uint64_t prepared_texts_ = 0;
  std::uint64_t retiring_ = 0;  // rings whose entries are being let go
  // Of stacks by frame pointers, and by tables: how many, and what those that were timed took.
  struct Gathered {
    std::uint64_t count = 0;
    std::uint64_t timed = 0;
    std::uint64_t ticks = 0;
  };
  std::array<Gathered, 2> gathered_;
  HistoryOptions options_ = off();
};

// A ring of n entries shows n, however many more are in those that stand for two. Counters of several
// cores may differ by a little: the order is that of the writing.
template <class ForEach, class Visit>
void DeviceHistory::show(ForEach&& for_each, std::size_t shown, const TickClock::Conversion& time, Visit&& visit) {
  std::size_t all = 0;
  for_each([&all](const HistoryEntry& entry) { all += entry.action() == kFreed ? 2 : 1; });
  std::size_t skipped = all - shown;
  std::int64_t latest = 0;
  const auto show_one = [&](const HistoryEntry& entry, TraceAction action) {
    if (skipped != 0)
      --skipped;
    else
      visit(describe(entry, action, latest));
  };
  for_each([&](const HistoryEntry& entry) {
    latest = std::max(latest, time.unix_us(entry.ticks));
    if (entry.action() == kFreed) {
      show_one(entry, TraceAction::free_requested);
      show_one(entry, TraceAction::free_completed);
    } else {
      show_one(entry, static_cast<TraceAction>(entry.action()));
    }
  });
}

}  // namespace cistern
