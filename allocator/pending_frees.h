#pragma once

// Freed blocks that other streams may still use: each waits for one event on every stream
// that used it.
//
// One queue a stream, in the order of the records, so that one slow stream never hides
// another's finished frees. Queues are visited with the legacy default stream first, then
// by descending stream id: the order in which PyTorch's recorded runs did.
// Only add takes host memory: when memory runs out, what is pending is waited for without any.
// Complexity: to add or to end one O(queues), to poll O(queues and events that are done), to visit or take O(entries).
// Not thread-safe: the owning heap holds its lock around every call, but those of has_done and has_of: these may come
// from several threads at once, each with the lock of a stream that is awake, which who has the heap's holds, too.

#include "allocator/block.h"
#include "allocator/event_pools.h"
#include "runtime/driver_api.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cistern {

class PendingFrees {
 public:
  struct Entry {
    CUevent event = nullptr;
    int device = 0;  // the stream's, and so the event's
    StreamIdentity stream;
    Block* block = nullptr;
  };
  // An entry in its queue, or in a batch.
  struct Node : Entry {
    Node* next = nullptr;
    // Somebody who may not end it was told that its event is done.
    mutable std::atomic<bool> is_done{false};
  };

  // Of the heap of that device.
  PendingFrees(const DriverApi& api, EventPools& pools, int device) : api_(api), pools_(pools), device_(device) {}
  ~PendingFrees();
  PendingFrees(const PendingFrees&) = delete;
  PendingFrees& operator=(const PendingFrees&) = delete;

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

  // An event of that device that nobody uses; null if there is none at hand.
  [[nodiscard]] CUevent take_idle_event(int device) noexcept {
    return device == device_ && idle_count_ != 0 ? idle_[--idle_count_] : nullptr;
  }
  // Queues an event that was recorded on the stream. Throws std::bad_alloc, unchanged.
  void add(const Entry& entry);
  // Keeps places for so many more, for who cannot take host memory when it queues them. Throws std::bad_alloc,
  // unchanged.
  void promise(std::size_t entries);
  // In one of those. Requires: it was promised.
  void add_promised(const Entry& entry) noexcept;

  // Asks each queue's events in order, up to the first that is not done. Calls
  // completed(Block*) when a block's last event is done. Returns the first result that is
  // neither "done" nor "not ready"; the events after it stay queued.
  template <class Completed>
  [[nodiscard]] CUresult poll(Completed&& completed);

  // Whether the first event of a queue is done, or cannot be asked for: who ends frees has something to do. The event
  // is not asked for again.
  [[nodiscard]] bool has_done() const noexcept;
  // Whether some wait for that stream.
  [[nodiscard]] bool has_of(int device, const StreamIdentity& stream) const noexcept {
    return std::any_of(queues_.begin(), queues_.end(), [&](const Queue& queue) {
      return queue.stream_id == stream.id && queue.device == device && queue.first != nullptr;
    });
  }

  // For who asks the events without the lock, one thread at a time: copies of the first entries of the queues, without
  // the first `skip` of those; returns how many. Then each whose event is done is ended, if nobody else ends any:
  // returns its block if that was the last event. Queues stay, also empty ones, until drop_ended.
  [[nodiscard]] std::size_t firsts(std::size_t skip, std::span<Entry> entries) const noexcept;
  [[nodiscard]] Block* finish_first(const Entry& entry) noexcept;
  void drop_ended() noexcept { drop_empty_queues(); }

  // Visits every entry but those.
  template <class Visit>
  void for_each_queued(Visit&& visit) const {
    for (const Queue& queue : queues_)
      for (const Node* node = queue.first; node != nullptr; node = node->next) visit(*node);
  }

  // Entries that somebody waits for, in the order of polling. Not to be moved meanwhile. Whoever
  // took them may read them without the lock.
  struct Batch {
    Node* first = nullptr;
    Batch* next = nullptr;
  };
  // Takes every entry out into a batch, for a caller that will wait for them and then put the rest
  // back.
  void take_all(Batch& batch) noexcept;
  // The same of those blocks' entries that are queued. Requires: the blocks are by address of their records.
  void take(std::span<Block* const> blocks, Batch& batch) noexcept;
  // Ends the batch's first entry, whose event is done: returns its block if that was the last event.
  [[nodiscard]] Block* finish_first(Batch& batch) noexcept;
  // Puts what is left of a batch back, before what was added since; the batch is over.
  void put_back(Batch& batch) noexcept;

  // Visits every entry, those that somebody waits for too.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Batch* batch = batches_; batch != nullptr; batch = batch->next)
      for (const Node* node = batch->first; node != nullptr; node = node->next) visit(*node);
    for (const Queue& queue : queues_)
      for (const Node* node = queue.first; node != nullptr; node = node->next) visit(*node);
  }

 private:
  struct Queue {
    int device = 0;
    std::uint64_t stream_id = 0;
    Node* first = nullptr;
    Node* last = nullptr;
  };
  using Queues = std::vector<Queue>;
  [[nodiscard]] Queues::iterator place_of(const Entry& entry) noexcept;
  [[nodiscard]] static bool is_for(const Queue& queue, const Entry& entry) {
    return queue.stream_id == entry.stream.id && queue.device == entry.device;
  }
  void queue(const Entry& entry);
  [[nodiscard]] Node* pop_front(Queue& queue) noexcept;
  [[nodiscard]] Block* finish(Node* node) noexcept;
  void drop_empty_queues() noexcept;
  void reserve_queues(std::size_t more);
  void add_chunk();

  const DriverApi& api_;
  EventPools& pools_;
  const int device_;
  // Of that device, kept at hand: its pool has a lock of its own.
  std::array<CUevent, 16> idle_{};
  std::size_t idle_count_ = 0;
  // By descending stream id, then device. None is empty, but while somebody waits: who puts entries
  // back finds the queue that they were in.
  Queues queues_;
  std::size_t size_ = 0;      // in the queues
  Batch* batches_ = nullptr;  // that somebody waits for
  std::vector<std::unique_ptr<Node[]>> chunks_;
  Node* free_ = nullptr;  // linked by `next`
  std::size_t free_count_ = 0;
  std::size_t promised_ = 0;  // of those
};

template <class Completed>
CUresult PendingFrees::poll(Completed&& completed) {
  CUresult result = CUDA_SUCCESS;
  bool emptied = false;
  for (Queue& queue : queues_) {
    while (queue.first != nullptr) {
      if (!queue.first->is_done.load(std::memory_order_relaxed)) result = api_.event_query(queue.first->event);
      if (result != CUDA_SUCCESS) break;
      if (Block* block = finish(pop_front(queue))) completed(block);
    }
    emptied = emptied || queue.first == nullptr;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) break;
    result = CUDA_SUCCESS;
  }
  if (emptied) drop_empty_queues();
  return result;
}

}  // namespace cistern
