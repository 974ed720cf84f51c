#include "runtime/simulated/graph_dot.h"

#include <sstream>

namespace cistern::simulated {
namespace {

// Which flag asks for the parameters of a node.
unsigned parameter_flag(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS;
    case CU_GRAPH_NODE_TYPE_HOST:
      return CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS;
    default:
      return 0;
  }
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

class DotText {
 public:
  explicit DotText(unsigned flags) : flags_(flags) {}

  std::string write(const GraphBody& body) {
    out_ << "digraph cistern {\n";
    write_body(body, "n");
    out_ << "}\n";
    return out_.str();
  }

 private:
  [[nodiscard]] bool has(unsigned flag) const {
    return (flags_ & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0 && flag != 0;
  }

  // `prefix` keeps the nodes of embedded graphs apart.
  void write_body(const GraphBody& body, const std::string& prefix) {
    for (std::size_t index = 0; index < body.nodes.size(); ++index) {
      const GraphNode& node = body.nodes[index];
      const std::string name = prefix + std::to_string(index);
      write_node(node, name, index);
      for (const std::size_t dependency : node.dependencies) {
        out_ << "  " << prefix << dependency << " -> " << name << ";\n";
      }
      if (node.child != nullptr) write_child(*node.child, name);
    }
  }

  void write_child(const GraphBody& child, const std::string& name) {
    out_ << "  subgraph cluster_" << name << " {\n  label=\"embedded in " << name << "\";\n";
    write_body(child, name + "_");
    out_ << "  }\n";
  }

  void write_node(const GraphNode& node, const std::string& name, std::size_t index) {
    out_ << "  " << name << " [shape=box, label=\"" << index << ": " << name_of(node.type);
    if (node.work != nullptr && !node.work->label.name.empty()) out_ << ' ' << escaped(node.work->label.name);
    if (has(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) out_ << "\\nhandle " << static_cast<const void*>(node.handle);
    if (has(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES) && node.type == CU_GRAPH_NODE_TYPE_KERNEL) {
      out_ << "\\npriority " << node.priority;
    }
    if (has(parameter_flag(node.type))) write_parameters(node);
    out_ << "\"];\n";
  }

  void write_parameters(const GraphNode& node) {
    out_ << "\\ndevice " << node.device;
    if (node.event != nullptr) out_ << "\\nevent " << static_cast<const void*>(node.event);
    if (node.work == nullptr) return;
    out_ << "\\nduration " << node.work->duration.count() << " ns";
    for (const MemoryAccess& access : node.work->accesses) {
      out_ << "\\n"
           << (access.writes ? "writes " : "reads ") << access.bytes << " B at 0x" << std::hex << access.address
           << std::dec;
    }
  }

  unsigned flags_;
  std::ostringstream out_;
};

}  // namespace

std::string dot_text(const GraphBody& body, unsigned flags) { return DotText(flags).write(body); }

}  // namespace cistern::simulated
