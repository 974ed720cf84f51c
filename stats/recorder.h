#pragma once

// Recorder: the one door into statistics. The allocator reports each transition once, and
// never reads the counters back. Rules: docs/statistics.md, PyTorch's memory_stats. The counters
// and the history come from the same transitions, here.
//
// Not thread-safe: whoever reports holds the heap's lock, or that of the stream whose ledger it is. O(1) a transition;
// a grant is O(ledgers).

#include <cistern/stats.h>

#include "stats/block_ledger.h"
#include "stats/history.h"
#include "stats/scope_ledger.h"
#include "stats/tag_ledger.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cistern {

// The blocks that one stream owns.
struct StreamLedger {
  bool is_apart = false;  // `blocks` counts them, or what it shares, and not the recorder's own ledger
  bool shares = false;    // one ledger with others that are apart
  BlockLedger blocks;
  std::int64_t live = 0;      // bytes in callers' hands, but for what `blocks` has
  std::int64_t pending = 0;   // bytes freed that other streams may still use
  std::int64_t came = 0;      // blocks, since it asked for room last
  std::int64_t scarcity = 0;  // grows with grants that moved no peak: there was room, which others had
  TagShare tags;              // of blocks that it counts by itself

  [[nodiscard]] bool counts_alone() const { return is_apart && !shares; }
  [[nodiscard]] std::int64_t live_bytes() const { return live + blocks.bytes(); }
  // It asked more often than each so many blocks, for as long as that takes.
  static constexpr std::int64_t kWorthAGrant = 32;
  static constexpr std::int64_t kScarce = 16 * kWorthAGrant;
  [[nodiscard]] bool is_scarce() const { return scarcity == kScarce; }
};

// Whose a block is, for a recorder that tells by tag and by stream.
struct Attribution {
  TagId tag = kUntagged;
  StreamLedger* stream = nullptr;
};

// Each transition says where it happens; a recorder without a history does not look.
//
// The transitions are inline: three of them are on the path of every allocation and free.
// They keep only what cannot be derived when somebody reads: of each pool what is current,
// its peak and what was added; of all memory what is current and its peak.
class Recorder {
 public:
  // Of a recorder without a history.
  struct Nowhere {
    TracePoint operator()() const { return {}; }
  };

  // Where transitions are written, too; null (and at first): nowhere. Must outlive the recorder's use.
  void set_history(DeviceHistory* history) { history_ = history; }

  // Room for so many streams that are apart. Throws std::bad_alloc, unchanged.
  void reserve_streams(std::size_t streams) { streams_.reserve(streams); }
  // What a stream reports goes into its own ledger from now on, which may count without the heap's lock, until
  // it is joined again. Requires: reserved.
  void part(StreamLedger& stream) noexcept {
    streams_.push_back(&stream);
    stream.is_apart = true;
  }
  // Requires: it is apart. O(streams apart).
  void join(StreamLedger& stream) noexcept;
  // It counts in one ledger with all that share, which need no grant for what goes from one to another; and by itself
  // again. Requires: it is apart, and does not share; it shares. O(streams apart).
  void share(StreamLedger& stream) noexcept;
  void end_sharing(StreamLedger& stream) noexcept;
  // Of those that share, who report the bytes that came and went to their own `live`.
  [[nodiscard]] BlockLedger& shared() noexcept { return shared_; }
  // How many share.
  [[nodiscard]] std::size_t sharing() const noexcept { return sharing_; }

