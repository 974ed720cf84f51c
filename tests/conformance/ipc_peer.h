#pragma once

// The second process of the IPC statements. It does what the first one asks, one thing after the
// other, and answers with the driver's result and a value.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/conformance/child_process.h"

namespace cistern::conformance {

enum class Task : std::uint64_t {
  open_memory,    // handle; the address
  close_memory,   // address
  read,           // address; the byte there
  fill,           // address, byte: fills 4096 bytes and waits
  open_event,     // handle; the event
  destroy_event,  // event
  query,          // event
  synchronize,    // event
  elapsed,        // event
  record,         // event: in the peer's stream
  wait,           // event: the peer's stream waits for it
  query_stream,
  finish_stream,
  hold_stream,  // closes a gate in the peer's stream
  open_gate,
  import,      // of the inherited descriptor; the handle
  map,         // handle, bytes; the address
  get_access,  // address; the flags
  set_access,  // address, bytes
  release,     // handle
};

// What a task is given: the fields that it needs.
struct Request {
  Task task{};
  std::uint64_t object = 0;
  std::uint64_t value = 0;
  CUipcMemHandle memory{};
  CUipcEventHandle event{};
};

struct Reply {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::uint64_t value = 0;
};

// The first process's side. A peer that has gone is a failure of the test.
class IpcPeer {
 public:
  explicit IpcPeer(std::optional<int> descriptor = std::nullopt) : child_(descriptor) {}
  Reply ask(const Request& request);
  Reply ask(Task task, std::uint64_t object = 0, std::uint64_t value = 0);

 private:
  ChildProcess child_;
};

// The second process's main function.
int run_ipc_peer();

}  // namespace cistern::conformance
