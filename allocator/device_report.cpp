// The memory report of one device: what its heap and the driver say, and who its owners are.

#include "allocator/device_heaps.h"
#include "runtime/driver_error.h"
#include "stats/report.h"
#include "stats/snapshot_stacks.h"
#include "stats/stack_owner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace cistern {
namespace {

// The code of the largest is looked up in the program's files, with no lock held.
std::vector<MemoryReport::Owner> named_owners(const std::vector<DeviceAllocator::StackFigures>& stacks) {
  if (stacks.empty()) return {};
  SnapshotStacks table;
  std::vector<StackIndex> indices;
  for (const auto& stack : stacks) indices.push_back(stack.frames.empty() ? kNoStack : table.index_of(stack.frames));
  Snapshot described;
  table.describe(described);
  std::vector<MemoryReport::Owner> owners;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    MemoryReport::Owner& owner = owners.emplace_back();
    owner.bytes = stacks[i].bytes;
    owner.blocks = stacks[i].blocks;
    if (!stacks[i].has_stack) owner.name = "(no stack)";
    if (indices[i] == kNoStack) continue;
    StackOwner named = owner_of(described.stacks[static_cast<std::size_t>(indices[i])], kReportedNameColumns);
    owner.name = std::move(named.function);
    owner.place = std::move(named.place);
    owner.callers = std::move(named.callers);
  }
  return owners;
}

}  // namespace

std::string DeviceHeaps::report(int device) {
  const DriverApi& api = contexts_.api();
  const ContextGuard guard(api, contexts_.primary(device));
  const auto identify = [&] { return fmt::format("device {}", device); };
  MemoryReport report;
  report.device = device;
  char name[256] = "";
  check_driver(api, api.device_get_name(name, sizeof name, contexts_.driver_device(device)),
               DriverEntryId::device_get_name, identify);
  report.device_name = name;
  DeviceAllocator::Figures figures = heap(device).figures();
  check_driver(api, api.mem_get_info(&report.device_free_bytes, &report.device_total_bytes),
               DriverEntryId::mem_get_info, identify);
  const DeviceAllocator::Usage& usage = figures.usage;
  report.stats = usage.stats;
  const std::size_t held = static_cast<std::size_t>(usage.stats.reserved_bytes.all.current);
  // Others may have freed since the heap's figures were read: the picture adds up all the same.
  const std::size_t not_held = report.device_total_bytes - std::min(report.device_total_bytes, held);
  report.device_free_bytes = std::min(report.device_free_bytes, not_held);
  report.outside_bytes = not_held - report.device_free_bytes;
  report.pending_bytes = usage.pending;
  report.pending_requested_bytes = usage.pending_requested;
  report.free_whole_bytes = usage.free_whole;
  report.free_split_bytes = usage.free_split;
  report.free_private_bytes = usage.free_private;
  report.largest_free_block_bytes = usage.largest_free_block;
  report.streams = std::move(figures.streams);
  report.hand_overs = std::move(figures.hand_overs);
  report.oldest_pending_free = figures.oldest_pending_free;
  report.now = std::chrono::steady_clock::now();
  report.tags = std::move(figures.tags);
  report.stacks = named_owners(figures.stacks);
  report.limit_bytes = figures.limit_bytes;
  report.gives_back_pages = figures.options.policy == Policy::expandable || figures.options.policy == Policy::paged;
  const auto& divisions = figures.options.roundup_power2_divisions;
  report.rounds_by_divisions =
      std::any_of(divisions.begin(), divisions.end(), [](std::uint32_t each) { return each > 1; });
  return format_report(report);
}

}  // namespace cistern
