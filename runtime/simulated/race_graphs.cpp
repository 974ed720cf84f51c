// What the race detector makes of captures and of the launches of graphs.
//
// A capture runs nothing: what it records is judged when it is launched, node by node. Between
// nodes there is only what the graph's edges say.

#include <memory>
#include <utility>

#include "runtime/simulated/executor.h"
#include "runtime/simulated/race_detector.h"

namespace cistern::simulated {

void RaceDetector::captured(const StreamQueue& queue, Work& work) {
  const RaceOperation operation = describe(queue, to_string(work.label.kind), work.label.name);
  for (const MemoryAccess& access : work.accesses) {
    // What a launch makes anew may be dead between launches, and named in a capture.
    const RaceLifetimePtr lifetime = memory_.find(access.address);
    if (lifetime == nullptr || !lifetime->of_graph) judge(operation, access);
  }
  work.captured_at = {operation.stack, operation.sequence};
}

void RaceDetector::launched(const StreamQueue& queue, std::vector<GraphOperation>& nodes, const void* exec) {
  RaceClock start = order_.begin_launch(queue);
  // "Each launch is ordered behind both any previous work in hStream and any previous launches
  // of hGraphExec": CUDA Driver API, "Graph Management", cuGraphLaunch.
  start.join(launches_[exec]);
  const RaceOperation launch = describe(queue, "graph launch", {});
  RaceClock end = start;
  std::vector<RaceClock> ends;  // by node
  ends.reserve(nodes.size());
  for (GraphOperation& node : nodes) {
    RaceClock after;
    if (node.after.empty()) after = start;
    for (const std::size_t earlier : node.after) after.join(ends[earlier]);
    if (node.waits_for != nullptr) wait_in_graph(launch, *node.waits_for, &after);
    if (node.records != nullptr) order_.record(node.records, after);
    if (node.work.function || !node.work.accesses.empty()) after = launch_node(launch, node, after);
    end.join(after);
    ends.push_back(std::move(after));
  }
  order_.end_launch(queue, end);
  launches_[exec] = std::move(end);
}

void RaceDetector::wait_in_graph(const RaceOperation& launch, const Event& event, RaceClock* after) {
  const bool is_foreign = (event.flags & CU_EVENT_INTERPROCESS) != 0;
  if (order_.join_record(&event, after) || is_foreign) return;
  RaceOperation wait = launch;
  wait.kind = "external wait of a graph";
  reports_.add({RaceKind::idle_wait, &wait}, stacks_);
}

RaceClock RaceDetector::launch_node(const RaceOperation& launch, GraphOperation& node, const RaceClock& after) {
  auto operation = std::make_shared<RaceOperation>(launch);
  operation->kind = to_string(node.work.label.kind);
  operation->name = node.work.label.name;
  if (node.device >= 0) operation->device = node.device;
  operation->captured = node.work.captured_at;
  operation->role = role_of(node.work.label.kind);
  operation->moment = order_.submit_node(after);
  if (operation->role == RaceRole::begins) begin_in_stream(*operation, node.work.accesses);
  touch(operation, node.work.accesses);
  if (operation->role == RaceRole::ends) end_in_stream(*operation, node.work.accesses);
  run_as(operation, node.work);
  return operation->moment.clock;
}

void RaceDetector::join_lost(const StreamQueue& queue) {
  const RaceOperation operation = describe(queue, "cuStreamEndCapture", {});
  reports_.add({RaceKind::lost_join, &operation}, stacks_);
}

}  // namespace cistern::simulated
