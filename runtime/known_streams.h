#pragma once

// KnownStreams: the streams of one driver whose handles stay theirs, so that who names one by its
// handle need not ask the driver which stream that is.
//
// A driver may give the handle of a destroyed stream to a new one (decision 5), so a handle says
// nothing by itself. It does where somebody tells before the stream is destroyed: cistern, of the streams
// that it makes, and who called register_stream, of others.
//
// Thread safety: any member may be called from any thread. A handle that is removed while another thread
// looks it up is known to that thread or not; it is to no thread that saw `remove` return.

#include "runtime/stream_access.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace cistern {

struct KnownStream {
  std::uint64_t id = 0;
  int device = 0;
};

class KnownStreams {
 public:
  KnownStreams() noexcept;

  // False where nobody said so. O(1); takes a lock where this thread has not lately looked for the handle, or a
  // stream was added or removed since.
  [[nodiscard]] bool find(CUstream handle, KnownStream* known) const noexcept {
    const Answer& answer = answers[place_of(handle)];
    if (answer.handle != handle || answer.state != state_.load(std::memory_order_relaxed)) [[unlikely]]
      return look_up(handle, known);
    *known = answer.stream;
    return answer.is_known;
  }
  // False without memory for it: it is asked for at each use, then, as others are.
  bool add(const StreamIdentity& stream, int device) noexcept;
  // Before the stream is destroyed. One that is not known stays so.
  void remove(CUstream handle) noexcept;

 private:
  // What a thread found last for handles of one place, while the state stays the same.
  struct Answer {
    std::uint64_t state = 0;
    CUstream handle = nullptr;
    KnownStream stream;
    bool is_known = false;
  };
  static constexpr std::size_t kAnswers = 4;
  // Handles are addresses: their lowest bits are the same for all.
  static std::size_t place_of(CUstream handle) noexcept {
    return (reinterpret_cast<std::uintptr_t>(handle) * std::uint64_t{0x9E3779B97F4A7C15}) >> 62U;
  }
  bool look_up(CUstream handle, KnownStream* known) const noexcept;
  void change_state() noexcept;

  // At a fixed offset of the thread's block: the library is linked or loaded before it is used.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local std::array<Answer, kAnswers> answers;

  mutable std::mutex mutex_;
  std::unordered_map<CUstream, KnownStream> streams_;
  // No two tables of the process ever have the same. What it tells of is read with the lock: it orders nothing.
  std::atomic<std::uint64_t> state_;
};

}  // namespace cistern
