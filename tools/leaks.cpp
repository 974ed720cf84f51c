#include "tools/leaks.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "allocator/quoted_text.h"
#include "tools/seeded_hash.h"

namespace cistern {
namespace {

using Entries = std::vector<TraceEntry>;
// The entry of the allocation, by the block's address.
using Allocations = std::unordered_map<std::uint64_t, std::size_t, SeededHash>;

bool frees(const TraceEntry& entry) {
  return entry.action == TraceAction::free_requested || entry.action == TraceAction::free_completed;
}

// What a device's history tells of the blocks that are live where it was read to.
struct HistoryReading {
  Allocations live;
  bool freed_unknown = false;  // a block whose allocation is older than the history
};

void read_entry(HistoryReading& reading, const Entries& entries, std::size_t at) {
  const TraceEntry& entry = entries[at];
  if (entry.action == TraceAction::alloc) reading.live[entry.address] = at;
  // A free has two entries; the second finds nothing to take away, nor does it tell anything new.
  if (frees(entry) && reading.live.erase(entry.address) == 0 && entry.action == TraceAction::free_requested)
    reading.freed_unknown = true;
}

class DeviceLeaks {
 public:
  DeviceLeaks(const std::vector<BlockRecord>& live, const Snapshot& snapshot, const LeakScope& scope, int device,
              std::string_view option)
      : live_(live),
        entries_(snapshot.device_traces[static_cast<std::size_t>(device)]),
        ring_overflowed_(snapshot.settings.trace_alloc_overflowed),
        scope_(scope),
        device_(device),
        option_(option) {}

  void add_to(std::vector<LeakedBlock>& found) const {
    if (scope_.older_than)
      add_older(found);
    else if (scope_.since_us && scope_.until_us)
      add_live_at_end(found);
    else if (scope_.since_us)
      add_live_since(found);
    else
      for (const BlockRecord& block : live_) found.push_back({block, false});
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw InvalidArgument(fmt::format("{}: expected {}", option_, expected));
  }

  // The history up to the first entry that is later than `until`, and how many entries those are.
  [[nodiscard]] HistoryReading read(std::optional<std::int64_t> until, std::size_t* read_entries = nullptr) const {
    HistoryReading reading;
    std::size_t at = 0;
    for (; at < entries_.size() && (!until || entries_[at].time_us <= *until); ++at) read_entry(reading, entries_, at);
    if (read_entries != nullptr) *read_entries = at;
    return reading;
  }

  [[nodiscard]] bool is_since(std::size_t entry) const { return entries_[entry].time_us >= *scope_.since_us; }

  // Blocks without an entry were allocated before the history: when exactly must not matter. Of a scope that ended
  // before a ring's first entry even what is known of all blocks tells nothing: others came and went.
  void require_reaches_back(const Allocations& known, bool freed_unknown) const {
    const bool is_overwritten =
        ring_overflowed_ && scope_.until_us && !entries_.empty() && *scope_.until_us < entries_.front().time_us;
    const bool all_known =
        !is_overwritten && !freed_unknown &&
        std::ranges::all_of(live_, [&](const BlockRecord& block) { return known.contains(block.address); });
    if (all_known) return;
    if (entries_.empty()) fail(fmt::format("a snapshot with a history; device {} has blocks and no history", device_));
    if (*scope_.since_us < entries_.front().time_us)
      fail(
          fmt::format("a moment from {} on, where the history of device {} begins", entries_.front().time_us, device_));
  }

  void require_times() const {
    if (std::ranges::any_of(entries_, [](const TraceEntry& entry) { return entry.time_us == 0; }))
      fail(fmt::format("a history with time_us; device {} has entries without", device_));
  }

  void add_live_since(std::vector<LeakedBlock>& found) const {
    require_times();
    const HistoryReading whole = read({});
    require_reaches_back(whole.live, false);
    for (const BlockRecord& block : live_) {
      const auto entry = whole.live.find(block.address);
      if (entry != whole.live.end() && is_since(entry->second))
        found.push_back({with_entry(block, entry->second), false});
    }
  }

  void add_live_at_end(std::vector<LeakedBlock>& found) const {
    require_times();
    std::size_t next = 0;
    HistoryReading at_end = read(*scope_.until_us, &next);
    const Allocations of_scope = std::exchange(at_end.live, {});
    HistoryReading rest{of_scope, false};
    for (std::size_t at = next; at < entries_.size(); ++at) read_entry(rest, entries_, at);
    require_reaches_back(rest.live, rest.freed_unknown);
    const std::size_t first = found.size();
    for (const auto& [address, entry] : of_scope) {
      if (!is_since(entry)) continue;
      const auto still = rest.live.find(address);
      const BlockRecord* block = still != rest.live.end() && still->second == entry ? find_live(address) : nullptr;
      found.push_back(block != nullptr ? LeakedBlock{with_entry(*block, entry), false}
                                       : LeakedBlock{of_entry(entry), true});
    }
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(first), found.end(),
              [](const LeakedBlock& a, const LeakedBlock& b) { return a.block.address < b.block.address; });
  }

