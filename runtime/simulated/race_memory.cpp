#include "runtime/simulated/race_memory.h"

#include <algorithm>
#include <utility>

namespace cistern::simulated {
namespace {

RaceLifetimePtr live_at(const RaceMemory::Lifetimes& lifetimes, std::uint64_t address) {
  const auto* piece = lifetimes.find(address);
  const bool is_it = piece != nullptr && piece->value->is_live() && piece->value->address == address;
  return is_it ? piece->value : nullptr;
}

void end_all(RaceMemory::Lifetimes& lifetimes, std::uint64_t begin, std::uint64_t end, RaceStackId stack,
             std::uint64_t sequence) {
  lifetimes.for_each(begin, end, [&](std::uint64_t, std::uint64_t, const RaceLifetimePtr& lifetime) {
    if (!lifetime->is_live()) return;
    lifetime->died = sequence;
    lifetime->freed = stack;
  });
}

}  // namespace

void RaceMemory::begin_block(RaceLifetimePtr block) {
  allocations_.for_each(block->address, block->end(),
                        [](std::uint64_t, std::uint64_t, const RaceLifetimePtr& under) { under->has_blocks = true; });
  const std::uint64_t begin = block->address;
  const std::uint64_t end = block->end();
  blocks_.assign(begin, end, std::move(block));
}

void RaceMemory::begin_allocation(RaceLifetimePtr allocation) {
  const std::uint64_t begin = allocation->address;
  const std::uint64_t end = allocation->end();
  blocks_.erase(begin, end);
  allocations_.assign(begin, end, std::move(allocation));
}

RaceLifetimePtr RaceMemory::live_block(std::uint64_t address) const { return live_at(blocks_, address); }
RaceLifetimePtr RaceMemory::live_allocation(std::uint64_t address) const { return live_at(allocations_, address); }

RaceLifetimePtr RaceMemory::find(std::uint64_t address) const {
  if (const auto* block = blocks_.find(address)) return block->value;
  const auto* allocation = allocations_.find(address);
  return allocation == nullptr ? nullptr : allocation->value;
}

void RaceMemory::end_block(RaceLifetime& block, RaceStackId stack, std::uint64_t sequence) {
  block.died = sequence;
  block.freed = stack;
}

void RaceMemory::end_allocations(std::uint64_t begin, std::uint64_t end, RaceStackId stack, std::uint64_t sequence) {
  end_all(blocks_, begin, end, stack, sequence);
  end_all(allocations_, begin, end, stack, sequence);
}

void RaceMemory::forget(std::uint64_t begin, std::uint64_t end) {
  blocks_.erase(begin, end);
  allocations_.erase(begin, end);
}

std::optional<RaceTrespass> RaceMemory::judge(std::uint64_t begin, std::uint64_t end) const {
  if (begin >= end) return std::nullopt;
  const auto* block = blocks_.find(begin);
  if (block == nullptr) return judge_allocation(begin, end);
  const RaceLifetimePtr& lifetime = block->value;
  if (!lifetime->is_live()) return RaceTrespass{RaceKind::dead_memory, begin, std::min(end, block->end), lifetime};
  if (end <= lifetime->end()) return std::nullopt;
  return RaceTrespass{RaceKind::out_of_bounds, lifetime->end(), end, lifetime};
}

std::optional<RaceTrespass> RaceMemory::judge_node(std::uint64_t begin, std::uint64_t end,
                                                   std::uint64_t captured) const {
  const auto* block = begin < end ? blocks_.find(begin) : nullptr;
  if (block == nullptr) return judge(begin, end);
  if (block->value->is_kept_for_graphs) return std::nullopt;
  if (block->value->born > captured) {
    return RaceTrespass{RaceKind::dead_memory, begin, std::min(end, block->end), block->value};
  }
  return judge(begin, end);
}

std::optional<RaceTrespass> RaceMemory::judge_allocation(std::uint64_t begin, std::uint64_t end) const {
  RaceLifetimePtr previous;
  for (std::uint64_t at = begin; at < end;) {
    const auto* piece = allocations_.find(at);
    if (piece == nullptr) {
      if (previous == nullptr) return std::nullopt;  // nobody told of it: the driver judges
      return RaceTrespass{RaceKind::out_of_bounds, at, end, previous};
    }
    const RaceLifetimePtr& lifetime = piece->value;
    if (previous != nullptr && !(previous->is_row && lifetime->is_row && lifetime->is_live()))
      return RaceTrespass{RaceKind::out_of_bounds, at, end, previous};
    if (!lifetime->is_live() || lifetime->has_blocks)
      return RaceTrespass{RaceKind::dead_memory, at, std::min(end, piece->end), lifetime};
    previous = lifetime;
    at = piece->end;
  }
  return std::nullopt;
}

}  // namespace cistern::simulated