  // Sizes in bytes. `oversize`: of at least max_split_size.
  void segment_allocated(PoolKind pool, std::int64_t bytes, bool oversize, const TracePoint& at = {}) {
    trace(TraceAction::segment_alloc, at);
    ++kept_.num_device_alloc;
    increase(kept_.segment, pool, 1);
    increase(kept_.reserved_bytes, pool, bytes);
    if (oversize) increase(kept_.oversize_segments, 1);
  }
  // The driver is about to be given the segment: before it may give the address to another. If it
  // refuses, release_refused; else segment_freed.
  void release_begins(const TracePoint& at) { trace(TraceAction::segment_free, at); }
  void release_refused(const TracePoint& at) { trace(TraceAction::segment_alloc, at); }
  void segment_freed(PoolKind pool, std::int64_t bytes, bool oversize) {
    ++kept_.num_device_free;
    decrease(kept_.segment, pool, 1);
    decrease(kept_.reserved_bytes, pool, bytes);
    if (oversize) decrease(kept_.oversize_segments, 1);
  }
  // Pages came into an expandable segment, or went: one call each, however many pages. Segments
  // of that kind are not counted as segments.
  void range_mapped(PoolKind pool, std::int64_t bytes, const TracePoint& at = {}) {
    trace(TraceAction::segment_map, at);
    ++kept_.num_device_alloc;
    increase(kept_.reserved_bytes, pool, bytes);
  }
  void range_unmapped(PoolKind pool, std::int64_t bytes, const TracePoint& at = {}) {
    trace(TraceAction::segment_unmap, at);
    ++kept_.num_device_free;
    decrease(kept_.reserved_bytes, pool, bytes);
  }
  // Makes room for what blocks of the tag will be counted in: to be called before one is handed
  // out. Throws std::bad_alloc, unchanged.
  void reserve(TagId tag) {
    if (tag != kUntagged && !tags_.knows(tag)) keep_tag(tag);
  }
  // A block was handed to the caller. `place` says where, if the history asks.
  template <class Place = Nowhere>
  void block_allocated(PoolKind pool, std::int64_t bytes, std::int64_t requested, const InactiveSplitChange& split,
                       bool oversize, Attribution of = {}, const Place& place = {}) {
    trace(TraceAction::alloc, place);
    if (!ledger(of).came(pool, bytes, requested, split)) ask_for_room(of);
    if (oversize) increase(kept_.oversize_allocations, 1);
    if (of.stream != nullptr && !of.stream->counts_alone()) of.stream->live += bytes;
    if (tags_.is_kept()) tags_.allocated(of.tag, bytes, live_bytes(), share_of(of));
  }
  // The caller gave a block back; other streams may still use it.
  template <class Place = Nowhere>
  void free_requested(PoolKind pool, std::int64_t bytes, bool oversize, Attribution of = {}, const Place& place = {}) {
    trace(TraceAction::free_requested, place);
    wait_began(pool, bytes, oversize, of);
  }
  // The same for a free whose entry is written already.
  void wait_began(PoolKind pool, std::int64_t bytes, bool oversize, Attribution of = {}) {
    lower(kept_.allocation, pool, 1);
    lower(kept_.allocated_bytes, pool, bytes);
    count_free(bytes, oversize, of);
    if (of.stream == nullptr) return;
    of.stream->live -= bytes;
    of.stream->pending += bytes;
  }
  // Room below the peaks for a stream whose ledger said that it has too little, with nothing of what did not fit
  // counted. False: a peak has to move for it. Requires: it is apart.
  [[nodiscard]] bool grant_room(StreamLedger& stream) noexcept;
  // How often the room below the peaks was granted; from 1 on.
  [[nodiscard]] std::uint64_t grants() const { return grants_; }
  // The block is free: `bytes` is its size before it was merged with its neighbours. `grant`: what grants() said when
  // the free was requested; 0 says nothing.
  void free_completed(PoolKind pool, std::int64_t bytes, std::int64_t requested, const InactiveSplitChange& split,
                      Attribution of = {}, std::uint64_t grant = 0) {
    if (of.stream != nullptr) of.stream->pending -= bytes;
    if (grant == grants_) {
      give_room_back(pool, bytes, requested, split, of);
      return;
    }
    lower(kept_.active, pool, 1);
    lower(kept_.active_bytes, pool, bytes);
    lower(kept_.requested_bytes, pool, requested);
    if (!ledger(of).split(pool, split)) ask_for_room(of);
  }
  // Both at once: nobody waits for the block.
  void freed(PoolKind pool, std::int64_t bytes, std::int64_t requested, const InactiveSplitChange& split, bool oversize,
             Attribution of = {}) {
    if (!ledger(of).went(pool, bytes, requested, split)) ask_for_room(of);
    if (of.stream != nullptr && !of.stream->counts_alone()) of.stream->live -= bytes;
    count_free(bytes, oversize, of);
  }
  // A block went and came so many times while nothing else happened.
  void turned(PoolKind pool, std::int64_t times, std::int64_t bytes, std::int64_t requested,
              const InactiveSplitChange& split, bool oversize, Attribution of = {}) {
    ledger(of).turned(pool, times, bytes, requested, split);
    if (!oversize) return;
    kept_.oversize_allocations.allocated += times;
    kept_.oversize_allocations.freed += times;
  }
  // Entries, told before they are counted, for a block that merges loses its place.
  template <class Place>
  void trace(TraceAction action, const Place& place) {
    if (history_ != nullptr && history_->records(action)) history_->add(action, place());
  }
  template <class Place>
  void trace_freed(const Place& place) {
    if (history_ != nullptr && history_->is_on()) history_->add_freed(place());
  }
  void allocation_retried() { ++kept_.num_alloc_retries; }
  // `at`: the driver's free bytes as the address, and the rounded size.
  void out_of_memory(const TracePoint& at = {}) {
    trace(TraceAction::oom, at);
    ++kept_.num_ooms;
  }
  void all_streams_synchronized() { ++kept_.num_sync_all_streams; }
  // A snapshot was taken.
  void snapshot_taken() {
    TracePoint at;
    at.size = kept_.active_bytes.all.current + bytes_in_ledgers();
    trace(TraceAction::snapshot, at);
  }

