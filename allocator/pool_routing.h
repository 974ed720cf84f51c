#pragma once

// PoolRouting: which private pool, if any, serves a request. A list of open recordings, each
// with the requests that it takes; empty but while some pool is recorded to.
//
// Not thread-safe: the owning DeviceAllocator holds its lock around every call, or, where nothing changes, that of a
// stream which is awake.

#include "allocator/private_pools.h"
#include "runtime/stream_access.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern {

// The calling thread's number: never that of another thread, even of one that has ended.
[[nodiscard]] std::uint64_t thread_number() noexcept;

// Which requests a recording takes: a PoolFilter with its stream identified.
struct RecordingFilter {
  enum class Kind { stream, capture, thread, every };
  Kind kind = Kind::every;
  std::uint64_t stream_id = 0;
  std::uint64_t capture_id = 0;
};

struct Recording {
  PrivatePool* pool = nullptr;
  RecordingFilter filter;
  std::uint64_t thread = 0;  // that began it
  std::uint64_t guard = 0;   // the number of a MemPoolGuard; 0: begun by id
  // Counts as a capture under way: for its thread, and under PyTorch 2.4's rules for all.
  [[nodiscard]] bool is_capture() const {
    return guard == 0 && (pool->id.first != 0 || filter.kind == RecordingFilter::Kind::capture);
  }
};

class PoolRouting {
 public:
  [[nodiscard]] bool empty() const { return recordings_.empty(); }
  [[nodiscard]] bool is_recorded(PoolId id) const;
  // Throws std::bad_alloc, unchanged. The pool has one more dependent from here to its removal.
  void add(const Recording& recording);
  // Ends the recording that was begun by id, or that of a guard. False if there is none.
  bool remove(PoolId id) noexcept;
  bool remove_guard(std::uint64_t guard) noexcept;

  // The pool that takes a request of the calling thread for a stream; nullptr: none.
  // `capture_of(std::uint64_t* id)` tells whether the stream is captured and in which capture;
  // it is asked at most once, and only if a recording wants to know.
  template <class CaptureOf>
  [[nodiscard]] PrivatePool* choose(const StreamIdentity& stream, bool oldest_first, CaptureOf&& capture_of) const;

  // Whether a request of the calling thread for a stream may be taken, for all that is known without the driver.
  // O(recordings).
  [[nodiscard]] bool may_take(const StreamIdentity& stream) const noexcept;

  // Whether a capture is under way for the calling thread; with `on_any_thread`, for any, and
  // then each recording that was begun by id counts as one.
  [[nodiscard]] bool capture_under_way(bool on_any_thread) const noexcept;

 private:
  template <class Matches>
  bool remove_if(Matches&& matches) noexcept;

  std::vector<Recording> recordings_;  // in the order in which they were begun
};

template <class CaptureOf>
PrivatePool* PoolRouting::choose(const StreamIdentity& stream, bool oldest_first, CaptureOf&& capture_of) const {
  bool asked = false;
  bool captured = false;
  std::uint64_t capture_id = 0;
  for (std::size_t i = 0; i < recordings_.size(); ++i) {
    const Recording& recording = recordings_[oldest_first ? i : recordings_.size() - 1 - i];
    bool takes = false;
    switch (recording.filter.kind) {
      case RecordingFilter::Kind::every:
        takes = true;
        break;
      case RecordingFilter::Kind::thread:
        takes = recording.thread == thread_number();
        break;
      case RecordingFilter::Kind::stream:
        takes = recording.filter.stream_id == stream.id;
        break;
      case RecordingFilter::Kind::capture:
        if (!asked) captured = capture_of(&capture_id);
        asked = true;
        takes = captured && recording.filter.capture_id == capture_id;
        break;
    }
    if (takes) return recording.pool;
  }
  return nullptr;
}

}  // namespace cistern
