#pragma once

// Freed blocks that other streams may still use: each waits for one event on every stream
// that used it.
//
// One queue a stream, in the order of the records, so that one slow stream never hides
// another's finished frees. Queues are visited with the legacy default stream first, then
// by descending stream id: the order in which PyTorch's recorded runs did.
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/block.h"
#include "allocator/event_pools.h"
#include "runtime/driver_api.h"

#include <cstddef>
#include <cstdint>
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

  PendingFrees(const DriverApi& api, EventPools& pools) : api_(api), pools_(pools) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

  // Queues an event that was recorded on the stream. Throws std::bad_alloc, unchanged.
  void add(const Entry& entry);

  // Asks each queue's events in order, up to the first that is not done. Calls
  // completed(Block*) when a block's last event is done. Returns the first result that is
  // neither "done" nor "not ready"; the events after it stay queued.
  template <class Completed>
  [[nodiscard]] CUresult poll(Completed&& completed);

  // Entries that somebody waits for, in the order of polling. Not to be moved meanwhile.
  struct Batch {
    std::vector<Entry> entries;
    Batch* next = nullptr;
  };
  // Takes every entry out into a batch, for a caller that will wait for them and then put the rest
  // back. Throws std::bad_alloc, unchanged.
  void take_all(Batch& batch);
  // Puts entries [first, last) of a batch back, before what was added since; the batch is over.
  void put_back(Batch& batch, std::size_t first);
  // Ends one entry whose event is done: returns its block if that was the last event.
  [[nodiscard]] Block* finish(const Entry& entry);

  // Visits every entry, those that somebody waits for too.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Batch* batch = batches_; batch != nullptr; batch = batch->next)
      for (const Entry& entry : batch->entries) visit(entry);
    for (const Queue& queue : queues_)
      for (std::size_t i = queue.head; i < queue.entries.size(); ++i) visit(queue.entries[i]);
  }

 private:
  struct Queue {
    int device = 0;
    std::uint64_t stream_id = 0;
    std::size_t head = 0;
    std::vector<Entry> entries;  // [head, size) are queued
  };
  Queue& queue_of(const Entry& entry);
  void pop_front(Queue& queue);
  void drop_empty_queues();

  const DriverApi& api_;
  EventPools& pools_;
  std::vector<Queue> queues_;                // by descending stream id, then device; none is empty
  std::vector<std::vector<Entry>> storage_;  // of queues that became empty, for reuse
  std::size_t size_ = 0;
  Batch* batches_ = nullptr;  // that somebody waits for
};

template <class Completed>
CUresult PendingFrees::poll(Completed&& completed) {
  CUresult result = CUDA_SUCCESS;
  bool emptied = false;
  for (Queue& queue : queues_) {
    while (queue.head < queue.entries.size()) {
      const Entry entry = queue.entries[queue.head];
      result = api_.event_query(entry.event);
      if (result != CUDA_SUCCESS) break;
      pop_front(queue);
      if (Block* block = finish(entry)) completed(block);
    }
    emptied = emptied || queue.head == queue.entries.size();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) break;
    result = CUDA_SUCCESS;
  }
  if (emptied) drop_empty_queues();
  return result;
}

}  // namespace cistern
