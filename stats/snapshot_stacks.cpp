#include "stats/snapshot_stacks.h"

#include "stats/raw_stack_table.h"
#include "stats/symbolizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace cistern {
namespace {

// What a user did not call, on the way from what they called.
bool is_of_the_heap(const FrameInfo& frame) {
  constexpr std::array<std::string_view, 5> kOurs = {
      "cistern::DeviceAllocator::", "cistern::StreamHits::", "cistern::DeviceHeaps::",
      "cistern::CachingAllocator::State::", "cistern::GatheredStack::"};
  return std::ranges::any_of(kOurs, [&](std::string_view ours) { return frame.name.starts_with(ours); });
}

FrameInfo frame_at(std::uintptr_t address, Symbols& symbols) {
  if (const auto known = symbols.frames.find(address); known != symbols.frames.end()) return std::move(known->second);
  FrameInfo frame;
  frame.address = address;
  frame.name = fmt::format("{:#x}", address);
  return frame;
}

}  // namespace

std::span<const std::uintptr_t> SnapshotStacks::stack(std::size_t index) const {
  const std::size_t first = index == 0 ? 0 : ends_[index - 1];
  return {frames_.data() + first, ends_[index] - first};
}

StackIndex SnapshotStacks::index_of(std::span<const std::uintptr_t> frames) {
  const std::uint64_t hash = hash_of(frames.data(), frames.size());
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto place = first; place != last; ++place)
    if (std::ranges::equal(stack(static_cast<std::size_t>(place->second)), frames)) return place->second;
  const auto index = static_cast<StackIndex>(ends_.size());
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  ends_.push_back(frames_.size());
  by_hash_.emplace(hash, index);
  return index;
}

void SnapshotStacks::describe(Snapshot& snapshot) const {
  std::vector<std::uintptr_t> addresses = frames_;
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  Symbols symbols = symbolize(addresses);
  std::vector<SharedFrame> frames;  // of each address
  frames.reserve(addresses.size());
  for (const std::uintptr_t address : addresses) frames.emplace_back(frame_at(address, symbols));
  snapshot.stacks.resize(ends_.size());
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    for (const std::uintptr_t address : stack(i)) {
      const auto place = std::lower_bound(addresses.begin(), addresses.end(), address) - addresses.begin();
      const SharedFrame& frame = frames[static_cast<std::size_t>(place)];
      if (snapshot.stacks[i].empty() && is_of_the_heap(frame)) continue;
      snapshot.stacks[i].push_back(frame);
    }
  }
  snapshot.modules = std::move(symbols.modules);
}

}  // namespace cistern
