#include "stats/recorder.h"

#include "stats/fields.h"

#include <algorithm>
#include <utility>

namespace cistern {
namespace {

// Adds `sign` times what `other` has accumulated to `stats`.
void accumulate(MemoryStats& stats, const MemoryStats& other, std::int64_t sign) {
  const auto add = [sign](Stat& stat, const Stat& amount) {
    stat.allocated += sign * amount.allocated;
    stat.freed += sign * amount.freed;
  };
  for (const PoolStatField& field : kPoolStatFields)
    for (const PoolField& pool : kPoolFields) add(stats.*field.member.*pool.member, other.*field.member.*pool.member);
  for (const StatField& field : kStatFields) add(stats.*field.member, other.*field.member);
  for (const CounterField& counter : kCounterFields)
    if (counter.accumulates) stats.*counter.member += sign * (other.*counter.member);
}

}  // namespace

bool Recorder::write_down(const BlockLedger* asks) noexcept {
  BlockLedger::Room room;
  for_each_ledger([&](BlockLedger& ledger) {
    ledger.close(kept_);
    if (ledger.takes_part()) room.add(ledger, asks == &ledger);
  });
  const bool moved = BlockLedger::raise_peaks(kept_);
  share_out(room, asks);
  return moved;
}

void Recorder::ask_for_room(Attribution of) noexcept {
  const bool moved = write_down(&ledger(of));
  if (of.stream == nullptr || !of.stream->counts_alone()) return;
  const std::int64_t came = std::exchange(of.stream->came, 0);
  if (moved) return;
  const std::int64_t scarcity = of.stream->scarcity + StreamLedger::kWorthAGrant - came;
  of.stream->scarcity = std::clamp<std::int64_t>(scarcity, 0, StreamLedger::kScarce);
}

bool Recorder::grant_room(StreamLedger& stream) noexcept {
  const Attribution of{kUntagged, &stream};
  const std::int64_t scarcity = stream.scarcity;
  ask_for_room(of);
  if (ledger(of).got_what_it_needed()) return true;
  stream.scarcity = scarcity;  // a peak moves
  return false;
}

// Requires: all that the ledgers have is written down, and those that take part were added.
void Recorder::share_out(BlockLedger::Room& room, const BlockLedger* asks) noexcept {
  ++grants_;
  room.share_out(kept_);
  ledger_.begin(room, asks == &ledger_);
  if (sharing_ != 0) shared_.begin(room, asks == &shared_);
  for (StreamLedger* stream : streams_) {
    stream->live += stream->blocks.bytes();
    stream->came += stream->blocks.blocks_came();
    stream->blocks.begin(room, asks == &stream->blocks);
  }
}

void Recorder::join(StreamLedger& stream) noexcept {
  if (stream.shares) end_sharing(stream);
  if (stream.blocks.has_moved()) write_down();
  std::erase(streams_, &stream);
  stream.blocks = BlockLedger();
  stream.is_apart = false;
  stream.scarcity = stream.came = 0;
}

void Recorder::share(StreamLedger& stream) noexcept {
  if (stream.blocks.has_moved()) write_down();
  std::erase(streams_, &stream);
  stream.blocks = BlockLedger();
  stream.shares = true;
  stream.scarcity = stream.came = 0;
  ++sharing_;
}

// What is shared has its bytes in `live` of each already.
void Recorder::end_sharing(StreamLedger& stream) noexcept {
  if (shared_.has_moved()) write_down();
  streams_.push_back(&stream);
  stream.shares = false;
  if (--sharing_ == 0) shared_ = BlockLedger();
}

MemoryStats Recorder::stats() const {
  MemoryStats stats = kept_;
  for_each_ledger([&](const BlockLedger& ledger) { ledger.add_to(stats); });
  BlockLedger::raise_peaks(stats);
  for (const PoolStatField& field : kPoolStatFields) {
    PoolStat& stat = stats.*field.member;
    for (Stat* pool : {&stat.small_pool, &stat.large_pool}) {
      pool->freed += pool->allocated - pool->current;
      stat.all.allocated += pool->allocated;
      stat.all.freed += pool->freed;
    }
  }
  earlier_peaks_.apply_to(stats);
  return stats;
}

void Recorder::count_release(MemoryStats& stats, PoolKind pool, std::int64_t bytes, bool oversize) {
  ++stats.num_device_free;
  for (Stat* stat : {&stats.segment.all, &of(stats.segment, pool)}) decrease(*stat, 1);
  for (Stat* stat : {&stats.reserved_bytes.all, &of(stats.reserved_bytes, pool)}) decrease(*stat, bytes);
  if (oversize) decrease(stats.oversize_segments, 1);
}

void Recorder::forget_peaks() noexcept {
  visit_stats(kept_, [](Stat& stat) { stat.peak = stat.current; });
  BlockLedger::Room room;
  for_each_ledger([&](const BlockLedger& ledger) {
    if (ledger.takes_part()) room.add(ledger, false);
  });
  share_out(room, nullptr);
}

void Recorder::reset_peaks() {
  write_down();
  scopes_.cut(kept_);
  earlier_peaks_ = StatPeaks();
  forget_peaks();
  tags_.reset_peaks(kept_.allocated_bytes.all.current);
}

void Recorder::reset_accumulated() {
  write_down();
  accumulate(reset_, stats(), 1);
  for (const PoolStatField& field : kPoolStatFields)
    for (Stat* pool : {&(kept_.*field.member).small_pool, &(kept_.*field.member).large_pool}) {
      pool->allocated = 0;
      pool->freed = pool->current;
    }
  for (const StatField& field : kStatFields) {
    Stat& stat = kept_.*field.member;
    stat.allocated = stat.freed = 0;
  }
  for (const CounterField& counter : kCounterFields)
    if (counter.accumulates) kept_.*counter.member = 0;
  tags_.reset_accumulated();
}

// As if nothing had ever been reset, but for the peaks.
MemoryStats Recorder::all_ever() const {
  MemoryStats stats = this->stats();
  accumulate(stats, reset_, 1);
  return stats;
}

void Recorder::open_scope(OpenScope& scope) {
  write_down();
  scopes_.cut(kept_);
  earlier_peaks_.raise(kept_);
  forget_peaks();
  scopes_.open(scope, all_ever());
}

MemoryStats Recorder::scope_stats(const OpenScope& scope) const {
  MemoryStats stats = all_ever();
  accumulate(stats, scope.at_start, -1);
  StatPeaks peaks = scopes_.peaks(scope);
  peaks.raise(kept_);
  visit_stats(stats, [](Stat& stat) { stat.peak = stat.current; });
  peaks.apply_to(stats);
  return stats;
}

void Recorder::keep_tag(TagId tag) { tags_.keep(tag, all_untagged()); }

TagFigures Recorder::all_untagged() const {
  const MemoryStats stats = this->stats();
  return {stats.allocation.all, stats.allocated_bytes.all, stats.allocated_bytes.all.peak};
}

}  // namespace cistern
