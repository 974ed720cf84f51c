// Entries about stream capture, and what capture changes in the others.

#include "runtime/simulated/capture.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/shared_event.h"
#include "runtime/simulated/thread_numbers.h"

namespace cistern::simulated {
namespace {

bool is_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUstreamCaptureStatus status_of(const StreamQueue& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  const bool is_active = stream.capture->sequence->state == CaptureSequence::State::active;
  return is_active ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

}  // namespace

// --- The entries ------------------------------------------------------------------------

CUresult DriverState::stream_begin_capture(CUstream handle, CUstreamCaptureMode mode) {
  if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (is_legacy(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const CUgraph graph = graphs.create();
  graphs.find(graph)->is_capturing = true;
  captures.begin(*stream, mode, this_thread_number(), graph);
  return CUDA_SUCCESS;
}

CUresult DriverState::stream_end_capture(CUstream handle, CUgraph* graph) {
  std::shared_ptr<Graph> dropped;  // let go of with no lock held
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  const std::shared_ptr<CaptureSequence> sequence = stream->capture->sequence;
  if (const CUresult refused = check_end(*sequence, *stream); refused != CUDA_SUCCESS) return refused;
  CUresult result = CUDA_SUCCESS;
  if (sequence->state == CaptureSequence::State::invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!graphs.find(sequence->graph)->body.all_precede(places_of(stream->capture->frontier))) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (races) races->join_lost(*stream);
  }
  captures.end(sequence);
  if (result == CUDA_SUCCESS) {
    graphs.find(sequence->graph)->is_capturing = false;
    *graph = sequence->graph;
  } else {
    dropped = graphs.take(sequence->graph);
  }
  return result;
}

// Whether this thread may end the sequence on this stream; it is invalid if it tries to and may not.
CUresult DriverState::check_end(CaptureSequence& sequence, const StreamQueue& stream) {
  CUresult refused = CUDA_SUCCESS;
  if (sequence.origin != &stream) {
    refused = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  } else if (sequence.mode != CU_STREAM_CAPTURE_MODE_RELAXED && sequence.thread != this_thread_number()) {
    refused = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (refused != CUDA_SUCCESS) Captures::invalidate(sequence);
  return refused;
}

CUresult DriverState::stream_is_capturing(CUstream handle, CUstreamCaptureStatus* status) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return stream_get_capture_info(handle, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult DriverState::stream_get_capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                              CUgraph* graph, const CUgraphNode** dependencies, std::size_t* count) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (is_legacy(*stream)) {
    if (const CUresult refused = captures.peek_legacy(stream->device); refused != CUDA_SUCCESS) return refused;
  }
  *status = status_of(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  const StreamCapture& capture = *stream->capture;
  if (id != nullptr) *id = capture.sequence->id;
  if (graph != nullptr) *graph = capture.sequence->graph;
  if (dependencies != nullptr) *dependencies = capture.frontier.data();
  if (count != nullptr) *count = capture.frontier.size();
  return CUDA_SUCCESS;
}

CUresult DriverState::thread_exchange_stream_capture_mode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  *mode = captures.exchange_mode(this_thread_number(), *mode);
  return CUDA_SUCCESS;
}

// --- What capture changes in the others -------------------------------------------------

// The calls that no stream takes, and that are refused whatever their arguments. The
// documentation names cudaMalloc as an example of an unsafe call and gives no list: these
// are those of the table that an H200's driver (580.159) refuses, and their kin.
CUresult DriverState::check_capture(DriverEntryId entry) {
  const std::lock_guard lock(mutex);
  const int index = current.get();
  switch (entry) {
    case DriverEntryId::ctx_synchronize:
      return index < 0 ? CUDA_SUCCESS : captures.check_device_wait(index);
    case DriverEntryId::memcpy:  // goes through the legacy stream
      return index < 0 ? CUDA_SUCCESS : captures.check_legacy(index);
    case DriverEntryId::mem_alloc:
    case DriverEntryId::mem_free:
    case DriverEntryId::mem_alloc_managed:
    case DriverEntryId::mem_host_alloc:
    case DriverEntryId::mem_free_host:
    case DriverEntryId::mem_host_register:
    case DriverEntryId::mem_host_unregister:
    case DriverEntryId::mem_pool_trim_to:
    case DriverEntryId::graph_instantiate:
      return captures.check_unsafe_call(this_thread_number());
    default:
      return CUDA_SUCCESS;
  }
}

CUresult DriverState::check_event_query(const Event& event) const {
  if (const CUresult refused = Captures::check_event(event); refused != CUDA_SUCCESS) return refused;
  return captures.is_any() ? captures.check_unsafe_call(this_thread_number()) : CUDA_SUCCESS;
}

CUresult DriverState::submit(StreamQueue& stream, Work&& work, const Targets& behind, Target* queued) {
  if (const CUresult refused = captures.check_use(stream); refused != CUDA_SUCCESS) return refused;
  if (stream.capture == nullptr) {
    if (races) races->submitted(stream, work);
    const Target target = executor.queue_work(stream, std::move(work), behind);
    if (queued != nullptr) *queued = target;
    return CUDA_SUCCESS;
  }
  const auto type = node_type_of(work.label.kind);
  if (!type) return refuse_in_capture(stream);
  GraphNode node;
  node.type = *type;
  if (races) races->captured(stream, work);
  for (const MemoryAccess& access : work.accesses) node.homes.push_back(device_of_memory(access.address));
  node.work = std::make_shared<const Work>(std::move(work));
  capture_node(stream, std::move(node));
  return CUDA_SUCCESS;
}

CUresult DriverState::refuse_in_capture(const StreamQueue& stream) {
  Captures::invalidate(*stream.capture->sequence);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void DriverState::capture_node(StreamQueue& stream, GraphNode node) {
  StreamCapture& capture = *stream.capture;
  node.device = stream.device;
  node.priority = stream.priority;
  node.dependencies = places_of(capture.frontier);
  std::vector<CUgraphNode> frontier(1);  // first, so that nothing throws once the node is there
  frontier.front() = graphs.add(capture.sequence->graph, std::move(node));
  capture.frontier = std::move(frontier);
}

CUresult DriverState::submit_record(StreamQueue& stream, CUevent handle, Event& event, bool is_external) {
  if (const CUresult refused = captures.check_use(stream); refused != CUDA_SUCCESS) return refused;
  if (stream.capture == nullptr) {
    if (is_external) return CUDA_ERROR_INVALID_VALUE;
    if (event.shared && !event.shared->has_room()) return CUDA_ERROR_OUT_OF_MEMORY;
    event.captured = nullptr;
    if (races) races->recorded(event, stream);
    executor.record(event, stream);
  } else if (is_external) {
    GraphNode node;
    node.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    node.event = handle;
    capture_node(stream, std::move(node));
  } else {
    Captures::record(event, stream);
  }
  return CUDA_SUCCESS;
}

CUresult DriverState::submit_wait(StreamQueue& stream, CUevent handle, const Event& event, bool is_external) {
  if (const CUresult refused = captures.check_use(stream); refused != CUDA_SUCCESS) return refused;
  if (is_external) {
    if (stream.capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
    GraphNode node;
    node.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    node.event = handle;
    capture_node(stream, std::move(node));
    return CUDA_SUCCESS;
  }
  if (stream.capture != nullptr || event.captured != nullptr) return captures.wait_event(stream, event);
  if (races) races->waited(stream, event, (event.flags & CU_EVENT_INTERPROCESS) != 0);
  executor.wait_event(stream, event);
  return CUDA_SUCCESS;
}

std::shared_ptr<Graph> DriverState::leave_capture(StreamQueue& stream) {
  const std::shared_ptr<CaptureSequence> ended = captures.leave(stream);
  return ended == nullptr ? nullptr : graphs.take(ended->graph);
}

std::vector<std::size_t> DriverState::places_of(const std::vector<CUgraphNode>& nodes) const {
  std::vector<std::size_t> places;
  places.reserve(nodes.size());
  std::transform(nodes.begin(), nodes.end(), std::back_inserter(places),
                 [this](CUgraphNode node) { return graphs.find_place(node)->index; });
  return places;
}

}  // namespace cistern::simulated
