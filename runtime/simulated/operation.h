#pragma once

// What the executor works on: operations, the streams they are queued on, and events.
//
// Plain data, guarded by the driver's lock.

#include "runtime/driver_api.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cistern::simulated {

using Nanoseconds = std::chrono::nanoseconds;

class SharedEvent;
struct CapturedRecord;
struct Event;
struct Operation;
struct StreamCapture;
struct StreamQueue;

enum class OperationKind : std::uint8_t {
  kernel,
  copy,
  fill,
  host_function,
  callback,
  allocation,
  release,
  event_record,
  event_wait,
  graph_end,
};
[[nodiscard]] const char* to_string(OperationKind kind) noexcept;

// What reports call an operation.
struct OperationLabel {
  OperationKind kind = OperationKind::kernel;
  std::string name = {};  // may be empty
};
// "kernel", or "kernel 'name'".
[[nodiscard]] std::string to_string(const OperationLabel& label);

// Bytes that an operation touches.
struct MemoryAccess {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  bool writes = false;
  // The end of the address space for a range that would run past it.
  [[nodiscard]] std::uint64_t end() const { return bytes > ~address ? ~std::uint64_t{0} : address + bytes; }
};

// Where and when a capture recorded work, for the race detector; 0: none did, or it is off.
struct CapturedAt {
  std::uint32_t stack = 0;
  std::uint64_t sequence = 0;
};

// What an operation does when its turn has come.
struct Work {
  OperationLabel label = {};
  std::vector<MemoryAccess> accesses = {};  // as it was declared
  CapturedAt captured_at = {};
  Nanoseconds duration{};
  // Asked with the driver's lock held, right before the function runs; may be empty. False: it
  // does not run, and the device fails as on an illegal address.
  std::function<bool()> is_valid = {};
  // May be empty. Runs with no lock held. What it returns, if not CUDA_SUCCESS, is the device's
  // failure. It gets CUDA_SUCCESS, or what the device had failed with, see below.
  std::function<CUresult(CUresult status)> function = {};
  // Whether the function runs on a device that has failed, too, and learns of it.
  bool runs_after_failure = false;
};

// An operation as it was queued: still the same while the id is.
struct Target {
  const Operation* operation;
  std::uint64_t id;
};
using Targets = std::vector<Target>;

// A host thread's wait for some operations, on its stack.
struct HostWait {
  std::size_t open = 0;  // how many are not done
  Nanoseconds end{};     // the latest end of those that are
};
struct HostWaitLink {
  HostWait* wait = nullptr;
  HostWaitLink* next = nullptr;
};

// One piece of queued work, or a mark: an event's record, a wait for one, or the end of a
// graph. An object is used again once it is done, under another id.
struct Operation {
  // Ascends in the order of submission, so predecessors have lower ones. 0: done.
  std::uint64_t id = 0;
  StreamQueue* stream = nullptr;
  int device = 0;    // where it runs; a graph's node may run on another device than its stream's
  int priority = 0;  // its stream's, or its node's
  Operation* next_in_stream = nullptr;
  bool in_stream = true;  // of the stream's own queue; a graph's nodes stand beside it
  bool is_mark = false;
  Event* records = nullptr;  // the event that this mark completes, unless it was recorded again
  // Where other processes see that event, and the record's number there, which is completed anyhow.
  std::shared_ptr<SharedEvent> tells;
  std::uint64_t shared_record = 0;
  Nanoseconds start{};  // the earliest that is known yet
  Work work;
  std::size_t open_predecessors = 0;  // those that are not done, counted as often as they are named
  Targets predecessors;               // done ones among them
  std::vector<Operation*> successors;
  HostWaitLink* host_waits = nullptr;
};

// The event lag of what has been recorded: unfinished until the tick `due`, unless all
// records up to number `record` were completed before.
struct RecordLag {
  std::uint64_t due = 0;
  std::uint64_t record = 0;
};

struct StreamQueue {
  int device = 0;
  CUstream handle = nullptr;
  std::uint64_t id = 0;
  int priority = 0;
  unsigned flags = CU_STREAM_DEFAULT;
  Operation* first = nullptr;  // the oldest operation that is not done
  Operation* last = nullptr;
  Nanoseconds latest_end{};  // of what is done
  RecordLag latest_record;
  std::shared_ptr<StreamCapture> capture;  // null: what is submitted runs

  [[nodiscard]] bool synchronizes_with_legacy() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

// What one device has queued.
struct DeviceQueues {
  StreamQueue* legacy = nullptr;
  std::vector<StreamQueue*> blocking;  // all others that synchronise with the legacy stream
  std::vector<StreamQueue*> non_blocking;
  std::uint64_t unfinished = 0;
  Nanoseconds latest_end{};
  RecordLag latest_record;
  std::uint64_t completed_records = 0;  // all up to this number are complete whatever their lag
  CUresult failure = CUDA_SUCCESS;      // sticky: what an operation failed with
};

struct Event {
  int device = 0;
  unsigned flags = CU_EVENT_DEFAULT;
  bool recorded = false;
  bool imported = false;         // opened here, of another process
  Operation* pending = nullptr;  // the latest record's mark, until it is done
  Nanoseconds time{};            // of the latest record, once it is done
  RecordLag lag;
  std::shared_ptr<SharedEvent> shared;       // where other processes record and await it; null: nowhere
  std::shared_ptr<CapturedRecord> captured;  // of the latest record, if that was captured
};

}  // namespace cistern::simulated
