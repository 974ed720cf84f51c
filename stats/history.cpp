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

std::size_t DeviceHistory::capacity_for(const HistoryOptions& options) const noexcept {
  if (options.enabled == HistoryEnabled::none) return 0;
  const std::size_t wanted = options.enabled == HistoryEnabled::all ? options.max_entries : 1;
  return options.clear_history ? wanted : std::max(wanted, shown());
}

void DeviceHistory::set_options(HistoryOptions&& options, HistoryRing&& ring) noexcept {
  const bool clears = options.clear_history || options.enabled == HistoryEnabled::none;
  ring_.for_each([&](HistoryEntry entry) {
    HistoryEntry* place = clears ? nullptr : ring.next();
    if (place == nullptr) {
      drop_references(entry);
    } else {
      if (ring.is_full()) drop_references(*place);
      *place = entry;
    }
  });
  if (!clears) gone_ = recorded_ - shown();
  ring_ = std::move(ring);
  if (clears) {
    recorded_ = gone_ = lost_ = 0;
    gathered_ = {};
    stacks_.forget_losses();
  }
  options_ = std::move(options);
  if (options_.enabled == HistoryEnabled::none) options_.context = HistoryContext::none;
  recorded_actions_ = actions_of(options_);
  keeps_stacks_ = options_.context >= HistoryContext::alloc;
  stacks_.set_limit(options_.max_stack_bytes);
}

StackId DeviceHistory::intern(const CapturedStack& stack) noexcept {
  if (options_.context == HistoryContext::none || stack.depth == 0) return kNoStackId;
  Gathered& gathered = gathered_[stack.by_tables ? 1 : 0];
  ++gathered.count;
  gathered.timed += stack.ticks != 0 ? 1 : 0;
  gathered.ticks += stack.ticks;
  return stacks_.intern(stack);
}

void DeviceHistory::set_text(std::string_view text) {
  const TextId id = texts_.intern(text);
  if (text_ != kNoText) texts_.let_go(text_);
  text_ = id;
}

void DeviceHistory::annotate(TracePoint at, std::string_view text) {
  at.text = texts_.intern(text);
  add(TraceAction::annotate, at);
  if (at.text != kNoText) texts_.let_go(at.text);
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
  copy.entries.resize(ring_.size());
  ring_.copy_to(copy.entries.data());
  copy.shown = shown();
  stacks_.copy_to(copy.stacks);
  copy.texts = texts_.copy();
  copy.overflowed = has_overflowed();
}

std::vector<TraceEntry> DeviceHistory::entries_of(const Copy& copy, const TickClock::Conversion& time) {
  std::vector<TraceEntry> entries;
  entries.reserve(copy.shown);
  show(
      [&copy](auto&& take) {
        for (const HistoryEntry& entry : copy.entries) take(entry);
      },
      copy.shown, time, [&entries](const TraceEntry& entry) { entries.push_back(entry); });
  return entries;
}

}  // namespace cistern
