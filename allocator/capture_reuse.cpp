// Reuse within a capture of blocks that other streams used: decided on what the driver says of the
// graph so far, never on time. PyTorch's graph_capture_record_stream_reuse.

#include "allocator/heap_blocks.h"

#include <algorithm>

namespace cistern {

// A block qualifies if all its uses are in one capture that is under way. A stream that is not
// captured, or is in another capture, has work that this graph's edges say nothing about.
void HeapBlocks::note_captured_free(Block* block) noexcept {
  if (!options_.graph_capture_record_stream_reuse || follows_2_4()) return;
  if (block->segment->owner->home == nullptr) return;  // a capture's requests never reach the default pool
  try {
    CapturePoint behind;
    if (!find_capture_point({block->segment->stream, device_, nullptr}, &behind)) return;
    for (const StreamUse& use : block->uses) {
      CapturePoint last;
      if (!use.in_capture || !names_its_stream(use) || !find_capture_point(use, &last)) return;
      if (last.capture != behind.capture) return;
      behind.nodes.insert(behind.nodes.end(), last.nodes.begin(), last.nodes.end());
    }
    captured_frees_.add(block, std::move(behind));
  } catch (...) {  // no memory, or no context: it waits for the end of the capture
  }
}

// False if the stream is not captured, or the driver does not tell.
bool HeapBlocks::find_capture_point(const StreamUse& use, CapturePoint* point) const {
  const ContextGuard guard(api_, surroundings_.contexts.primary(use.device));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  const CUresult result =
      api_.stream_get_capture_info(use.stream.handle, &status, &point->capture, &point->graph, &nodes, &count);
  if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE || point->graph == nullptr) return false;
  point->nodes.assign(nodes, nodes + count);  // the driver's array lasts until its stream's next call
  return true;
}

// All nodes that what the stream captures next comes after. Empty if the driver refuses, as it does
// where an edge orders less than the whole of its nodes (CUDA_ERROR_LOSSY_QUERY). Nodes that another
// thread adds meanwhile may be missing: then less is reused.
std::unordered_set<CUgraphNode> HeapBlocks::nodes_before(const CapturePoint& point) const {
  std::size_t count = 0;
  if (api_.graph_get_edges(point.graph, nullptr, nullptr, &count) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> from(count);
  std::vector<CUgraphNode> to(count);
  if (count != 0 && api_.graph_get_edges(point.graph, from.data(), to.data(), &count) != CUDA_SUCCESS) return {};
  std::unordered_multimap<CUgraphNode, CUgraphNode> dependencies;
  for (std::size_t i = 0; i < count; ++i) dependencies.emplace(to[i], from[i]);
  std::unordered_set<CUgraphNode> before(point.nodes.begin(), point.nodes.end());
  std::vector<CUgraphNode> open = point.nodes;
  while (!open.empty()) {
    const auto [first, last] = dependencies.equal_range(open.back());
    open.pop_back();
    std::for_each(first, last, [&](const auto& edge) {
      if (before.insert(edge.second).second) open.push_back(edge.second);
    });
  }
  return before;
}

// Before a request is served. The block goes to its own stream alone, and what that stream
// captures from now on comes after all that it comes after now.
void HeapBlocks::complete_captured_frees(const StreamIdentity& stream, const Lock& lock) {
  if (!capture_under_way()) return;
  CapturePoint now;
  if (!find_capture_point({stream, device_, nullptr}, &now) || !captured_frees_.has(stream.id, now.capture)) return;
  const ContextGuard guard(api_, context_);
  const std::unordered_set<CUgraphNode> before = nodes_before(now);
  while (Block* block = captured_frees_.take(stream.id, now.capture, before)) {
    take_back(block);
    block->pending_events = 0;
    retire(block->uses, *block->segment->owner);
    complete_free(block, lock);
  }
}

// Out of the list of what waits for its events.
void HeapBlocks::take_back(Block* block) noexcept {
  Block* previous = nullptr;
  Block* place = unrecorded_frees_;
  for (; place != block; place = place->left) previous = place;
  (previous == nullptr ? unrecorded_frees_ : previous->left) = block->left;
  if (last_unrecorded_free_ == block) last_unrecorded_free_ = previous;
  block->left = nullptr;
}

// Whether a stream that used the block in a capture is captured still: the capture may be another
// thread's.
bool HeapBlocks::is_captured_still(const Block& block) const noexcept {
  return std::any_of(block.uses.begin(), block.uses.end(),
                     [this](const StreamUse& use) { return use.in_capture && is_captured(use); });
}

}  // namespace cistern
