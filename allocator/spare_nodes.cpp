#include "allocator/spare_nodes.h"

#include <stdexcept>

namespace cistern {

void SpareNodes::provide_in_all(std::size_t nodes) {
  while (chunks_.size() * kNodesPerChunk < nodes) add_chunk();
}

void SpareNodes::add_chunk() {
  chunks_.push_back(std::make_unique<Node[]>(kNodesPerChunk));
  for (std::size_t i = kNodesPerChunk; i-- > 0;) {
    Node& node = chunks_.back()[i];
    node.next = first_;
    first_ = &node;
  }
  spare_ += kNodesPerChunk;
}

void* SpareNodes::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > kNodeBytes || alignment > kNodeBytes) throw std::logic_error("a tree's node is larger than expected");
  if (first_ == nullptr) add_chunk();
  Node* node = first_;
  first_ = node->next;
  --spare_;
  return node;
}

void SpareNodes::do_deallocate(void* place, std::size_t /*bytes*/, std::size_t /*alignment*/) {
  Node* node = static_cast<Node*>(place);
  node->next = first_;
  first_ = node;
  ++spare_;
}

}  // namespace cistern
