#include "allocator/heap_mutex.h"

#include "allocator/stream_walks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace cistern {

void HeapMutex::lock() {
  lock_streams();
  // Of all before the first is settled: that may move room below the peaks, which steps that are followed rely on.
  for (StreamHeap* stream : streams_) heap_.forget_steps(*stream);
  // Not all who hold the lock end what is retired: it is not to grow until somebody does.
  settle_streams(heap_.retired_.uses.empty());
}

void HeapMutex::lock_to_look() {
  lock_streams();
  for (StreamHeap* stream : streams_) heap_.stop_following(*stream);
  for (StreamHeap* stream : streams_) heap_.settle_to_look(*stream);
  const std::uint64_t grants = heap_.recorder_.grants();
  settle_streams(false);
  if (heap_.recorder_.grants() == grants) return;
  for (StreamHeap* stream : streams_) stream->recurrence.cut();
}

bool HeapMutex::grant_room(const StreamHeap* lacks) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(streams_, lacks);
  // What was noted may be of a stream that was there before, of a heap whose room moved.
  if (found == streams_.end() || !heap_.room_moves()) return false;
  for (StreamHeap* stream : streams_) stream->mutex.lock();
  const bool is_granted = heap_.share_room(**found);
  for (StreamHeap* stream : streams_) stream->mutex.unlock();
  return is_granted;
}

void HeapMutex::lock_streams() {
  mutex_.lock();
  if (!waking_.empty()) take_in_waking();
  for (StreamHeap* stream : streams_) stream->mutex.lock();
}

void HeapMutex::settle_streams(bool lets_go) noexcept {
  // Before anything is reported.
  if (heap_.recorder_.keeps_tags())
    for (StreamHeap* stream : streams_) heap_.recorder_.take_in(stream->ledger);
  if ((heap_.awake_.awaiting() & ~AwakeStreams::kOfHeap) != 0) heap_.hand_over_awaited();
  bool sleeps = false;
  for (StreamHeap* stream : streams_) {
    heap_.settle(*stream, lets_go);
    if (stream->wants_to_wake) [[unlikely]] {
      stream->wants_to_wake = false;
      stream->recurrence.cut();  // what happened while it slept it was not told
      if (stream->awake_bit.load(std::memory_order_relaxed) == 0)
        stream->awake_bit.store(heap_.awake_.take(*stream), std::memory_order_relaxed);
      stream->is_awake.store(true, std::memory_order_relaxed);
    }
    sleeps = sleeps || !stream->is_awake.load(std::memory_order_relaxed);
  }
  if (sleeps) let_sleepers_go();
}

void HeapMutex::unlock() {
  heap_.serves_by_stream_ = heap_.can_serve_by_stream();
  heap_.is_recording_ = !heap_.routing_.empty();
  heap_.awake_.let_heap_await(!heap_.pending_.empty());
  heap_.one_stream_serves_ = streams_.size() == 1;
  heap_.consider_leaving();
  heap_.consider_what_is_seen();
  heap_.picks_plainly_ = heap_.plain_search_ && !heap_.sees_each_;
  heap_.pairs_are_plain_ = heap_.can_have_plain_pairs();
  heap_.most_steps_ = heap_.worthwhile_steps();
  for (StreamHeap* stream : streams_) stream->mutex.unlock();
  mutex_.unlock();
}

void HeapMutex::wake(StreamHeap& stream) noexcept {
  stream.wants_to_wake = true;
  if (!std::exchange(stream.is_locked_with_heap, true)) waking_.push_back(&stream);
}

void HeapMutex::take_in_waking() noexcept {
  for (StreamHeap* stream : waking_)
    streams_.insert(std::upper_bound(streams_.begin(), streams_.end(), stream, std::less<>()), stream);
  waking_.clear();
  heap_.leaving_is_due_.store(true, std::memory_order_relaxed);
}

void HeapMutex::let_sleepers_go() noexcept {
  heap_.leaving_is_due_.store(true, std::memory_order_relaxed);
  std::erase_if(streams_, [this](StreamHeap* stream) {
    if (stream->is_awake.load(std::memory_order_relaxed)) return false;
    heap_.awake_.give_back(stream->awake_bit.exchange(0, std::memory_order_relaxed));
    stream->is_locked_with_heap = false;
    stream->mutex.unlock();
    return true;
  });
}

}  // namespace cistern
