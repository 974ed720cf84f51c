#include "runtime/simulated/capture.h"

#include <algorithm>
#include <utility>

namespace cistern::simulated {
namespace {

using State = CaptureSequence::State;

cuuint64_t next_capture_id() noexcept {
  static std::atomic<cuuint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

void add_missing(std::vector<CUgraphNode>& nodes, const std::vector<CUgraphNode>& more) {
  for (CUgraphNode node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
}

bool has_blocking_stream(const CaptureSequence& sequence, int device) {
  return std::any_of(sequence.streams.begin(), sequence.streams.end(), [device](const StreamQueue* stream) {
    return stream->device == device && stream->synchronizes_with_legacy();
  });
}

bool has_stream(const CaptureSequence& sequence, int device) {
  return std::any_of(sequence.streams.begin(), sequence.streams.end(),
                     [device](const StreamQueue* stream) { return stream->device == device; });
}

// Invalidates all sequences for which `conflicts` holds; `refusal` if there is one.
template <class Conflicts>
CUresult refuse(const std::vector<std::shared_ptr<CaptureSequence>>& sequences, CUresult refusal, Conflicts conflicts) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& sequence : sequences) {
    if (!conflicts(*sequence)) continue;
    Captures::invalidate(*sequence);
    result = refusal;
  }
  return result;
}

}  // namespace

// --- Sequences --------------------------------------------------------------------------

void Captures::begin(StreamQueue& origin, CUstreamCaptureMode mode, std::uint64_t thread, CUgraph graph) {
  auto sequence = std::make_shared<CaptureSequence>();
  sequence->id = next_capture_id();
  sequence->mode = mode;
  sequence->thread = thread;
  sequence->origin = &origin;
  sequence->graph = graph;
  sequence->streams.push_back(&origin);
  auto part = std::make_shared<StreamCapture>();
  part->sequence = sequence;
  sequences_.push_back(std::move(sequence));
  origin.capture = std::move(part);
  count_.store(sequences_.size(), std::memory_order_relaxed);
}

void Captures::end(const std::shared_ptr<CaptureSequence>& sequence) {
  sequence->state = State::ended;
  for (StreamQueue* stream : sequence->streams) stream->capture = nullptr;
  sequence->streams.clear();
  sequences_.erase(std::find(sequences_.begin(), sequences_.end(), sequence));
  count_.store(sequences_.size(), std::memory_order_relaxed);
}

void Captures::invalidate(CaptureSequence& sequence) noexcept {
  if (sequence.state == State::active) sequence.state = State::invalidated;
}

std::shared_ptr<CaptureSequence> Captures::leave(StreamQueue& stream) {
  if (stream.capture == nullptr) return nullptr;
  const std::shared_ptr<CaptureSequence> sequence = stream.capture->sequence;
  if (sequence->origin == &stream) {
    end(sequence);
    return sequence;
  }
  auto& streams = sequence->streams;
  streams.erase(std::find(streams.begin(), streams.end(), &stream));
  stream.capture = nullptr;
  return nullptr;
}

// --- Checks -----------------------------------------------------------------------------
// Programming Guide, "Prohibited and Unhandled Operations" and "Invalidation".

CUresult Captures::check_use(const StreamQueue& stream) const {
  if (is_legacy(stream)) return check_legacy(stream.device);
  const bool is_invalid = stream.capture != nullptr && stream.capture->sequence->state == State::invalidated;
  return is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

// Of a stream that is not captured it is a potentially unsafe call: so an H200's driver (580.159) has it.
CUresult Captures::check_query(const StreamQueue& stream, std::uint64_t thread) const {
  if (const CUresult refused = check_use(stream); refused != CUDA_SUCCESS) return refused;
  if (stream.capture == nullptr) return is_any() ? check_unsafe_call(thread) : CUDA_SUCCESS;
  invalidate(*stream.capture->sequence);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::check_device_wait(int device) const {
  return refuse(sequences_, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                [device](const CaptureSequence& sequence) { return has_stream(sequence, device); });
}

CUresult Captures::check_legacy(int device) const {
  return refuse(sequences_, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                [device](const CaptureSequence& sequence) { return has_blocking_stream(sequence, device); });
}

CUresult Captures::peek_legacy(int device) const {
  const bool depends = std::any_of(sequences_.begin(), sequences_.end(),
                                   [device](const auto& sequence) { return has_blocking_stream(*sequence, device); });
  return depends ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult Captures::check_event(const Event& event) {
  if (event.captured == nullptr) return CUDA_SUCCESS;
  invalidate(*event.captured->sequence);
  return CUDA_ERROR_CAPTURED_EVENT;
}

// Driver API, cuThreadExchangeStreamCaptureMode: the three modes of a thread.
CUresult Captures::check_unsafe_call(std::uint64_t thread) const {
  const CUstreamCaptureMode mode = mode_of(thread);
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  return refuse(sequences_, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [mode, thread](const CaptureSequence& sequence) {
    if (sequence.thread == thread) return sequence.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && sequence.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  });
}

// --- Events -----------------------------------------------------------------------------

void Captures::record(Event& event, const StreamQueue& stream) {
  event.captured = std::make_shared<CapturedRecord>(CapturedRecord{stream.capture->sequence, stream.capture->frontier});
}

// Programming Guide, "Cross-stream Dependencies and Events".
CUresult Captures::wait_event(StreamQueue& stream, const Event& event) {
  const std::shared_ptr<StreamCapture> own = stream.capture;
  const std::shared_ptr<CapturedRecord> record = event.captured;
  const bool is_open = record != nullptr && record->sequence->state != State::ended;
  if (own != nullptr) {
    if (is_open && record->sequence == own->sequence) {
      add_missing(own->frontier, record->nodes);
      return CUDA_SUCCESS;
    }
    invalidate(*own->sequence);
    if (!is_open) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    invalidate(*record->sequence);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (!is_open) return CUDA_ERROR_CAPTURED_EVENT;
  if (record->sequence->state == State::invalidated) return CUDA_ERROR_INVALID_VALUE;
  if (is_legacy(stream)) {
    invalidate(*record->sequence);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  auto part = std::make_shared<StreamCapture>(StreamCapture{record->sequence, record->nodes});
  record->sequence->streams.push_back(&stream);
  stream.capture = std::move(part);
  return CUDA_SUCCESS;
}

// --- Threads ----------------------------------------------------------------------------

CUstreamCaptureMode Captures::mode_of(std::uint64_t thread) const {
  const auto found = modes_.find(thread);
  return found == modes_.end() ? CU_STREAM_CAPTURE_MODE_GLOBAL : found->second;
}

CUstreamCaptureMode Captures::exchange_mode(std::uint64_t thread, CUstreamCaptureMode mode) {
  const CUstreamCaptureMode former = mode_of(thread);
  modes_[thread] = mode;
  return former;
}

}  // namespace cistern::simulated
