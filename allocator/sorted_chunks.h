#pragma once

// SortedChunks: small values in the order of their keys, in arrays of up to 64.
//
// To find one is a search by quarters over the chunks' first keys, which lie side by side, and one in a chunk; to walk
// on is to look at the next in memory. A tree's node lies elsewhere each time. Keys are unique. Two chunks side by side
// have more than three quarters of one's room in use, so that what holds n values is known without them, and can be
// brought before it is needed. Complexity: O(log n) to find one; to add or remove one also O(64), and once in O(64)
// times O(n / 64), moves of neighbours in memory. A position is good until something is added or removed. Not
// thread-safe.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "stats/invariant.h"

namespace cistern {

// KeyOf: what a value is sorted by, by value.
template <class T, class KeyOf>
class SortedChunks {
  static_assert(std::is_trivially_copyable_v<T>, "values are moved as memory");

 public:
  using Key = std::invoke_result_t<KeyOf, const T&>;
  static constexpr std::size_t kChunk = 64;

  struct Position {
    std::size_t chunk = 0;
    std::size_t at = 0;
    friend bool operator==(const Position&, const Position&) = default;
  };

  SortedChunks() = default;
  SortedChunks(const SortedChunks&) = delete;
  SortedChunks& operator=(const SortedChunks&) = delete;

  // From here on up to so many values need no memory of the host's. Throws std::bad_alloc, unchanged in what shows.
  void provide(std::size_t values);
  [[nodiscard]] bool has_room_for(std::size_t values) const noexcept { return values <= provided_; }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Position begin() const noexcept { return {}; }
  [[nodiscard]] Position end() const noexcept { return {chunks_.size(), 0}; }
  // Requires: not the end.
  [[nodiscard]] const T& operator[](Position position) const noexcept {
    return chunks_[position.chunk]->values[position.at];
  }
  [[nodiscard]] Position next(Position position) const noexcept {
    return position.at + 1 < chunks_[position.chunk]->size ? Position{position.chunk, position.at + 1}
                                                           : Position{position.chunk + 1, 0};
  }
  // Requires: not the beginning.
  [[nodiscard]] Position previous(Position position) const noexcept {
    if (position.at != 0) return {position.chunk, position.at - 1};
    return {position.chunk - 1, chunks_[position.chunk - 1]->size - 1};
  }
  // The first value whose key is not less; the end, if there is none.
  [[nodiscard]] Position lower_bound(const Key& key) const noexcept;
  [[nodiscard]] bool contains(const Key& key) const noexcept {
    const Position found = lower_bound(key);
    return found != end() && KeyOf{}((*this)[found]) == key;
  }
  // Requires: its key is not there. Throws std::bad_alloc where there is no room, unchanged.
  void insert(const T& value);
  void erase(Position position) noexcept;
  // Requires: it is sorted where the one before was.
  void replace(Position position, const T& value) noexcept {
    chunks_[position.chunk]->values[position.at] = value;
    if (position.at == 0) firsts_[position.chunk] = KeyOf{}(value);
  }
  // Likewise, wherever it is sorted. Requires: no other has its key.
  void change(Position position, const T& value) noexcept;

  // Throws std::logic_error where it is not as said above. O(n).
  void audit() const;

 private:
  struct Chunk {
    std::size_t size = 0;
    std::array<T, kChunk> values;
  };
  static constexpr std::size_t kMostOfMerged = kChunk * 3 / 4;
  static constexpr std::size_t kMore = 4 * kChunk;  // values that are provided for at a time

