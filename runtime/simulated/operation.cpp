#include "runtime/simulated/operation.h"

namespace cistern::simulated {

const char* to_string(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::kernel:
      return "kernel";
    case OperationKind::copy:
      return "copy";
    case OperationKind::fill:
      return "fill";
    case OperationKind::host_function:
      return "host function";
    case OperationKind::callback:
      return "callback";
    case OperationKind::allocation:
      return "allocation";
    case OperationKind::release:
      return "release";
    case OperationKind::event_record:
      return "event record";
    case OperationKind::event_wait:
      return "event wait";
    case OperationKind::graph_end:
      return "end of a graph";
  }
  return "operation";
}

std::string to_string(const OperationLabel& label) {
  const std::string kind = to_string(label.kind);
  return label.name.empty() ? kind : kind + " '" + label.name + "'";
}

}  // namespace cistern::simulated
