#pragma once

// Captures: the capture sequences of a driver, and what they forbid meanwhile.
//
// CUDA Driver API, "Stream Management" (cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode);
// CUDA C++ Programming Guide, "CUDA Graphs", "Creating a Graph Using Stream Capture".
// A check that refuses returns the driver's error, and invalidates the sequences that the
// refused call conflicts with, as the driver does.
// Not thread-safe, but for is_any: the driver holds its lock around every call.

#include "runtime/simulated/operation.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace cistern::simulated {

// From cuStreamBeginCapture to cuStreamEndCapture.
struct CaptureSequence {
  enum class State { active, invalidated, ended };

  cuuint64_t id = 0;  // never used again in the process
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;  // that began it, by its number
  StreamQueue* origin = nullptr;
  CUgraph graph = nullptr;
  State state = State::active;
  std::vector<StreamQueue*> streams;  // in capture mode; the origin among them
};

// A stream's part in a sequence.
struct StreamCapture {
  std::shared_ptr<CaptureSequence> sequence;
  std::vector<CUgraphNode> frontier;  // what the stream's next node depends on
};

// What an event that was recorded in a capturing stream stands for.
struct CapturedRecord {
  std::shared_ptr<CaptureSequence> sequence;
  std::vector<CUgraphNode> nodes;
};

class Captures {
 public:
  // Whether any sequence is under way. From any thread, without the lock.
  [[nodiscard]] bool is_any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }

  // Puts the stream in capture mode. Requires: it is not.
  void begin(StreamQueue& origin, CUstreamCaptureMode mode, std::uint64_t thread, CUgraph graph);
  // Takes all streams of a sequence out of capture mode.
  void end(const std::shared_ptr<CaptureSequence>& sequence);
  static void invalidate(CaptureSequence& sequence) noexcept;
  // Before the stream goes: the sequence goes on without it. Returns the sequence that was the
  // stream's own, ended; null if it was no origin.
  std::shared_ptr<CaptureSequence> leave(StreamQueue& stream);

  // --- Checks of what a call is about to do ---
  // Queue work on the stream, or capture it.
  CUresult check_use(const StreamQueue& stream) const;
  // Query the stream or wait for it, on the thread of that number.
  CUresult check_query(const StreamQueue& stream, std::uint64_t thread) const;
  // Wait for the device.
  CUresult check_device_wait(int device) const;
  // Use the legacy stream of the device.
  CUresult check_legacy(int device) const;
  // As check_legacy, but for calls that only ask: invalidates nothing.
  [[nodiscard]] CUresult peek_legacy(int device) const;
  // Query the event, or wait for it on the host.
  static CUresult check_event(const Event& event);
  // Make a call that is potentially unsafe during capture, on the thread of that number.
  CUresult check_unsafe_call(std::uint64_t thread) const;

  // --- Events ---
  // cuEventRecord on a capturing stream.
  static void record(Event& event, const StreamQueue& stream);
  // cuStreamWaitEvent where the stream or the event is captured: forks, joins, or refuses.
  CUresult wait_event(StreamQueue& stream, const Event& event);

  // --- Threads ---
  // Sets the thread's mode and returns the former one; at first it is global.
  CUstreamCaptureMode exchange_mode(std::uint64_t thread, CUstreamCaptureMode mode);
  void forget_thread(std::uint64_t thread) { modes_.erase(thread); }

 private:
  [[nodiscard]] CUstreamCaptureMode mode_of(std::uint64_t thread) const;

  std::vector<std::shared_ptr<CaptureSequence>> sequences_;  // not ended
  std::map<std::uint64_t, CUstreamCaptureMode> modes_;       // by thread; else global
  std::atomic<std::size_t> count_{0};
};

[[nodiscard]] inline bool is_legacy(const StreamQueue& stream) noexcept { return stream.handle == nullptr; }

}  // namespace cistern::simulated
