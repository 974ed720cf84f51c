#include "runtime/simulated/graph_table.h"

#include <utility>

namespace cistern::simulated {
namespace {

template <class Handle>
std::uint64_t number_of(Handle handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}

}  // namespace

GraphTable::GraphTable(std::uint16_t driver)
    : graphs_(HandleKind::graph, driver, HandleReuse::never),
      nodes_(HandleKind::graph_node, driver, HandleReuse::never),
      execs_(HandleKind::graph_exec, driver, HandleReuse::never) {}

CUgraph GraphTable::create() {
  auto graph = std::make_shared<Graph>();
  std::shared_ptr<Graph>* place = nullptr;
  const std::uint64_t handle = graphs_.insert(&place);
  *place = std::move(graph);
  return reinterpret_cast<CUgraph>(handle);
}

Graph* GraphTable::find(CUgraph handle) const {
  const auto* graph = graphs_.find(number_of(handle));
  return graph == nullptr ? nullptr : graph->get();
}

CUgraphNode GraphTable::add(CUgraph handle, GraphNode node) {
  auto& nodes = graphs_.at(number_of(handle))->body.nodes;
  if (nodes.size() == nodes.capacity()) nodes.reserve(2 * nodes.size() + 8);  // push_back shall not throw
  Place* place = nullptr;
  node.handle = reinterpret_cast<CUgraphNode>(nodes_.insert(&place));
  *place = Place{handle, nodes.size()};
  nodes.push_back(std::move(node));
  return nodes.back().handle;
}

const GraphTable::Place* GraphTable::find_place(CUgraphNode handle) const { return nodes_.find(number_of(handle)); }

const GraphNode* GraphTable::find_node(CUgraphNode handle) const {
  const Place* place = find_place(handle);
  return place == nullptr ? nullptr : &graphs_.at(number_of(place->graph))->body.nodes[place->index];
}

std::shared_ptr<Graph> GraphTable::take(CUgraph handle) {
  std::shared_ptr<Graph> graph = std::move(graphs_.at(number_of(handle)));
  graphs_.erase(number_of(handle));
  for (const GraphNode& node : graph->body.nodes) nodes_.erase(number_of(node.handle));
  return graph;
}

CUgraphExec GraphTable::create_exec(CUgraph graph, unsigned long long flags) {
  Graph& of = *graphs_.at(number_of(graph));
  auto exec = std::make_shared<GraphExec>();
  exec->body = std::make_shared<const GraphBody>(of.body);
  exec->graph = graph;
  exec->flags = flags;
  std::shared_ptr<GraphExec>* place = nullptr;
  const std::uint64_t handle = execs_.insert(&place);
  *place = std::move(exec);
  ++of.instances;
  return reinterpret_cast<CUgraphExec>(handle);
}

GraphExec* GraphTable::find_exec(CUgraphExec handle) const {
  const auto* exec = execs_.find(number_of(handle));
  return exec == nullptr ? nullptr : exec->get();
}

std::shared_ptr<GraphExec> GraphTable::take_exec(CUgraphExec handle) {
  std::shared_ptr<GraphExec> exec = std::move(execs_.at(number_of(handle)));
  execs_.erase(number_of(handle));
  if (Graph* graph = find(exec->graph)) --graph->instances;
  return exec;
}

}  // namespace cistern::simulated
