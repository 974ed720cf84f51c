#pragma once

// StreamPools: the StreamHeaps of the default pool, or of one private pool, by stream.
//
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/stream_heap_arena.h"
#include "runtime/stream_access.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cistern {

struct PrivatePool;

class StreamPools {
 public:
  explicit StreamPools(StreamHeapArena& arena, PrivatePool* home = nullptr) : arena_(arena), home_(home) {}
  StreamPools(const StreamPools&) = delete;
  StreamPools& operator=(const StreamPools&) = delete;

  // The stream's pools, made when it has none. O(log streams). Throws std::bad_alloc.
  [[nodiscard]] StreamHeap& of(const StreamIdentity& stream) {
    return last_ != nullptr && last_->stream.id == stream.id ? *last_ : look_up(stream);
  }
  // Whether any stream has references. O(streams) where none has.
  [[nodiscard]] bool is_referenced() const {
    const auto has_references = [](const StreamHeap* heap) { return heap->references != 0; };
    return std::any_of(pools_.begin(), pools_.end(), has_references) ||
           std::any_of(ended_.begin(), ended_.end(), has_references);
  }
  // Forgets streams without references: their ids never come again.
  void drop_unreferenced() noexcept;
  // Those that are over alone. O(streams that are over).
  void drop_ended() noexcept;

  // Whether the stream has pools here.
  [[nodiscard]] bool knows(std::uint64_t stream_id) const;
  // The stream is over: no look-up finds its pools any more. Throws std::bad_alloc, unchanged.
  void end_stream(std::uint64_t stream_id, const std::shared_ptr<StreamEnd>& end);
  [[nodiscard]] bool has_ended_streams() const { return !ended_.empty(); }
  // Whether so many ended since it was looked last which of them can be forgotten that it is worth a look: O(1) a
  // stream.
  [[nodiscard]] bool has_many_ended() const { return ended_.size() > 2 * ended_kept_ + kFewEnded; }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& pool : pools_) visit(*pool);
    for (const auto& pool : ended_) visit(*pool);
  }
  template <class Visit>
  void for_each_ended(Visit&& visit) const {
    for (const auto& pool : ended_) visit(*pool);
  }

 private:
  static constexpr std::size_t kFewEnded = 8;

  [[nodiscard]] StreamHeap& look_up(const StreamIdentity& stream);
  void drop_unreferenced(std::vector<StreamHeap*>& pools) noexcept;
  [[nodiscard]] std::size_t place_of(std::uint64_t stream_id) const {
    std::size_t low = 0;
    for (std::size_t high = pools_.size(); low < high;) {
      const std::size_t middle = low + (high - low) / 2;
      if (pools_[middle]->stream.id < stream_id)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  StreamHeapArena& arena_;
  PrivatePool* home_;
  std::vector<StreamHeap*> pools_;  // by ascending stream id
  std::vector<StreamHeap*> ended_;  // of streams that are over, in that order
  std::size_t ended_kept_ = 0;      // of those, the last time that some were forgotten
  StreamHeap* last_ = nullptr;      // of the last look-up: most come in runs
};

inline StreamHeap& StreamPools::look_up(const StreamIdentity& stream) {
  const std::size_t place = place_of(stream.id);
  if (place == pools_.size() || pools_[place]->stream.id != stream.id) {
    pools_.push_back(nullptr);
    try {
      StreamHeap& taken = arena_.take(stream, home_);
      std::rotate(pools_.begin() + static_cast<std::ptrdiff_t>(place), pools_.end() - 1, pools_.end());
      pools_[place] = &taken;
    } catch (...) {
      pools_.pop_back();
      throw;
    }
  }
  last_ = pools_[place];
  return *last_;
}

inline void StreamPools::drop_unreferenced() noexcept {
  drop_unreferenced(pools_);
  drop_ended();
  last_ = nullptr;
}

inline void StreamPools::drop_ended() noexcept {
  drop_unreferenced(ended_);
  ended_kept_ = ended_.size();
}

inline void StreamPools::drop_unreferenced(std::vector<StreamHeap*>& pools) noexcept {
  std::erase_if(pools, [this](StreamHeap* heap) {
    if (heap->references != 0) return false;
    arena_.give_back(*heap);
    return true;
  });
}

inline bool StreamPools::knows(std::uint64_t stream_id) const {
  const std::size_t place = place_of(stream_id);
  return place < pools_.size() && pools_[place]->stream.id == stream_id;
}

inline void StreamPools::end_stream(std::uint64_t stream_id, const std::shared_ptr<StreamEnd>& end) {
  if (!knows(stream_id)) return;
  const auto place = pools_.begin() + static_cast<std::ptrdiff_t>(place_of(stream_id));
  ended_.push_back(*place);
  arena_.end(**place);
  (*place)->end = end;
  pools_.erase(place);
  last_ = nullptr;
}

}  // namespace cistern