  // Of two side by side one more than kMostOfMerged: so many chunks at most, and one while one is parted.
  [[nodiscard]] static std::size_t chunks_for(std::size_t values) { return 2 * values / kMostOfMerged + 3; }
  // How many of these are less. Requires: there are some. Three comparisons at a time: each round of a search waits for
  // what the one before it read.
  template <class U, class Of>
  [[nodiscard]] static std::size_t count_less(const U* values, std::size_t count, const Key& key, Of&& of) noexcept {
    const U* begin = values;
    while (count > 4) {
      const std::size_t part = count / 4;
      const std::size_t less = std::size_t{of(begin[part - 1]) < key} + std::size_t{of(begin[2 * part - 1]) < key} +
                               std::size_t{of(begin[3 * part - 1]) < key};
      begin += less * part;
      count = less == 3 ? count - 3 * part : part;
    }
    std::size_t less = static_cast<std::size_t>(begin - values);
    for (std::size_t i = 0; i < 4; ++i)
      less += std::size_t{i < count} & std::size_t{of(begin[i < count ? i : 0]) < key};
    return less;
  }
  // Where a value of that key is, or belongs. Requires: there are chunks.
  [[nodiscard]] Position place_of(const Key& key) const noexcept {
    const std::size_t before = count_less(firsts_.data(), firsts_.size(), key, [](const Key& first) { return first; });
    const std::size_t chunk = before == 0 ? 0 : before - 1;
    if (before < firsts_.size() && firsts_[before] == key) return {before, 0};
    return {chunk, count_less(chunks_[chunk]->values.data(), chunks_[chunk]->size, key, KeyOf{})};
  }
  void put_chunk(std::size_t at, std::unique_ptr<Chunk> chunk) noexcept;
  void take_chunk(std::size_t at) noexcept;
  void part(std::size_t chunk) noexcept;
  bool merge_if_few(std::size_t chunk) noexcept;

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Key> firsts_;  // of each chunk
  std::vector<std::unique_ptr<Chunk>> spare_;
  std::size_t size_ = 0;
  std::size_t provided_ = 0;
};

template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::provide(std::size_t values) {
  if (values <= provided_) return;
  // Some more, so that it is not often; and lists of chunks grow by half, so that they are seldom moved.
  const std::size_t wanted = std::max(values, provided_ + kMore);
  const std::size_t chunks = chunks_for(wanted);
  if (const std::size_t most = spare_.capacity(); most < chunks) {
    const std::size_t more = std::max(chunks, most + most / 2);
    chunks_.reserve(more);
    firsts_.reserve(more);
    spare_.reserve(more);  // the last: what is said of its room is true of all three
  }
  while (chunks_.size() + spare_.size() < chunks) spare_.push_back(std::make_unique_for_overwrite<Chunk>());
  provided_ = wanted;
}

template <class T, class KeyOf>
auto SortedChunks<T, KeyOf>::lower_bound(const Key& key) const noexcept -> Position {
  if (chunks_.empty()) return end();
  const Position place = place_of(key);
  return place.at < chunks_[place.chunk]->size ? place : Position{place.chunk + 1, 0};
}

template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::insert(const T& value) {
  provide(size_ + 1);
  const Key key = KeyOf{}(value);
  const bool is_first = chunks_.empty();
  if (is_first) put_chunk(0, std::exchange(spare_.back(), nullptr));
  Position place = is_first ? Position{} : place_of(key);
  if (chunks_[place.chunk]->size == kChunk) {
    part(place.chunk);
    place = place_of(key);
  }
  Chunk& chunk = *chunks_[place.chunk];
  const auto at = chunk.values.begin() + static_cast<std::ptrdiff_t>(place.at);
  std::copy_backward(at, chunk.values.begin() + static_cast<std::ptrdiff_t>(chunk.size),
                     chunk.values.begin() + static_cast<std::ptrdiff_t>(chunk.size) + 1);
  *at = value;
  ++chunk.size;
  ++size_;
  if (place.at == 0) firsts_[place.chunk] = key;
}

template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::erase(Position position) noexcept {
  Chunk& chunk = *chunks_[position.chunk];
  const auto at = chunk.values.begin() + static_cast<std::ptrdiff_t>(position.at);
  std::copy(at + 1, chunk.values.begin() + static_cast<std::ptrdiff_t>(chunk.size), at);
  --chunk.size;
  --size_;
  if (chunk.size == 0) return take_chunk(position.chunk);
  if (position.at == 0) firsts_[position.chunk] = KeyOf{}(chunk.values.front());
  if (chunk.size > kMostOfMerged) return;
  if (!merge_if_few(position.chunk) && position.chunk != 0) merge_if_few(position.chunk - 1);
}

// Mostly it stays in its chunk.
template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::change(Position position, const T& value) noexcept {
  const auto [number, from] = position;
  const Key key = KeyOf{}(value);
  const bool stays = !(key < firsts_[number]) && (number + 1 == chunks_.size() || key < firsts_[number + 1]);
  if (!stays) {
    erase(position);
    return insert(value);
  }
  Chunk& chunk = *chunks_[number];
  const auto at = [&](std::size_t index) { return chunk.values.begin() + static_cast<std::ptrdiff_t>(index); };
  std::size_t to = count_less(chunk.values.data(), chunk.size, key, KeyOf{});
  if (to > from) {
    std::copy(at(from + 1), at(to), at(from));
    --to;
  } else {
    std::copy_backward(at(to), at(from), at(from + 1));
  }
  chunk.values[to] = value;
  firsts_[number] = KeyOf{}(chunk.values.front());
}

template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::put_chunk(std::size_t at, std::unique_ptr<Chunk> chunk) noexcept {
  spare_.pop_back();
  firsts_.insert(firsts_.begin() + static_cast<std::ptrdiff_t>(at), Key{});
  chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(at), std::move(chunk));
}

