#pragma once

// RaceIntervalMap: a value for each of disjoint address ranges.
//
// Assigning cuts what it overlaps. Logarithmic in the ranges kept, linear in those touched.
// Not thread-safe.

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace cistern::simulated {

template <class Value>
class RaceIntervalMap {
 public:
  struct Piece {
    std::uint64_t end;
    Value value;
  };
  using Pieces = std::map<std::uint64_t, Piece>;

  // Makes `address` the border of pieces, if it lies inside one.
  void split(std::uint64_t address) {
    const auto after = pieces_.lower_bound(address);
    if (after == pieces_.begin()) return;
    const auto piece = std::prev(after);
    if (piece->second.end <= address) return;
    pieces_.emplace_hint(after, address, Piece{piece->second.end, piece->second.value});
    piece->second.end = address;
  }
  void erase(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    split(begin);
    split(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
  }
  void assign(std::uint64_t begin, std::uint64_t end, Value value) {
    if (begin >= end) return;
    erase(begin, end);
    pieces_.emplace(begin, Piece{end, std::move(value)});
  }
  // Calls visit(begin, end, value) for each piece of the range, cut to it.
  template <class Visit>
  void for_each(std::uint64_t begin, std::uint64_t end, Visit visit) const {
    auto piece = pieces_.upper_bound(begin);
    if (piece != pieces_.begin() && std::prev(piece)->second.end > begin) --piece;
    for (; piece != pieces_.end() && piece->first < end; ++piece) {
      visit(piece->first > begin ? piece->first : begin, piece->second.end < end ? piece->second.end : end,
            piece->second.value);
    }
  }
  // The piece that holds the address; nullptr if none does. `*begin` is where it begins.
  [[nodiscard]] const Piece* find(std::uint64_t address, std::uint64_t* begin = nullptr) const {
    auto piece = pieces_.upper_bound(address);
    if (piece == pieces_.begin()) return nullptr;
    --piece;
    if (piece->second.end <= address) return nullptr;
    if (begin != nullptr) *begin = piece->first;
    return &piece->second;
  }
  [[nodiscard]] Pieces& pieces() noexcept { return pieces_; }
  [[nodiscard]] std::size_t size() const noexcept { return pieces_.size(); }

 private:
  Pieces pieces_;
};

}  // namespace cistern::simulated
