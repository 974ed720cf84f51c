#include "runtime/simulated/pool_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cistern::simulated {

std::optional<PoolMemory::Taken> PoolMemory::take(const Request& request) {
  const std::size_t bytes = rounded(request.bytes);
  const auto taken = [](std::optional<std::uint64_t> address, Targets behind = {}) {
    return address ? std::optional<Taken>(Taken{*address, std::move(behind)}) : std::nullopt;
  };
  if (const auto own = take_of_stream(bytes, request.stream)) return taken(own);
  std::unordered_set<std::uint64_t> preceding;
  if (!pieces_.empty() && request.rules.follow_event_dependencies) {
    preceding = request.preceding();
    const auto is_ordered = [&](const Free& free) {
      return free.stream == request.stream || (!free.ran && preceding.count(free.operation.id) != 0);
    };
    if (const auto ordered = take_pieces(bytes, is_ordered)) {
      cut(*ordered, bytes);
      return taken(ordered);
    }
  }
  if (request.rules.allow_opportunistic) settle();
  if (const auto settled = settled_.take_first_fit(bytes)) return taken(settled);
  if (grow(bytes, request.most_reserved)) return taken(settled_.take_first_fit(bytes));
  if (!request.rules.allow_internal_dependencies) return std::nullopt;
  if (const auto any = take_pieces(bytes, [](const Free&) { return true; })) return taken(any, cut(*any, bytes));
  return std::nullopt;
}

std::optional<std::uint64_t> PoolMemory::take_of_stream(std::size_t bytes, std::uint64_t stream) {
  const auto own = of_stream_.find(stream);
  if (own == of_stream_.end()) return std::nullopt;
  const auto address = own->second.take_first_fit(bytes);
  if (!address) return std::nullopt;
  own->second.give_back(*address, bytes);  // cut takes it out of both
  cut(*address, bytes);
  return address;
}

std::optional<std::uint64_t> PoolMemory::take_pieces(std::size_t bytes,
                                                     const std::function<bool(const Free&)>& usable) {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  for (const auto& [address, piece] : pieces_) {
    if (!usable(frees_.at(piece.free))) continue;
    if (address != end) begin = address;
    end = address + piece.bytes;
    if (end - begin >= bytes) return begin;
  }
  return std::nullopt;
}

Targets PoolMemory::cut(std::uint64_t address, std::size_t bytes) {
  Targets frees;
  const std::uint64_t end = address + bytes;
  auto piece = std::prev(pieces_.upper_bound(address));
  while (piece != pieces_.end() && piece->first < end) {
    const std::uint64_t begin = piece->first;
    const Piece whole = piece->second;
    const std::uint64_t piece_end = begin + whole.bytes;
    const Free& free = frees_.at(whole.free);
    frees.push_back(free.operation);
    const std::uint64_t from = std::max(begin, address);
    const std::uint64_t to = std::min(piece_end, end);
    static_cast<void>(of_stream_.at(free.stream).take(from, to - from));
    piece = pieces_.erase(piece);
    if (begin < from) pieces_.emplace(begin, Piece{from - begin, whole.free});
    if (to < piece_end) piece = pieces_.emplace(to, Piece{piece_end - to, whole.free}).first;
  }
  return frees;
}

bool PoolMemory::grow(std::size_t bytes, std::size_t most_reserved) {
  const std::size_t chunk = round_up(bytes, kGranule);
  const auto fits = [&] { return chunk >= bytes && chunk <= most_reserved && reserved_ <= most_reserved - chunk; };
  std::optional<std::uint64_t> address;
  if (fits()) address = device_->take_chunk(chunk);
  if (!address) {
    // What the pool itself holds unused, in pieces that are too small, makes room.
    trim_to(0);
    if (fits()) address = device_->take_chunk(chunk);
  }
  if (!address) return false;
  chunks_.emplace(*address, chunk);
  settled_.give_back(*address, chunk);
  reserved_ += chunk;
  most_reserved_ = std::max(most_reserved_, reserved_);
  return true;
}

std::uint64_t PoolMemory::give_back(std::uint64_t address, std::size_t bytes, std::uint64_t stream, Target operation) {
  const std::uint64_t number = next_free_++;
  const std::size_t whole = rounded(bytes);
  frees_.emplace(number, Free{address, whole, stream, operation, false});
  pieces_.emplace(address, Piece{whole, number});
  of_stream_[stream].give_back(address, whole);
  return number;
}

void PoolMemory::settle() {
  for (auto free = frees_.begin(); free != frees_.end();) {
    if (!free->second.ran) {
      ++free;
      continue;
    }
    const std::uint64_t end = free->second.address + free->second.bytes;
    for (auto piece = pieces_.lower_bound(free->second.address); piece != pieces_.end() && piece->first < end;) {
      if (piece->second.free != free->first) {
        ++piece;
        continue;
      }
      static_cast<void>(of_stream_.at(free->second.stream).take(piece->first, piece->second.bytes));
      settled_.give_back(piece->first, piece->second.bytes);
      piece = pieces_.erase(piece);
    }
    free = frees_.erase(free);
  }
}

void PoolMemory::trim_to(std::size_t bytes) {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end() && reserved_ > bytes;) {
    const auto [address, size] = *chunk;
    if (reserved_ - size < bytes || !settled_.take(address, size)) {
      ++chunk;
      continue;
    }
    device_->give_back_chunk(address, size);
    reserved_ -= size;
    chunk = chunks_.erase(chunk);
  }
}

}  // namespace cistern::simulated