  void add_older(std::vector<LeakedBlock>& found) const {
    const HistoryReading whole = read({});
    for (const BlockRecord& block : live_) {
      const auto entry = whole.live.find(block.address);
      const bool known = entry != whole.live.end();
      const std::size_t younger = known ? entries_.size() - 1 - entry->second : entries_.size();
      if (!known && younger < *scope_.older_than)
        fail(fmt::format("at most {}, the entries that the history of device {} has", entries_.size(), device_));
      if (younger >= *scope_.older_than) found.push_back({known ? with_entry(block, entry->second) : block, false});
    }
  }

  // What the file does not say of the block, its allocation may.
  [[nodiscard]] BlockRecord with_entry(BlockRecord block, std::size_t entry) const {
    if (block.stack == kNoStack) block.stack = entries_[entry].stack;
    if (block.tag == kNoTag) block.tag = entries_[entry].tag;
    return block;
  }

  [[nodiscard]] BlockRecord of_entry(std::size_t at) const {
    const TraceEntry& entry = entries_[at];
    BlockRecord block;
    block.device = device_;
    block.stream = entry.stream;
    block.pool_id = entry.pool_id;
    block.address = entry.address;
    block.size = block.requested_size = entry.size;
    block.stack = entry.stack;
    block.tag = entry.tag;
    return block;
  }

  [[nodiscard]] const BlockRecord* find_live(std::uint64_t address) const {
    const auto place = std::ranges::lower_bound(live_, address, {}, &BlockRecord::address);
    return place != live_.end() && place->address == address ? &*place : nullptr;
  }

  const std::vector<BlockRecord>& live_;  // by address
  const Entries& entries_;
  const bool ring_overflowed_;
  const LeakScope& scope_;
  int device_;
  std::string_view option_;
};

std::string names_of_ranges(const Snapshot& snapshot) {
  constexpr std::size_t kMost = 10;
  std::set<std::string_view> names;
  for (const ExternalAnnotation& annotation : snapshot.external_annotations) names.insert(annotation.name);
  std::string text;
  std::size_t listed = 0;
  for (const std::string_view name : names) {
    if (listed == kMost) return text + ", ...";
    text += fmt::format("{}{}", listed++ == 0 ? "" : ", ", quoted_text(name));
  }
  return names.empty() ? "none" : text;
}

}  // namespace

std::vector<LeakedBlock> find_leaks(const Snapshot& snapshot, const LeakScope& scope, std::string_view option) {
  // Every device of a segment has a list of entries, however short.
  std::vector<std::vector<BlockRecord>> live(snapshot.device_traces.size());
  for_each_block(snapshot, [&live](const BlockRecord& block) {
    if (block.state == BlockState::active_allocated) live[static_cast<std::size_t>(block.device)].push_back(block);
  });
  std::vector<LeakedBlock> found;
  for (std::size_t device = 0; device < live.size(); ++device)
    DeviceLeaks(live[device], snapshot, scope, static_cast<int>(device), option).add_to(found);
  return found;
}

LeakScope scope_of_range(const Snapshot& snapshot, std::string_view name, std::optional<int> device,
                         std::string_view option) {
  // By device: an end belongs to a beginning of its own.
  std::map<int, std::vector<std::int64_t>> begun;
  std::optional<LeakScope> ended;
  std::optional<std::int64_t> begun_last;
  const bool names_device = device && std::ranges::any_of(snapshot.external_annotations, [&](const auto& annotation) {
                              return annotation.name == name && annotation.device == *device && annotation.is_start;
                            });
  for (const ExternalAnnotation& annotation : snapshot.external_annotations) {
    if (annotation.name != name || (names_device && annotation.device != *device)) continue;
    std::vector<std::int64_t>& open = begun[annotation.device];
    if (annotation.is_start) {
      open.push_back(annotation.time_us);
    } else if (!open.empty()) {
      ended = LeakScope{open.back(), annotation.time_us, {}};
      open.pop_back();
    }
  }
  if (ended) return *ended;
  for (const auto& [of, open] : begun)
    if (!open.empty()) begun_last = std::max(begun_last.value_or(open.back()), open.back());
  if (begun_last) return {*begun_last, {}, {}};
  throw InvalidArgument(fmt::format("{}: {}: expected a range that began in external_annotations: {}", option,
                                    quoted_text(name), names_of_ranges(snapshot)));
}

}  // namespace cistern
