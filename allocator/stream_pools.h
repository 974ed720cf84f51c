#pragma once

// The free blocks of every stream of one heap, or of one private pool, by stream and size class.
//
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/block_pool.h"
#include "runtime/event_pool.h"
#include "runtime/stream_access.h"
#include "stats/recorder.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cistern {

struct PrivatePool;

// The last work of a stream that is over: its event, which goes back to its pool at the end.
struct StreamEnd {
  StreamEnd(EventPool& event_pool, CUevent last_event) : pool(event_pool), event(last_event) {}
  ~StreamEnd() {
    if (event != nullptr) pool.release(event);
  }
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;

  EventPool& pool;
  CUevent event;  // null: the work is done
};

// The two pools of one stream. Lives as long as it has references: segments, and requests
// that are being served.
struct PoolPair {
  StreamIdentity stream;
  PrivatePool* home = nullptr;  // null: the default pool
  BlockPool small;
  BlockPool large;
  StreamBytes bytes;  // of the blocks in these segments
  std::size_t references = 0;
  bool is_ended = false;  // the stream is over
  int waiters = 0;        // threads that wait for the stream with the lock given up
  // Of a stream that is over; null if no event could be recorded: then its segments go back to the
  // driver, which waits, and to nobody else.
  std::shared_ptr<StreamEnd> end;
  [[nodiscard]] BlockPool& of(PoolKind kind) { return kind == PoolKind::small ? small : large; }
};

class StreamPools {
 public:
  explicit StreamPools(PrivatePool* home = nullptr) : home_(home) {}

  // The stream's pools, made when it has none. O(log streams). Throws std::bad_alloc.
  [[nodiscard]] PoolPair& of(const StreamIdentity& stream) {
    return last_ != nullptr && last_->stream.id == stream.id ? *last_ : look_up(stream);
  }
  // Forgets streams without references: their ids never come again.
  void drop_unreferenced();

  // Whether the stream has pools here.
  [[nodiscard]] bool knows(std::uint64_t stream_id) const;
  // The stream is over: no look-up finds its pools any more. Throws std::bad_alloc, unchanged.
  void end_stream(std::uint64_t stream_id, const std::shared_ptr<StreamEnd>& end);
  [[nodiscard]] bool has_ended_streams() const { return !ended_.empty(); }

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
  [[nodiscard]] PoolPair& look_up(const StreamIdentity& stream);
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

  PrivatePool* home_;
  std::vector<std::unique_ptr<PoolPair>> pools_;  // by ascending stream id
  std::vector<std::unique_ptr<PoolPair>> ended_;  // of streams that are over, in that order
  PoolPair* last_ = nullptr;                      // of the last look-up: most come in runs
};

inline PoolPair& StreamPools::look_up(const StreamIdentity& stream) {
  const std::size_t place = place_of(stream.id);
  if (place == pools_.size() || pools_[place]->stream.id != stream.id) {
    auto pool = std::make_unique<PoolPair>();
    pool->stream = stream;
    pool->home = home_;
    pools_.insert(pools_.begin() + static_cast<std::ptrdiff_t>(place), std::move(pool));
  }
  last_ = pools_[place].get();
  return *last_;
}

inline void StreamPools::drop_unreferenced() {
  const auto unreferenced = [](const auto& pool) { return pool->references == 0; };
  std::erase_if(pools_, unreferenced);
  std::erase_if(ended_, unreferenced);
  last_ = nullptr;
}

inline bool StreamPools::knows(std::uint64_t stream_id) const {
  const std::size_t place = place_of(stream_id);
  return place < pools_.size() && pools_[place]->stream.id == stream_id;
}

inline void StreamPools::end_stream(std::uint64_t stream_id, const std::shared_ptr<StreamEnd>& end) {
  if (!knows(stream_id)) return;
  const auto place = pools_.begin() + static_cast<std::ptrdiff_t>(place_of(stream_id));
  ended_.push_back(nullptr);
  ended_.back() = std::move(*place);
  ended_.back()->is_ended = true;
  ended_.back()->end = end;
  pools_.erase(place);
  last_ = nullptr;
}

}  // namespace cistern
