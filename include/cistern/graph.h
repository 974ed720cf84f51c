#pragma once

// Graphs: work that is captured once from streams and launched many times as a whole.
//
//   stream.begin_capture();            // CuPy's Stream.begin_capture / end_capture
//   ...                                // queues work on `stream`, which records it
//   Graph graph = stream.end_capture();
//   graph.launch(stream);              // or graph.launch(): on the current stream
//
// A Graph is a small value; copies name the same graph, and one that was moved from is no graph,
// as a default one. It keeps what a launch needs: streams
// and events of the capture may end before it, memory that its work touches may not.
// Thread safety: any member may be called from any thread; calls on one graph take turns.
// Errors: InvalidArgument for a Graph that is none; DriverError if the driver refuses.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

struct CUgraph_st;      // the driver's own: CUgraph is a pointer to it
struct CUgraphExec_st;  // and CUgraphExec to this

namespace cistern {

using GraphHandle = CUgraph_st*;
using GraphExecHandle = CUgraphExec_st*;

// What a node of a graph does (CUgraphNodeType).
enum class GraphNodeKind {
  kernel,
  copy,
  fill,
  host_function,
  child_graph,
  empty,
  event_wait,
  event_record,
  memory_allocation,
  memory_free,
  other,  // of a driver that is newer than this list
};
[[nodiscard]] CISTERN_EXPORT const char* to_string(GraphNodeKind kind) noexcept;

// Why an instantiated graph could not take over another graph's parameters
// (CUgraphExecUpdateResult; CUDA Driver API, cuGraphExecUpdate, lists what each covers).
enum class GraphUpdateRefusal {
  none,  // it was updated
  topology_changed,
  node_type_changed,
  function_changed,
  unsupported_function_change,
  parameters_changed,
  attributes_changed,
  not_supported,
  other,  // the driver names no reason
};
[[nodiscard]] CISTERN_EXPORT const char* to_string(GraphUpdateRefusal refusal) noexcept;

struct GraphUpdateResult {
  GraphUpdateRefusal refusal = GraphUpdateRefusal::none;
  std::string text;  // empty if it was updated; else the call, the reason and the node's kind
  explicit operator bool() const noexcept { return refusal == GraphUpdateRefusal::none; }
};

class CISTERN_EXPORT Graph {
 public:
  // No graph: every member but the comparisons, valid and native_handle throws InvalidArgument.
  Graph() noexcept = default;
  // Takes over a driver's graph, which is destroyed with the last copy.
  // Throws InvalidArgument for a null handle or a device that is not there.
  [[nodiscard]] static Graph adopt(GraphHandle handle, Device device = {});

  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  // The device of the stream it was captured from; -1 for no graph.
  [[nodiscard]] Device device() const noexcept;

  // How many nodes and edges there are, and what each node does. Cost: O(nodes), O(edges).
  [[nodiscard]] std::size_t node_count() const;
  [[nodiscard]] std::size_t edge_count() const;
  [[nodiscard]] std::vector<GraphNodeKind> node_kinds() const;

  // Makes the executable form now; a second call does nothing. The first launch, upload or
  // update does it otherwise, once, whichever thread comes first.
  void instantiate() const;
  [[nodiscard]] bool is_instantiated() const;
  // Queues the whole graph on `stream`, or on the current stream of the current device; it may be
  // a stream that it was captured from. Does not block. A launch waits for the graph's former one.
  void launch(const Stream& stream) const;
  void launch() const;
  // Prepares the launch on the device ahead of time, in order on `stream`. Does not block.
  void upload(const Stream& stream) const;

  // Gives the executable form the parameters of `other`, for later launches; earlier ones keep
  // theirs. The two must be alike node by node. A refusal is a result, and changes nothing;
  // DriverError is for failures of another kind. Node counts and kinds stay those of this graph.
  [[nodiscard]] GraphUpdateResult update(const Graph& other) const;

  // The graph in the DOT language, with the driver's details of each node.
  [[nodiscard]] std::string debug_text() const;

  // The driver's handles, which stay this object's; null for no graph, or before instantiation.
  [[nodiscard]] GraphHandle native_handle() const noexcept;
  [[nodiscard]] GraphExecHandle native_executable() const;

  // Equal: copies of one graph.
  friend bool operator==(const Graph& a, const Graph& b) noexcept { return a.state_ == b.state_; }
  friend bool operator!=(const Graph& a, const Graph& b) noexcept { return !(a == b); }

 private:
  friend struct GraphAccess;
  struct State;
  std::shared_ptr<State> state_;
};

// Captures the work of a stream for a scope: begins at once; `end` gives the graph. Without
// `end`, say because of an exception, the capture is ended and dropped.
// Not copyable; for use on one thread.
class CISTERN_EXPORT CaptureGuard {
 public:
  // Throws as Stream::begin_capture.
  explicit CaptureGuard(const Stream& stream, CaptureMode mode = CaptureMode::relaxed);
  ~CaptureGuard();
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

  // Ends the capture; throws as Stream::end_capture, and InvalidArgument the second time.
  [[nodiscard]] Graph end();

 private:
  Stream stream_;
  bool active_ = true;
};

// Sets, for a scope, which calls of this thread are refused while captures are under way: those
// of other threads in mode `global`, and its own in `global` and `per_thread`. Mode `relaxed`
// lets this thread make calls that are unsafe in capture, such as an allocation that is no part
// of the graph (CUDA Driver API, cuThreadExchangeStreamCaptureMode).
// Not copyable; for use on one thread. The destructor restores the mode before.
class CISTERN_EXPORT CaptureModeGuard {
 public:
  explicit CaptureModeGuard(CaptureMode mode);
  ~CaptureModeGuard();
  CaptureModeGuard(const CaptureModeGuard&) = delete;
  CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

 private:
  int previous_;
};

}  // namespace cistern
