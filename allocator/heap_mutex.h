#pragma once

// HeapMutex: the lock of a heap: one of its own, and those of the streams that are awake, in this order.
//
// What concerns one stream alone takes that stream's mutex alone (stream_hits.cpp); whoever has this lock
// has them all, and finds what streams left for later carried out: the heap as its statistics tell it. Streams
// are locked by their place in memory: one that is to wake does so when the lock is taken next, and one that was
// put to sleep is locked once more, for what came to it meanwhile.
// Who changes nothing that a stream's hits and frees look at takes it to look (HeapLook): then streams go on with what
// they know of their steps (Recurrence).
// A BasicLockable; not recursive. O(streams awake).

#include "allocator/biased_mutex.h"

#include <cstddef>
#include <vector>

namespace cistern {

class StreamHits;
struct StreamHeap;

class HeapMutex {
 public:
  explicit HeapMutex(StreamHits& heap) : heap_(heap) {}
  HeapMutex(const HeapMutex&) = delete;
  HeapMutex& operator=(const HeapMutex&) = delete;

  void lock();
  void lock_to_look();
  void unlock();
  // Room below the peaks for a stream that lacks some (StreamHits::share_room), by who has no lock; the stream may be
  // one of another heap, or gone. Streams go on with what they know of their steps. False: it takes this lock.
  [[nodiscard]] bool grant_room(const StreamHeap* lacks) noexcept;

  // All of these require: it is held.
  // Room for so many streams. Throws std::bad_alloc, unchanged.
  void reserve(std::size_t streams) {
    streams_.reserve(streams);
    waking_.reserve(streams);
  }
  // The stream wakes when the lock is taken next, unless it does not want to by then. Requires: reserved, and
  // fewer than AwakeStreams::kMost are awake or about to be.
  void wake(StreamHeap& stream) noexcept;
  [[nodiscard]] const std::vector<StreamHeap*>& streams() const noexcept { return streams_; }
  // With those that are about to wake, and those that fell asleep since it was taken.
  [[nodiscard]] std::size_t awake() const noexcept { return streams_.size() + waking_.size(); }

 private:
  void lock_streams();
  void take_in_waking() noexcept;
  void settle_streams(bool lets_go) noexcept;
  void let_sleepers_go() noexcept;

  PatientBiasedMutex mutex_;
  StreamHits& heap_;
  std::vector<StreamHeap*> streams_;  // by address
  std::vector<StreamHeap*> waking_;
};

// The lock, held to look for as long as this lives.
class HeapLook {
 public:
  explicit HeapLook(HeapMutex& mutex) : mutex_(mutex) { mutex_.lock_to_look(); }
  ~HeapLook() { mutex_.unlock(); }
  HeapLook(const HeapLook&) = delete;
  HeapLook& operator=(const HeapLook&) = delete;

 private:
  HeapMutex& mutex_;
};

}  // namespace cistern
