#include "runtime/simulated/graph_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cistern::simulated {
namespace {

bool holds(const GraphAllocation& allocation, std::uint64_t address, std::size_t bytes) {
  const std::uint64_t head = address - allocation.address;
  return head < allocation.bytes && bytes <= allocation.bytes - head;
}

}  // namespace

// --- Capture ----------------------------------------------------------------------------

std::shared_ptr<GraphArena> GraphMemory::make_arena(int device) {
  arenas_.push_back(std::make_shared<GraphArena>(device, memory(device)));
  return arenas_.back();
}

GraphAllocationPtr GraphMemory::add(GraphAllocation made, const std::function<bool(CUgraphNode)>& precedes) {
  collect();
  const auto address = made.arena->place(made.bytes, precedes);
  if (!address) return nullptr;
  auto allocation = std::make_shared<GraphAllocation>(std::move(made));
  allocation->address = *address;
  allocation->id = next_id_++;
  // Former allocations of the graph, whose addresses these are now.
  latest_.erase(latest_.lower_bound(*address), latest_.lower_bound(*address + allocation->bytes));
  latest_[*address] = allocation;
  return allocation;
}

// An arena that only this list holds has no graph, no executable graph, nothing live and nothing
// that runs; and it stays so, for nobody is left to hand it on.
void GraphMemory::collect() {
  const auto is_gone = [this](const std::shared_ptr<GraphArena>& arena) {
    if (arena.use_count() != 1) return false;
    for (auto& [address, chunk] : arena->chunks()) {
      if (chunk.has_memory) take_memory_from(*arena, address, chunk);
      latest_.erase(latest_.lower_bound(address), latest_.lower_bound(address + chunk.bytes));
    }
    arena->give_back_addresses();
    return true;
  };
  std::erase_if(arenas_, is_gone);
}

// --- Look-up ----------------------------------------------------------------------------

GraphAllocationPtr GraphMemory::find(std::uint64_t address) const {
  const auto found = latest_.find(address);
  return found == latest_.end() ? nullptr : found->second.lock();
}

GraphAllocationPtr GraphMemory::find_around(std::uint64_t address, std::size_t bytes) const {
  const auto after = latest_.upper_bound(address);
  if (after == latest_.begin()) return nullptr;
  GraphAllocationPtr allocation = std::prev(after)->second.lock();
  return allocation != nullptr && holds(*allocation, address, bytes) ? allocation : nullptr;
}

bool GraphMemory::may_touch(const Touch& touch, Moment moment) const {
  GraphAllocationPtr allocation;
  if (moment == Moment::call) {
    allocation = find_around(touch.address, touch.bytes);
  } else if (const auto after = resident_.upper_bound(touch.address); after != resident_.begin()) {
    allocation = std::prev(after)->second;
  }
  if (allocation == nullptr || !holds(*allocation, touch.address, touch.bytes)) return false;
  const std::uint64_t devices = touch.write ? allocation->writers : allocation->readers;
  return touch.by == Toucher::copy_engine || (devices >> touch.device & 1) != 0;
}

// --- Launches ---------------------------------------------------------------------------

bool GraphMemory::provide(const Arenas& arenas, const Preceding& preceding) {
  collect();
  std::map<int, std::size_t> lacking;  // by device
  for (const auto& arena : arenas) {
    for (const auto& [address, chunk] : arena->chunks()) {
      if (!chunk.has_memory) lacking[arena->device()] += chunk.bytes;
    }
  }
  std::map<int, std::size_t> provided;
  for (const auto& [device, bytes] : lacking) {
    if (!provide(device, bytes, arenas, preceding)) {
      for (const auto& [former, taken] : provided) stock(former).idle += taken;
      return false;
    }
    provided[device] = bytes;
  }
  for (const auto& arena : arenas) {
    for (auto& [address, chunk] : arena->chunks()) chunk.has_memory = true;
  }
  for (const auto& [device, bytes] : provided) {
    stock(device).mapped += bytes;
    note_peaks(stock(device));
  }
  return true;
}

// Takes so much out of the device's stock, which grows if it has to.
bool GraphMemory::provide(int device, std::size_t bytes, const Arenas& wanting, const Preceding& preceding) {
  Stock& own = stock(device);
  std::size_t to_be_had = own.idle;
  const auto is_wanted = [&](const GraphArena& arena) {
    return std::any_of(wanting.begin(), wanting.end(), [&](const auto& each) { return each.get() == &arena; });
  };
  for_each_unused(device, preceding, [&](GraphArena& arena, std::uint64_t, GraphArena::Chunk& chunk) {
    if (!is_wanted(arena)) to_be_had += chunk.bytes;
  });
  if (to_be_had < bytes) {
    const std::size_t more = bytes - to_be_had;
    if (!memory(device).take_memory(more)) return false;
    own.idle += more;
    note_peaks(own);
  }
  for_each_unused(device, preceding, [&](GraphArena& arena, std::uint64_t address, GraphArena::Chunk& chunk) {
    if (own.idle < bytes && !is_wanted(arena)) take_memory_from(arena, address, chunk);
  });
  own.idle -= bytes;
  return true;
}

template <class Visit>
void GraphMemory::for_each_unused(int device, const Preceding& preceding, Visit&& visit) {
  for (const auto& arena : arenas_) {
    const bool is_in_the_way = arena->is_launched() && preceding.count(arena->launched.id) == 0;
    if (arena->device() != device || is_in_the_way) continue;
    for (auto& [address, chunk] : arena->chunks()) {
      if (chunk.has_memory && chunk.bound == 0) visit(*arena, address, chunk);
    }
  }
}

// What has still to run behind it keeps its bytes: only the accounts say whose the memory is.
void GraphMemory::take_memory_from(GraphArena& arena, std::uint64_t address, GraphArena::Chunk& chunk) {
  Stock& own = stock(arena.device());
  chunk.has_memory = false;
  own.mapped -= chunk.bytes;
  own.idle += chunk.bytes;
  if (!arena.is_launched()) memory(arena.device()).discard(address, chunk.bytes);
}

void GraphMemory::note_peaks(Stock& stock) {
  stock.most_mapped = std::max(stock.most_mapped, stock.mapped);
  stock.most_reserved = std::max(stock.most_reserved, stock.mapped + stock.idle);
}

void GraphMemory::trim(int device) {
  collect();
  for_each_unused(device, {}, [this](GraphArena& arena, std::uint64_t address, GraphArena::Chunk& chunk) {
    take_memory_from(arena, address, chunk);
  });
  memory(device).give_back_memory(std::exchange(stock(device).idle, 0));
}

void GraphMemory::make_live(const GraphAllocationPtr& allocation) {
  allocation->is_live = true;
  live_[allocation->address] = allocation;
  allocation->arena->bind(allocation->address, allocation->bytes);
}

void GraphMemory::withdraw(GraphAllocation& allocation) {
  allocation.is_live = false;
  live_.erase(allocation.address);
}

// --- For operations ---------------------------------------------------------------------

void GraphMemory::free_ran(const GraphAllocation& allocation) {
  if (!allocation.is_freed_by_its_graph()) allocation.arena->unbind(allocation.address, allocation.bytes);
  const auto found = resident_.find(allocation.address);
  if (found != resident_.end() && found->second->id == allocation.id) resident_.erase(found);
}

}  // namespace cistern::simulated
