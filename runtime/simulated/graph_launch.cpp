// How the launch of a graph becomes operations.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/shared_event.h"

namespace cistern::simulated {
namespace {

using Places = std::vector<std::size_t>;

void append(Places& places, const Places& more) { places.insert(places.end(), more.begin(), more.end()); }

// The node's work, shared by its launches: copying the function would run its user's code. It
// keeps the whole graph, for whatever user objects the work needs.
Work shared_work(const GraphNode& node, const std::shared_ptr<const GraphBody>& body) {
  const std::shared_ptr<const Work> work(body, node.work.get());
  Work shared{
      .label = work->label, .accesses = work->accesses, .captured_at = work->captured_at, .duration = work->duration};
  if (work->is_valid) shared.is_valid = [work] { return work->is_valid(); };
  if (work->function) shared.function = [work](CUresult status) { return work->function(status); };
  shared.runs_after_failure = work->runs_after_failure;
  shared.captured_at = work->captured_at;
  return shared;
}

// The nodes of a body, and of those embedded in it, as one list.
class Unfolding {
 public:
  Unfolding(DriverState& state, const GraphExec& exec)
      : state_(state),
        body_(exec.body),
        has_priorities_((exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0) {}

  // Appends the body's nodes, whose first ones come after `entry`. The places that what comes
  // after the body must come after; false if an event is gone.
  bool unfold(const GraphBody& body, const Places& entry, Places* exit) {
    std::vector<Places> ends(body.nodes.size());  // by node
    for (std::size_t index = 0; index < body.nodes.size(); ++index) {
      const GraphNode& node = body.nodes[index];
      Places after = node.dependencies.empty() ? entry : Places{};
      for (const std::size_t dependency : node.dependencies) append(after, ends[dependency]);
      if (!unfold_node(node, std::move(after), &ends[index])) return false;
    }
    for (const std::size_t index : body.exits()) append(*exit, ends[index]);
    if (body.nodes.empty()) *exit = entry;
    return true;
  }

  std::vector<GraphOperation> take() { return std::move(operations_); }
  [[nodiscard]] const std::vector<Event*>& recorded() const { return recorded_; }
  [[nodiscard]] const std::vector<MemoryNode>& memory_nodes() const { return memory_nodes_; }

 private:
  bool unfold_node(const GraphNode& node, Places after, Places* end) {
    if (node.type == CU_GRAPH_NODE_TYPE_GRAPH) return unfold(*node.child, after, end);
    GraphOperation operation{.after = std::move(after), .device = node.device};
    if (node.work != nullptr) operation.work = shared_work(node, body_);
    if (node.allocation != nullptr) {
      operation.work.function = state_.memory_function(node);
      operation.work.runs_after_failure = true;  // the accounts go on
      memory_nodes_.push_back({&node, operations_.size()});
    }
    // cuGraphInstantiate: "priorities are only available on kernel nodes".
    if (has_priorities_ && node.type == CU_GRAPH_NODE_TYPE_KERNEL) operation.priority = node.priority;
    if (node.event != nullptr) {
      Event* event = state_.events.find(reinterpret_cast<std::uint64_t>(node.event));
      if (event == nullptr) return false;
      if (node.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        operation.waits_for = event;
      } else {
        operation.records = event;
        recorded_.push_back(event);
      }
    }
    end->push_back(operations_.size());
    operations_.push_back(std::move(operation));
    return true;
  }

  DriverState& state_;
  const std::shared_ptr<const GraphBody> body_;  // with all that is embedded
  const bool has_priorities_;                    // of the nodes' own
  std::vector<GraphOperation> operations_;
  std::vector<Event*> recorded_;
  std::vector<MemoryNode> memory_nodes_;
};

// Whether other processes can be told of all the records; several may be of one event.
bool has_room(const std::vector<Event*>& recorded) {
  struct Records {
    SharedEvent* event = nullptr;
    std::uint64_t count = 0;
  };
  std::map<std::pair<const ExportTable*, std::uint32_t>, Records> slots;  // a handle may be opened twice
  for (const Event* event : recorded) {
    if (event->shared == nullptr) continue;
    Records& records = slots[{&event->shared->table(), event->shared->slot()}];
    records.event = event->shared.get();
    ++records.count;
  }
  return std::all_of(slots.begin(), slots.end(),
                     [](const auto& slot) { return slot.second.event->has_room(slot.second.count); });
}

}  // namespace

CUresult DriverState::submit_graph(StreamQueue& stream, GraphExec& exec) {
  if (const CUresult refused = captures.check_use(stream); refused != CUDA_SUCCESS) return refused;
  if (stream.capture != nullptr) {
    // Only what is moved into its parent may allocate or free: cuGraphAddMemAllocNode.
    if (exec.body->has_memory_nodes()) return refuse_in_capture(stream);
    GraphNode node;
    node.type = CU_GRAPH_NODE_TYPE_GRAPH;
    node.child = exec.body;
    capture_node(stream, std::move(node));
    return CUDA_SUCCESS;
  }
  Unfolding unfolding(*this, exec);
  Places exit;
  if (!unfolding.unfold(*exec.body, {}, &exit)) return CUDA_ERROR_INVALID_VALUE;
  if (!has_room(unfolding.recorded())) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult refused = prepare_memory(stream, exec); refused != CUDA_SUCCESS) return refused;
  for (Event* event : unfolding.recorded()) event->captured = nullptr;
  std::vector<GraphOperation> operations = unfolding.take();
  if (races) races->launched(stream, operations, &exec);
  Targets queued;
  exec.launched = {executor.queue_graph(stream, std::move(operations), exec.launched, &queued)};
  launched_memory(exec, unfolding.memory_nodes(), queued);
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
