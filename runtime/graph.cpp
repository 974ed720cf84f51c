#include <cistern/error.h>
#include <cistern/graph.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/driver_error.h"
#include "runtime/graph_state.h"
#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern {

Graph::State::~State() {
  if (exec != nullptr) destroy_on_device(driver, device, exec);
  if (graph != nullptr) destroy_on_device(driver, device, graph);
}

std::string Graph::State::describe() const {
  return fmt::format("graph {} of device {}", static_cast<void*>(graph), device);
}

void Graph::State::instantiate(const DriverApi& api) {
  if (exec != nullptr) return;
  destroy_deferred();
  CUgraphExec made = nullptr;
  check_driver(api, api.graph_instantiate(&made, graph, 0), DriverEntryId::graph_instantiate,
               [this] { return describe(); });
  exec = made;
}

void Graph::State::require_same_driver(const Stream& stream) const {
  if (StreamAccess::driver(stream) != driver)
    throw InvalidArgument(fmt::format("{} on {}: they belong to different drivers", describe(), stream.to_string()));
}

Graph::State& GraphAccess::require(const Graph& graph, const char* operation) {
  if (graph.state_ == nullptr)
    throw InvalidArgument(fmt::format("{} of no graph: expected one, as Stream::end_capture gives it", operation));
  return *graph.state_;
}

Graph Graph::adopt(GraphHandle handle, Device device) {
  if (handle == nullptr) throw InvalidArgument("adopt of a null graph handle: expected a driver's graph");
  auto state = std::make_shared<State>(nullptr, resolve_device(device));
  state->graph = handle;
  return GraphAccess::make(std::move(state));
}

Device Graph::device() const noexcept { return valid() ? Device(state_->device) : Device(); }

std::size_t Graph::edge_count() const {
  State& state = GraphAccess::require(*this, "edge_count");
  const DeviceScope scope = state.scope();
  const std::lock_guard lock(state.mutex);
  std::size_t count = 0;
  check_driver(scope.api(), scope.api().graph_get_edges(state.graph, nullptr, nullptr, &count),
               DriverEntryId::graph_get_edges, [&] { return state.describe(); });
  return count;
}

void Graph::instantiate() const {
  State& state = GraphAccess::require(*this, "instantiate");
  const DeviceScope scope = state.scope();
  const std::lock_guard lock(state.mutex);
  state.instantiate(scope.api());
}

bool Graph::is_instantiated() const {
  State& state = GraphAccess::require(*this, "is_instantiated");
  const std::lock_guard lock(state.mutex);
  return state.exec != nullptr;
}

void Graph::launch(const Stream& stream) const {
  State& state = GraphAccess::require(*this, "launch");
  state.require_same_driver(stream);
  // In the context of the stream: a default stream is that of the current context.
  const DeviceScope scope(state.driver, StreamAccess::device(stream));
  const std::lock_guard lock(state.mutex);
  state.instantiate(scope.api());
  check_driver(scope.api(), scope.api().graph_launch(state.exec, stream.native_handle()), DriverEntryId::graph_launch,
               [&] { return fmt::format("{} on {}", state.describe(), stream.to_string()); });
}

void Graph::launch() const {
  State& state = GraphAccess::require(*this, "launch");
  if (state.driver != nullptr)
    throw InvalidArgument(
        fmt::format("launch of {}: it belongs to another driver than the process's own, which has no current stream; "
                    "expected a stream",
                    state.describe()));
  launch(current_stream());
}

void Graph::upload(const Stream& stream) const {
  State& state = GraphAccess::require(*this, "upload");
  state.require_same_driver(stream);
  const DeviceScope scope(state.driver, StreamAccess::device(stream));
  const std::lock_guard lock(state.mutex);
  state.instantiate(scope.api());
  check_driver(scope.api(), scope.api().graph_upload(state.exec, stream.native_handle()), DriverEntryId::graph_upload,
               [&] { return fmt::format("{} on {}", state.describe(), stream.to_string()); });
}

GraphHandle Graph::native_handle() const noexcept { return valid() ? state_->graph : nullptr; }

GraphExecHandle Graph::native_executable() const {
  if (!valid()) return nullptr;
  const std::lock_guard lock(state_->mutex);
  return state_->exec;
}

}  // namespace cistern
