#include "allocator/pending_frees.h"

#include <algorithm>
#include <utility>

namespace cistern {
namespace {

constexpr std::size_t kNodesPerChunk = 64;

}  // namespace

PendingFrees::~PendingFrees() {
  while (idle_count_ != 0) pools_.of(device_).release(idle_[--idle_count_]);
}

// Where the entry's queue is, or belongs.
PendingFrees::Queues::iterator PendingFrees::place_of(const Entry& entry) noexcept {
  return std::lower_bound(queues_.begin(), queues_.end(), entry, [](const Queue& queue, const Entry& wanted) {
    return queue.stream_id != wanted.stream.id ? queue.stream_id > wanted.stream.id : queue.device < wanted.device;
  });
}

void PendingFrees::add(const Entry& entry) {
  if (free_count_ == promised_) add_chunk();
  reserve_queues(1);
  queue(entry);
}

void PendingFrees::promise(std::size_t entries) {
  while (free_count_ < promised_ + entries) add_chunk();
  reserve_queues(entries);
  promised_ += entries;
}

void PendingFrees::add_promised(const Entry& entry) noexcept {
  --promised_;
  queue(entry);
}

// Requires: a free node, and room for a queue.
void PendingFrees::queue(const Entry& entry) {
  auto queue = place_of(entry);
  if (queue == queues_.end() || !is_for(*queue, entry))
    queue = queues_.insert(queue, Queue{entry.device, entry.stream.id, nullptr, nullptr});
  Node* node = std::exchange(free_, free_->next);
  --free_count_;
  static_cast<Entry&>(*node) = entry;
  node->next = nullptr;
  node->is_done.store(false, std::memory_order_relaxed);
  (queue->first == nullptr ? queue->first : queue->last->next) = node;
  queue->last = node;
  ++size_;
}

PendingFrees::Node* PendingFrees::pop_front(Queue& queue) noexcept {
  Node* node = std::exchange(queue.first, queue.first->next);
  if (queue.first == nullptr) queue.last = nullptr;
  --size_;
  return node;
}

Block* PendingFrees::finish(Node* node) noexcept {
  const Entry entry = *node;
  node->next = std::exchange(free_, node);
  ++free_count_;
  if (entry.device == device_ && idle_count_ < idle_.size())
    idle_[idle_count_++] = entry.event;
  else
    pools_.of(entry.device).release(entry.event);
  return --entry.block->pending_events == 0 ? entry.block : nullptr;
}

void PendingFrees::drop_empty_queues() noexcept {
  if (batches_ == nullptr) std::erase_if(queues_, [](const Queue& queue) { return queue.first == nullptr; });
}

bool PendingFrees::has_done() const noexcept {
  for (const Queue& queue : queues_) {
    if (queue.first == nullptr) continue;
    if (queue.first->is_done.load(std::memory_order_relaxed)) return true;
    const CUresult result = api_.event_query(queue.first->event);
    if (result == CUDA_ERROR_NOT_READY) continue;
    if (result == CUDA_SUCCESS) queue.first->is_done.store(true, std::memory_order_relaxed);
    return true;
  }
  return false;
}

std::size_t PendingFrees::firsts(std::size_t skip, std::span<Entry> entries) const noexcept {
  std::size_t count = 0;
  for (const Queue& queue : queues_) {
    if (queue.first == nullptr) continue;
    if (skip != 0) {
      --skip;
      continue;
    }
    if (count == entries.size()) break;
    entries[count++] = *queue.first;
  }
  return count;
}

Block* PendingFrees::finish_first(const Entry& entry) noexcept { return finish(pop_front(*place_of(entry))); }

void PendingFrees::take_all(Batch& batch) noexcept {
  Node** end = &batch.first;
  for (Queue& queue : queues_) {
    if (queue.first == nullptr) continue;
    *end = std::exchange(queue.first, nullptr);
    end = &std::exchange(queue.last, nullptr)->next;
  }
  size_ = 0;
  batch.next = batches_;
  batches_ = &batch;
}

void PendingFrees::take(std::span<Block* const> blocks, Batch& batch) noexcept {
  Node** end = &batch.first;
  for (Queue& queue : queues_) {
    queue.last = nullptr;
    for (Node** link = &queue.first; *link != nullptr;) {
      Node* const node = *link;
      if (!std::binary_search(blocks.begin(), blocks.end(), node->block)) {
        queue.last = node;
        link = &node->next;
        continue;
      }
      *link = std::exchange(node->next, nullptr);
      *end = node;
      end = &node->next;
      --size_;
    }
  }
  batch.next = batches_;
  batches_ = &batch;
}

Block* PendingFrees::finish_first(Batch& batch) noexcept {
  Node* node = std::exchange(batch.first, batch.first->next);
  return finish(node);
}

void PendingFrees::put_back(Batch& batch) noexcept {
  Batch** link = &batches_;
  while (*link != &batch) link = &(*link)->next;
  *link = batch.next;
  while (batch.first != nullptr) {
    Queue& queue = *place_of(*batch.first);
    Node* const first = batch.first;
    Node* last = first;
    ++size_;
    for (; last->next != nullptr && is_for(queue, *last->next); last = last->next) ++size_;
    batch.first = std::exchange(last->next, queue.first);
    if (queue.first == nullptr) queue.last = last;
    queue.first = first;
  }
  drop_empty_queues();
}

// For so many streams beside those that have a queue and what was promised, each perhaps another's.
void PendingFrees::reserve_queues(std::size_t more) {
  const std::size_t wanted = queues_.size() + promised_ + more;
  if (wanted > queues_.capacity()) queues_.reserve(std::max(wanted, queues_.capacity() * 2));
}

void PendingFrees::add_chunk() {
  chunks_.push_back(std::make_unique<Node[]>(kNodesPerChunk));
  Node* nodes = chunks_.back().get();
  for (std::size_t i = kNodesPerChunk; i-- > 0;) nodes[i].next = std::exchange(free_, &nodes[i]);
  free_count_ += kNodesPerChunk;
}

}  // namespace cistern
