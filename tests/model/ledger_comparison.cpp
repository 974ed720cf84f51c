#include "ledger_comparison.h"
#include "tests/model/number.h"

#include <rapidcheck.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

namespace cistern::model {
namespace {

std::int64_t number(StreamHandle stream) { return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stream)); }

// Of a free block: what a flush would give back.
std::size_t whole_part(const ModelSegment& segment, const ModelBlock& block) {
  if (!segment.expandable()) return block.bytes == segment.bytes ? block.bytes : 0;
  const std::uint64_t begin = block.address - segment.address;
  const std::uint64_t first = (begin + segment.page - 1) / segment.page;
  const std::uint64_t last = (begin + block.bytes) / segment.page;
  return last > first ? (last - first) * segment.page : 0;
}

void require_equal(const std::string& what, std::int64_t expected, std::int64_t actual) {
  if (expected != actual)
    RC_FAIL(what + ": the model has " + std::to_string(expected) + ", the allocator " + std::to_string(actual));
}

void require_equal(const std::string& what, const Stat& expected, const Stat& actual) {
  require_equal(what + ".current", expected.current, actual.current);
  require_equal(what + ".peak", expected.peak, actual.peak);
  require_equal(what + ".allocated", expected.allocated, actual.allocated);
  require_equal(what + ".freed", expected.freed, actual.freed);
}

}  // namespace

void require_equal(const std::string& what, const MemoryStats& expected, const MemoryStats& actual) {
  if (actual == expected) return;  // to name them all takes half of a run
  const auto values = actual.flat();
  for (const auto& [key, value] : expected.flat()) require_equal(what + ": " + key, value, values.at(key));
}

Tag LedgerComparison::tag(int number) { return number == 0 ? Tag{} : Tag("tag " + std::to_string(number)); }

void LedgerComparison::open_scope() {
  if (scopes_.size() >= 5) return;
  scopes_.emplace(++last_scope_, PeakScope(allocator_));
  ledger_.open_scope(last_scope_, model_.stats());
}

void LedgerComparison::close_scope(std::size_t pick) {
  if (scopes_.empty()) return;
  const auto scope = std::next(scopes_.begin(), static_cast<std::ptrdiff_t>(pick % scopes_.size()));
  scope->second.stop();
  require_equal("a scope at its end", ledger_.scopes().at(scope->first), scope->second.stats());
  ledger_.close_scope(scope->first);
  scopes_.erase(scope);
}

void LedgerComparison::reset(bool peaks) {
  if (peaks)
    ledger_.reset_peaks();
  else
    ledger_.reset_accumulated();
  before_ = model_.stats();
}

void LedgerComparison::follow() {
  ledger_.follow(model_.take_changes(), before_, model_.stats());
  before_ = model_.stats();
}

void LedgerComparison::compare() const {
  compare_scopes();
  compare_tags();
  compare_streams(Bytes::all);
  compare_oldest();
  compare_free();
}

void LedgerComparison::compare_live() const {
  compare_tags();
  compare_streams(Bytes::live);
  compare_oldest();
}

void LedgerComparison::compare_scopes() const {
  for (const auto& [number, scope] : scopes_)
    require_equal("scope " + std::to_string(number), ledger_.scopes().at(number), scope.stats());
}

void LedgerComparison::compare_tags() const {
  std::map<std::string, TagStats> actual;
  for (const TagStats& stats : allocator_.tag_stats()) actual[stats.tag] = stats;
  for (const auto& [number, expected] : ledger_.tags()) {
    const TagStats& stats = actual[tag(number).name()];
    require_equal("tag " + std::to_string(number), expected.allocation, stats.allocation);
    require_equal("bytes of tag " + std::to_string(number), expected.allocated_bytes, stats.allocated_bytes);
    require_equal("at the peak, tag " + std::to_string(number), expected.at_peak, stats.at_device_peak_bytes);
  }
}

void LedgerComparison::compare_streams(Bytes which) const {
  std::map<std::int64_t, StreamStats> expected;
  for (const ModelSegment& segment : model_.segments())
    for (const ModelBlock& block : segment.blocks) {
      if (!block.live && !block.pending && !block.free()) continue;  // no memory
      StreamStats& stream = expected[number(streams_[static_cast<std::size_t>(segment.stream)])];
      stream.reserved_bytes += number(block.bytes);
      if (block.live) stream.live_bytes += number(block.bytes);
      if (block.pending) stream.pending_bytes += number(block.bytes);
    }
  for (const AwaitedFree& free : model_.awaited()) {
    StreamStats& stream = expected[number(streams_[static_cast<std::size_t>(free.stream)])];
    ++stream.awaited_frees;
    stream.awaited_bytes += number(free.bytes);
  }
  const std::vector<StreamStats> actual = allocator_.stream_stats();
  if (which == Bytes::all) require_equal("the number of streams", number(expected.size()), number(actual.size()));
  for (const StreamStats& stream : actual) {
    const std::string name = "stream " + std::to_string(stream.stream) + ": ";
    const StreamStats& wanted = expected[stream.stream];
    if (which == Bytes::all) require_equal(name + "reserved bytes", wanted.reserved_bytes, stream.reserved_bytes);
    require_equal(name + "live bytes", wanted.live_bytes, stream.live_bytes);
    require_equal(name + "pending bytes", wanted.pending_bytes, stream.pending_bytes);
    require_equal(name + "awaited frees", wanted.awaited_frees, stream.awaited_frees);
    require_equal(name + "awaited bytes", wanted.awaited_bytes, stream.awaited_bytes);
    RC_ASSERT(stream.awaited_since.has_value() == (wanted.awaited_frees != 0));
  }
}

void LedgerComparison::compare_oldest() const {
  std::optional<AwaitedFree> expected;
  for (const AwaitedFree& free : model_.awaited())
    if (!expected || free.freed < expected->freed) expected = free;
  const auto actual = allocator_.oldest_pending_free();
  RC_ASSERT(actual.has_value() == expected.has_value());
  if (!actual) return;
  require_equal("the oldest pending free", number(expected->bytes), actual->bytes);
  bool waits = false;
  for (const AwaitedFree& free : model_.awaited())
    waits = waits || (free.freed == expected->freed &&
                      number(streams_[static_cast<std::size_t>(free.stream)]) == actual->waits_for);
  RC_ASSERT(waits);
}

void LedgerComparison::compare_free() const {
  std::size_t free = 0;
  std::size_t whole = 0;
  std::size_t in_pools = 0;
  std::size_t largest = 0;
  for (const ModelSegment& segment : model_.segments())
    for (const ModelBlock& block : segment.blocks) {
      if (!block.free()) continue;
      (segment.pool == 0 ? free : in_pools) += block.bytes;
      if (segment.pool != 0) continue;
      largest = std::max(largest, block.bytes);
      whole += whole_part(segment, block);
    }
  const FragmentationStats stats = allocator_.fragmentation_stats();
  require_equal("free bytes", number(free), number(stats.free_bytes));
  require_equal("free bytes that a flush gives back", number(whole), number(stats.free_whole_bytes));
  require_equal("free bytes that stay", number(free - whole), number(stats.free_split_bytes));
  require_equal("free bytes of private pools", number(in_pools), number(stats.free_private_bytes));
  require_equal("the largest free block", number(largest), number(stats.largest_free_block_bytes));
}

}  // namespace cistern::model
