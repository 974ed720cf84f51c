#include "stats/history.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace cistern {
namespace {

constexpr std::array<const char*, 10> kActionNames{"alloc",        "free_requested", "free_completed", "segment_alloc",
                                                   "segment_free", "segment_map",    "segment_unmap",  "snapshot",
                                                   "oom",          "annotate"};

void require(bool holds, std::string_view name, std::size_t value, std::string_view expected) {
  if (!holds) throw InvalidArgument(fmt::format("record_history: {} {}: expected {}", name, value, expected));
}

}  // namespace

TraceEntry DeviceHistory::describe(const HistoryEntry& entry, TraceAction action, std::int64_t time_us) {
  TraceEntry described;
  described.action = action;
  described.address = entry.address();
  described.size = entry.size;
  described.stream = entry.stream;
  described.time_us = time_us;
  described.pool_id = decode_pool(entry.pool);
  described.stack = static_cast<StackIndex>(entry.stack) - 1;
  if (entry.text != kNoText) described.user_metadata = entry.text;
  described.tag = static_cast<TagIndex>(entry.tag) - 1;
  return described;
}

const char* to_string(TraceAction action) noexcept {
  const auto index = static_cast<std::size_t>(action);
  return index < kActionNames.size() ? kActionNames[index] : "unknown";
}

TraceAction trace_action(std::string_view name) {
  const auto place = std::find(kActionNames.begin(), kActionNames.end(), name);
  if (place == kActionNames.end())
    throw InvalidArgument(fmt::format("history action '{}': expected one of {}", name, fmt::join(kActionNames, ", ")));
  return static_cast<TraceAction>(place - kActionNames.begin());
}

void require_valid(const HistoryOptions& options) {
  require(options.max_entries >= 1, "max_entries", options.max_entries, "at least 1");
  require(options.max_frames >= 1 && options.max_frames <= kMaxStackFrames, "max_frames", options.max_frames,
          "1 to 128");
}

std::uint32_t DeviceHistory::actions_of(const HistoryOptions& options) noexcept {
  if (options.enabled == HistoryEnabled::none) return 0;
  std::uint32_t actions = (std::uint32_t{1} << kActionNames.size()) - 1;
  for (const TraceAction action : options.skip_actions) actions &= ~bit(action);
  return actions;
}

std::size_t DeviceHistory::entries_wanted(const HistoryOptions& options) noexcept {
  if (options.enabled == HistoryEnabled::none) return 0;
  return options.enabled == HistoryEnabled::all ? options.max_entries : 1;
}

DeviceHistory::RingSize DeviceHistory::ring_for(const HistoryOptions& options) const noexcept {
  const std::size_t wanted = entries_wanted(options);
  if (clears(options)) return {wanted, 0};
  return {std::max(wanted, shown()), ring_.is_full() ? ring_.size() : 0};
}

// Takes what is held over into `ring`, or goes on without it. What was recorded since the new ring was made
// is held too: nothing is dropped for a limit, and nothing here takes memory that may not be had.
void DeviceHistory::keep_on(std::size_t capacity, HistoryRing& ring) noexcept {
  if (!ring_.is_full()) {
    ring.set_capacity(capacity);
    if (ring.continue_from(ring_))
      ring_.swap(ring);
    else
      ring_.set_capacity(capacity);
    return;
  }
  if (capacity <= ring_.size()) return;
  ring.set_capacity(capacity);
  ring_.for_each([&](const HistoryEntry& entry) {
    HistoryEntry* place = ring.next(spare_);
    if (place == nullptr) {
      drop_references(entry);
    } else {
      if (ring.is_full()) drop_references(*place);
      *place = entry;
    }
  });
  ring_.swap(ring);
}

void DeviceHistory::add(std::span<const StagedEvent> events, std::int64_t stream) noexcept {
  is_staged_ = true;
  for (const StagedEvent& event : events) {
    const HistoryEntry from = plain_entry(event.ticks, event.place, event.size(), stream, event.tag());
    const TracePoint at{from.address(), from.size, stream, 0, kNoStackId, from.tag, kNoText};
    if (from.action() == kFreed)
      add_freed(at, event.ticks);
    else
      add(static_cast<TraceAction>(from.action()), at, event.ticks);
  }
}

void DeviceHistory::add_own_by_point(std::uint64_t action, std::uint64_t address, std::int64_t size,
                                     std::int64_t stream, std::uint64_t ticks, TagId tag) noexcept {
  TracePoint at;
  at.tag = tag;
  at.address = address;
  at.size = size;
  at.stream = stream;
  if (action == kFreed)
    add_freed(at, ticks);
  else
    add(static_cast<TraceAction>(action), at, ticks);
}

// Nothing that is counted elsewhere may come or go with the entries.
HistoryRing::Claim DeviceHistory::claim(std::size_t events, std::size_t entries) noexcept {
  if (!writes_plainly_) return {};
  const HistoryRing::Claim claim = ring_.claim(events);
  if (claim.first == nullptr) return {};
  is_staged_ = true;
  recorded_ += entries;
  return claim;
}

std::size_t DeviceHistory::entries_of(std::span<const StagedEvent> events) noexcept {
  std::size_t entries = events.size();
  for (const StagedEvent& event : events) entries += event.place >> 56 == kFreed ? 1 : 0;
  return entries;
}