template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::take_chunk(std::size_t at) noexcept {
  chunks_[at]->size = 0;
  spare_.push_back(std::move(chunks_[at]));
  chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(at));
  firsts_.erase(firsts_.begin() + static_cast<std::ptrdiff_t>(at));
}

// A full chunk becomes two halves; each joins its neighbour, if that has few.
template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::part(std::size_t chunk) noexcept {
  put_chunk(chunk + 1, std::exchange(spare_.back(), nullptr));
  Chunk& lower = *chunks_[chunk];
  Chunk& upper = *chunks_[chunk + 1];
  std::copy(lower.values.begin() + kChunk / 2, lower.values.end(), upper.values.begin());
  lower.size = kChunk / 2;
  upper.size = kChunk - kChunk / 2;
  firsts_[chunk + 1] = KeyOf{}(upper.values.front());
  merge_if_few(chunk + 1);
  if (chunk != 0) merge_if_few(chunk - 1);
}

// Puts what the next chunk has into this one. False: there is none, or the two have too much.
template <class T, class KeyOf>
bool SortedChunks<T, KeyOf>::merge_if_few(std::size_t chunk) noexcept {
  if (chunk + 1 >= chunks_.size()) return false;
  Chunk& lower = *chunks_[chunk];
  const Chunk& upper = *chunks_[chunk + 1];
  if (lower.size + upper.size > kMostOfMerged) return false;
  std::copy(upper.values.begin(), upper.values.begin() + static_cast<std::ptrdiff_t>(upper.size),
            lower.values.begin() + static_cast<std::ptrdiff_t>(lower.size));
  lower.size += upper.size;
  take_chunk(chunk + 1);
  return true;
}

template <class T, class KeyOf>
void SortedChunks<T, KeyOf>::audit() const {
  std::size_t count = 0;
  require(firsts_.size() == chunks_.size(), "sorted chunks have as many first keys");
  require(chunks_.size() + spare_.size() >= chunks_for(provided_) || provided_ == 0, "sorted chunks lack room");
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = *chunks_[i];
    require(chunk.size > 0 && chunk.size <= kChunk, "a sorted chunk is empty, or too full");
    require(firsts_[i] == KeyOf{}(chunk.values.front()), "a sorted chunk has another first key");
    require(i == 0 || chunk.size + chunks_[i - 1]->size > kMostOfMerged, "two sorted chunks have few values");
    count += chunk.size;
  }
  require(count == size_ && size_ <= provided_, "the count of sorted values is not their number");
  for (Position at = begin(); at != end(); at = next(at))
    require(at == begin() || KeyOf{}((*this)[previous(at)]) < KeyOf{}((*this)[at]), "sorted values are not by key");
}

}  // namespace cistern