  // The limit is reported as configured when the heap was made: see MemoryStats.
  void set_max_split_size(std::int64_t bytes) { kept_.max_split_size = bytes; }
  void reset_peaks();
  void reset_accumulated();
  [[nodiscard]] MemoryStats stats() const;
  // What segment_freed will do to the figures, once the driver has taken the segment.
  static void count_release(MemoryStats& stats, PoolKind pool, std::int64_t bytes, bool oversize);

  // Scopes: see ScopeLedger. What a scope saw, until now or until it closes.
  void open_scope(OpenScope& scope);
  [[nodiscard]] MemoryStats scope_stats(const OpenScope& scope) const;
  void close_scope(OpenScope& scope) { scopes_.close(scope); }

  // Of blocks in callers' hands: of all, and of one tag, which is not kUntagged.
  [[nodiscard]] std::int64_t live_bytes() const { return kept_.allocated_bytes.all.current + bytes_in_ledgers(); }
  [[nodiscard]] std::int64_t live_bytes(TagId tag) const { return tags_.live_bytes(tag); }
  // The part of the tag in which a stream that is apart counts a block by itself; null: it is reported. Requires: the
  // stream's lock.
  [[nodiscard]] TagShare::Part* part_of(StreamLedger& stream, TagId tag) noexcept {
    return stream.tags.find(tag, tags_.term());
  }
  // What it counted so: before anything is reported or read.
  void take_in(StreamLedger& stream) noexcept { tags_.take_in(stream.tags); }
  // Whether any block was ever handed out to a tag.
  [[nodiscard]] bool keeps_tags() const { return tags_.is_kept(); }
  // Tags that blocks were handed out to, or asked for; kUntagged is always there.
  [[nodiscard]] std::size_t tag_count() const { return tags_.is_kept() ? tags_.size() : 1; }
  // Requires: tag < tag_count().
  [[nodiscard]] TagFigures tag_figures(std::size_t tag) const {
    return tags_.is_kept() ? tags_.figures(tag) : all_untagged();
  }

