#include "runtime/simulated/graph_arena.h"

#include <algorithm>
#include <iterator>

namespace cistern::simulated {

std::optional<std::uint64_t> GraphArena::place(std::size_t bytes, const std::function<bool(CUgraphNode)>& precedes) {
  if (bytes > memory_->window().end - memory_->window().begin) return std::nullopt;
  const std::size_t rounded = round_up(bytes, kAllocationAlignment);
  if (const auto freed = take_freed(rounded, precedes)) return freed;
  if (const auto unused = unused_.take_first_fit(rounded)) return unused;
  const std::size_t chunk = round_up(rounded, kGranule);
  const auto address = memory_->reserve(chunk);
  if (!address) return std::nullopt;
  chunks_.emplace(*address, Chunk{chunk});
  unused_.give_back(*address, chunk);
  return unused_.take_first_fit(rounded);
}

std::optional<std::uint64_t> GraphArena::take_freed(std::size_t bytes,
                                                    const std::function<bool(CUgraphNode)>& precedes) {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  for (const auto& [address, span] : freed_) {
    if (!precedes(span.freed_by)) continue;
    if (address != end) begin = address;
    end = address + span.bytes;
    if (end - begin < bytes) continue;
    cut(begin, bytes);
    return begin;
  }
  return std::nullopt;
}

void GraphArena::cut(std::uint64_t address, std::size_t bytes) {
  const std::uint64_t end = address + bytes;
  auto place = freed_.lower_bound(address);
  while (place != freed_.end() && place->first < end) {
    const auto [begin, span] = *place;
    place = freed_.erase(place);
    if (begin + span.bytes > end) freed_.emplace(end, Span{begin + span.bytes - end, span.freed_by});
  }
}

void GraphArena::freed_by(CUgraphNode node, std::uint64_t address, std::size_t bytes) {
  freed_[address] = Span{round_up(bytes, kAllocationAlignment), node};
}

void GraphArena::give_back_addresses() {
  for (const auto& [address, chunk] : chunks_) memory_->give_back_addresses(address, chunk.bytes);
  chunks_.clear();
}

void GraphArena::count_bound(std::uint64_t address, std::size_t bytes, bool more) {
  auto chunk = std::prev(chunks_.upper_bound(address));
  for (; chunk != chunks_.end() && chunk->first < address + bytes; ++chunk) {
    chunk->second.bound += more ? 1 : std::size_t{0} - 1;
  }
}

void GraphArena::bind(std::uint64_t address, std::size_t bytes) { count_bound(address, bytes, true); }
void GraphArena::unbind(std::uint64_t address, std::size_t bytes) { count_bound(address, bytes, false); }

}  // namespace cistern::simulated