void DeviceHistory::fill(const HistoryRing::Claim& claim, std::span<const StagedEvent> events,
                         std::int64_t stream) noexcept {
  HistoryEntry* entry = claim.first;
  for (const StagedEvent& event : events)
    *entry++ = plain_entry(event.ticks, event.place, event.size(), stream, event.tag());
  ChunkHold::end_filling(claim.chunk);
}

DeviceHistory::Retired DeviceHistory::set_options(HistoryOptions& options, HistoryRing&& ring) noexcept {
  Retired retired;
  retired.spare = spare_.take();
  const bool clears_all = clears(options);
  if (clears_all) {
    ring_.swap(ring);
    recorded_ = gone_ = lost_ = 0;
    is_staged_ = false;
    entries_refer_ = text_ != kNoText;
    gathered_ = {};
    stacks_.forget_losses();
  } else {
    const std::size_t held = shown();
    gone_ = recorded_ - held;
    keep_on(std::max(entries_wanted(options), held), ring);
  }
  if (!clears_all) retired.let_go = ring.size();  // nothing is there, or its references have moved
  retired.ring = std::move(ring);
  ++retiring_;
  if (ring_.awaits_chunk()) spare_.want();
  std::swap(options_, options);
  if (options_.enabled == HistoryEnabled::none) options_.context = HistoryContext::none;
  recorded_actions_ = actions_of(options_);
  keeps_stacks_ = options_.context >= HistoryContext::alloc;
  entries_refer_ = entries_refer_ || keeps_stacks_;
  writes_plainly_ = can_write_plainly();
  stacks_.set_limit(options_.max_stack_bytes);
  return retired;
}

bool DeviceHistory::let_go_some(Retired& retired) noexcept {
  constexpr std::size_t kAtOnce = 4096;  // some ten microseconds
  const std::size_t end = std::min(retired.ring.size(), retired.let_go + kAtOnce);
  for (; retired.let_go < end; ++retired.let_go) drop_references(retired.ring.at(retired.let_go));
  if (end < retired.ring.size()) return true;
  --retiring_;
  return false;
}

StackId DeviceHistory::intern(const CapturedStack& stack) noexcept {
  if (options_.context == HistoryContext::none || stack.depth == 0) return kNoStackId;
  Gathered& gathered = gathered_[stack.by_tables ? 1 : 0];
  ++gathered.count;
  gathered.timed += stack.ticks != 0 ? 1 : 0;
  gathered.ticks += stack.ticks;
  return stacks_.intern(stack);
}

void DeviceHistory::annotate(TracePoint at, const SharedText& text) {
  at.text = texts_.intern(text);
  entries_refer();
  add(TraceAction::annotate, at);
  let_go_text(at.text);
}

HistoryInfo DeviceHistory::info() const noexcept {
  HistoryInfo info;
  info.entries = shown();
  info.recorded = recorded_;
  info.lost = lost_;
  info.stacks = stacks_.size();
  info.stack_bytes = stacks_.bytes();
  info.stacks_lost = stacks_.lost();
  const double ns_per_tick = TickClock::Conversion(clock_).ns_per_tick();
  const auto mean_ns = [&](const Gathered& gathered) {
    return gathered.timed == 0
               ? 0.0
               : static_cast<double>(gathered.ticks) * ns_per_tick / static_cast<double>(gathered.timed);
  };
  info.by_frame_pointers = gathered_[0].count;
  info.ns_by_frame_pointers = mean_ns(gathered_[0]);
  info.by_unwind_tables = gathered_[1].count;
  info.ns_by_unwind_tables = mean_ns(gathered_[1]);
  return info;
}

void DeviceHistory::copy_to(Copy& copy) const {
  if (!copy.entries.has_room_for(ring_.size())) copy.entries.reserve(ring_.size());
  stacks_.copy_to(copy.stacks);
  texts_.copy_to(copy.texts);
  ring_.cut_to(copy.entries);
  // The ring will have to replace what it shares.
  if (ring_.awaits_chunk()) spare_.want();
  copy.shown = shown();
  copy.is_staged = is_staged_;
  copy.overflowed = has_overflowed();
}

std::vector<TraceEntry> DeviceHistory::entries_of(const Copy& copy, const TickClock::Conversion& time) {
  std::vector<TraceEntry> entries;
  entries.reserve(copy.shown);
  const auto collect = [&entries](const TraceEntry& entry) { entries.push_back(entry); };
  if (!copy.is_staged) {
    show([&copy](auto&& take) { copy.entries.for_each(take); }, copy.shown, time, collect);
    return entries;
  }
  std::vector<const HistoryEntry*> order;
  order.reserve(copy.entries.size());
  copy.entries.for_each([&order](const HistoryEntry& entry) { order.push_back(&entry); });
  std::stable_sort(order.begin(), order.end(),
                   [](const HistoryEntry* a, const HistoryEntry* b) { return a->ticks < b->ticks; });
  const auto in_order = [&order](auto&& take) {
    for (const HistoryEntry* entry : order) take(*entry);
  };
  show(in_order, copy.shown, time, collect);
  return entries;
}

}  // namespace cistern
