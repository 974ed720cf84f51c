#pragma once

// What the executor works on: operations, the streams they are queued on, and events.
//
// Plain data, guarded by the driver's lock.

#include "runtime/driver_api.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace cistern::simulated {

using Nanoseconds = std::chrono::nanoseconds;

struct Event;
struct StreamQueue;

// One piece of queued work, or a mark: an event's record or a wait for one. An object is
// used again once it is done, under another id.
struct Operation {
  // Ascends in the order of submission, so predecessors have lower ones. 0: done.
  std::uint64_t id = 0;
  StreamQueue* stream = nullptr;
  Operation* next_in_stream = nullptr;
  bool is_mark = false;
  Event* records = nullptr;  // the event that this mark completes, unless it was recorded again
  Nanoseconds start{};       // the earliest that is known yet
  Nanoseconds duration{};
  std::function<CUresult()> function;  // may be empty
  // What is not done yet, each once in both directions.
  std::vector<Operation*> predecessors;
  std::vector<Operation*> successors;
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
  RecordLag latest_record;

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
  Operation* pending = nullptr;  // the latest record's mark, until it is done
  Nanoseconds time{};            // of the latest record, once it is done
  RecordLag lag;
};

}  // namespace cistern::simulated