 private:
  void trace(TraceAction action, const TracePoint& at) {
    if (history_ != nullptr) history_->add(action, at);
  }
  void count_free(std::int64_t bytes, bool oversize, Attribution of) {
    if (oversize) decrease(kept_.oversize_allocations, 1);
    if (tags_.is_kept()) tags_.freed(of.tag, bytes, share_of(of));
  }
  [[nodiscard]] static TagShare* share_of(Attribution of) {
    return of.stream != nullptr && of.stream->is_apart ? &of.stream->tags : nullptr;
  }
  [[nodiscard]] BlockLedger& ledger(Attribution of) {
    if (of.stream == nullptr || !of.stream->is_apart) return ledger_;
    return of.stream->shares ? shared_ : of.stream->blocks;
  }
  // Visits each.
  template <class Visit>
  void for_each_ledger(Visit&& visit) {
    visit(ledger_);
    if (sharing_ != 0) visit(shared_);
    for (StreamLedger* stream : streams_) visit(stream->blocks);
  }
  template <class Visit>
  void for_each_ledger(Visit&& visit) const {
    visit(ledger_);
    if (sharing_ != 0) visit(shared_);
    for (const StreamLedger* stream : streams_) visit(std::as_const(stream->blocks));
  }
  [[nodiscard]] std::int64_t bytes_in_ledgers() const {
    std::int64_t bytes = 0;
    for_each_ledger([&](const BlockLedger& ledger) { bytes += ledger.bytes(); });
    return bytes;
  }
  // Of a free that was requested since the room was granted: what is allocated fell then, and what is active falls
  // now, so that below the peaks of both there is so much more. The ledger counts the block as gone, for both.
  void give_room_back(PoolKind pool, std::int64_t bytes, std::int64_t requested, const InactiveSplitChange& split,
                      Attribution of) {
    lower(kept_.allocation, pool, -1);
    lower(kept_.allocated_bytes, pool, -bytes);
    if (of.stream != nullptr && of.stream->counts_alone()) of.stream->live += bytes;
    if (!ledger(of).went(pool, bytes, requested, split)) ask_for_room(of);
  }
  // Of what a ledger may hold: the sum of both is what is current. The ledger's room below the peak
  // only becomes larger than it knows.
  static void lower(PoolStat& stat, PoolKind pool, std::int64_t amount) {
    of(stat, pool).current -= amount;
    stat.all.current -= amount;
  }
  static void increase(Stat& stat, std::int64_t amount) {
    stat.current += amount;
    if (stat.current > stat.peak) stat.peak = stat.current;
    stat.allocated += amount;
  }
  static void decrease(Stat& stat, std::int64_t amount) {
    stat.current -= amount;
    stat.freed += amount;
    assert(stat.current >= 0 && "more was taken from a statistic than was added to it");
  }
  static Stat& of(PoolStat& stat, PoolKind pool) { return pool == PoolKind::small ? stat.small_pool : stat.large_pool; }
  static void increase(PoolStat& stat, PoolKind pool, std::int64_t amount) {
    increase(of(stat, pool), amount);
    stat.all.current += amount;
    if (stat.all.current > stat.all.peak) stat.all.peak = stat.all.current;
  }
  static void decrease(PoolStat& stat, PoolKind pool, std::int64_t amount) {
    Stat& part = of(stat, pool);
    part.current -= amount;
    stat.all.current -= amount;
    assert(part.current >= 0 && "more was taken from a statistic than was added to it");
  }

  // The ledgers' figures become those kept. What may come below the peaks is shared out; `asks`: the ledger that had
  // too little of it. Returns whether a peak moved.
  bool write_down(const BlockLedger* asks = nullptr) noexcept;
  // By a ledger that said that a peak may have moved.
  void ask_for_room(Attribution of) noexcept;
  void share_out(BlockLedger::Room& room, const BlockLedger* asks) noexcept;
  // Peaks begin anew. Requires: the ledgers were written down just now.
  void forget_peaks() noexcept;
  void keep_tag(TagId tag);
  [[nodiscard]] TagFigures all_untagged() const;
  [[nodiscard]] MemoryStats all_ever() const;

  // Complete but for what is in the ledgers; and for peaks, which are those since time was last cut (see ScopeLedger),
  // and for the pool statistics: `freed` of a pool holds what was current at the last reset of the accumulated figures,
  // and `allocated` and `freed` of `all` nothing.
  MemoryStats kept_;
  BlockLedger ledger_{0};               // of what no stream counts apart; whoever tells it has the lock for a grant
  std::vector<StreamLedger*> streams_;  // that do, each by itself
  BlockLedger shared_;                  // of those that share
  std::size_t sharing_ = 0;
  std::uint64_t grants_ = 1;  // of room, so far
  StatPeaks earlier_peaks_;   // between the last reset of the peaks and the last cut
  MemoryStats reset_;         // what resets took from `allocated`, `freed` and the counters; nothing else
  ScopeLedger scopes_;
  TagLedger tags_;
  DeviceHistory* history_ = nullptr;
};

}  // namespace cistern
