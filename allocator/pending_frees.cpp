#include "allocator/pending_frees.h"

#include <algorithm>
#include <utility>

namespace cistern {

PendingFrees::Queue& PendingFrees::queue_of(const Entry& entry) {
  auto place = std::lower_bound(queues_.begin(), queues_.end(), entry, [](const Queue& queue, const Entry& wanted) {
    return queue.stream_id != wanted.stream.id ? queue.stream_id > wanted.stream.id : queue.device < wanted.device;
  });
  if (place == queues_.end() || place->stream_id != entry.stream.id || place->device != entry.device) {
    Queue queue;
    queue.device = entry.device;
    queue.stream_id = entry.stream.id;
    if (!storage_.empty()) {
      queue.entries = std::move(storage_.back());
      storage_.pop_back();
    }
    place = queues_.insert(place, std::move(queue));
  }
  return *place;
}

void PendingFrees::add(const Entry& entry) {
  Queue& queue = queue_of(entry);
  try {
    queue.entries.push_back(entry);
  } catch (...) {
    drop_empty_queues();
    throw;
  }
  ++size_;
}

void PendingFrees::pop_front(Queue& queue) {
  ++queue.head;
  --size_;
  // Moves the rest down once half is used up: amortised constant, and no growth.
  if (queue.head >= 32 && queue.head * 2 >= queue.entries.size()) {
    queue.entries.erase(queue.entries.begin(), queue.entries.begin() + static_cast<std::ptrdiff_t>(queue.head));
    queue.head = 0;
  }
}

void PendingFrees::drop_empty_queues() {
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    if (queue->head < queue->entries.size()) {
      ++queue;
      continue;
    }
    queue->entries.clear();
    try {
      storage_.push_back(std::move(queue->entries));
    } catch (...) {  // keeping storage for reuse is a convenience: without memory it is dropped
    }
    queue = queues_.erase(queue);
  }
}

Block* PendingFrees::finish(const Entry& entry) {
  pools_.of(entry.device).release(entry.event);
  return --entry.block->pending_events == 0 ? entry.block : nullptr;
}

void PendingFrees::take_all(Batch& batch) {
  batch.entries.reserve(size_);
  for (Queue& queue : queues_) {
    batch.entries.insert(batch.entries.end(), queue.entries.begin() + static_cast<std::ptrdiff_t>(queue.head),
                         queue.entries.end());
    queue.head = queue.entries.size();
  }
  size_ = 0;
  drop_empty_queues();
  batch.next = batches_;
  batches_ = &batch;
}

void PendingFrees::put_back(Batch& batch, std::size_t first) {
  Batch** link = &batches_;
  while (*link != &batch) link = &(*link)->next;
  *link = batch.next;
  for (std::size_t i = batch.entries.size(); i-- > first;) {
    const Entry& entry = batch.entries[i];
    Queue& queue = queue_of(entry);
    queue.entries.insert(queue.entries.begin() + static_cast<std::ptrdiff_t>(queue.head), entry);
    ++size_;
  }
}

}  // namespace cistern
