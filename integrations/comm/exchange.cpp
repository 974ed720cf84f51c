#include "integrations/comm/exchange.h"

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/memory.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "allocator/process_heap.h"
#include "integrations/comm/checks.h"
#include "integrations/comm/peers.h"
#include "runtime/stream_access.h"
#include "runtime/strided.h"
#include "runtime/strided_values.h"

namespace cistern::comm {
namespace {

Element element_of(StridedOperation operation, DType type) {
  if (operation == StridedOperation::copy) {
    const std::size_t size = size_of(type) / (type == DType::complex64 || type == DType::complex128 ? 2 : 1);
    return size == 1 ? Element::u8 : size == 2 ? Element::u16 : size == 4 ? Element::u32 : Element::u64;
  }
  switch (type) {
    case DType::boolean:
      return Element::boolean;
    case DType::int8:
    case DType::uint8:
      return Element::u8;
    case DType::int16:
    case DType::uint16:
      return Element::u16;
    case DType::int32:
    case DType::uint32:
      return Element::u32;
    case DType::int64:
    case DType::uint64:
      return Element::u64;
    case DType::float16:
      return Element::f16;
    case DType::bfloat16:
      return Element::bf16;
    case DType::float32:
    case DType::complex64:
      return Element::f32;
    case DType::float64:
    case DType::complex128:
      return Element::f64;
  }
  return Element::u8;
}

// A number with two parts is one more dimension, of size 2.
void split_complex(StridedWork& work) {
  for (std::uint32_t d = 0; d < work.rank; ++d) {
    work.destination_strides[d] *= 2;
    work.source_strides[d] *= 2;
  }
  work.extents[work.rank] = 2;
  work.destination_strides[work.rank] = work.source_strides[work.rank] = 1;
  ++work.rank;
  work.count *= 2;
}

int device_of_stream(const Stream& stream) { return StreamAccess::device(stream); }

void wait_for(const Stream& stream) noexcept {
  try {
    stream.synchronize();
  } catch (const std::exception&) {
    // Nothing runs on a device that has failed.
  }
}

}  // namespace

void require_no_capture(const Stream& run, std::string_view what) {
  if (run.is_capturing() != CaptureStatus::none)
    throw NotSupported(fmt::format("{}: expected {} not to capture", what, run.to_string()));
}

StridedWork work_of(StridedOperation operation, const TensorView& to, const TensorView& from) {
  StridedWork work{.operation = operation,
                   .element = element_of(operation, to.dtype),
                   .rank = static_cast<std::uint32_t>(to.dimensions()),
                   .count = static_cast<std::uint64_t>(to.elements()),
                   .destination = reinterpret_cast<std::uintptr_t>(to.first()),
                   .source = reinterpret_cast<std::uintptr_t>(from.first())};
  for (std::uint32_t d = 0; d < work.rank; ++d) {
    work.extents[d] = static_cast<std::uint64_t>(to.shape[d]);
    work.destination_strides[d] = to.strides[d];
    work.source_strides[d] = from.strides[d];
  }
  if (to.dtype == DType::complex64 || to.dtype == DType::complex128) split_complex(work);
  return work;
}

Stream stream_of(const TensorView& tensor) { return current_stream(Device(device_index(tensor))); }

TensorView byte_view(const TensorView& tensor, std::size_t first, std::size_t count) {
  TensorView bytes(tensor.data, DType::uint8, {static_cast<std::int64_t>(count)}, tensor.place);
  bytes.byte_offset = tensor.byte_offset + first;
  return bytes;
}

Exchange::~Exchange() {
  for (const Stream& stream : awaited_) wait_for(stream);
  for (const Loan& loan : loans_) {
    try {
      loan.stream.wait_stream(loan.run);
    } catch (const std::exception&) {
      wait_for(loan.run);
    }
  }
}

void Exchange::lend(const Stream& stream, const Stream& run) {
  if (stream == run) return;
  const auto is_this = [&](const Loan& loan) { return loan.stream == stream && loan.run == run; };
  if (std::none_of(loans_.begin(), loans_.end(), is_this)) loans_.push_back({stream, run});
  run.wait_stream(stream);
}

void Exchange::uses(const TensorView& tensor, const Stream& run) {
  if (!tensor.place.is_host() && tensor.elements() > 0) record_stream_around(tensor.first(), run);
}

TensorView Exchange::staging(const TensorView& like, Place place, const Stream& run) {
  staging_.push_back(
      Tensor::empty(like.shape, like.dtype, place, place.is_host() ? std::nullopt : std::optional<Stream>(run)));
  return staging_.back().view();
}

TensorView Exchange::packed(const TensorView& tensor, const Stream& run) {
  if (tensor.is_contiguous()) return tensor;
  if (tensor.place.is_host()) require_no_capture(run, kHostPacks);
  const TensorView dense = staging(tensor, tensor.place, run);
  StridedWork work = work_of(StridedOperation::copy, dense, tensor);
  if (!tensor.place.is_host()) {
    queue_strided(work, run);
  } else {
    simplify(work);
    run_strided(work);
  }
  return dense;
}

// Between two places, of elements that lie alike on both.
void Exchange::move(const TensorView& to, const TensorView& from, const Stream& run) {
  const int to_device = device_index(to);
  const int from_device = device_index(from);
  if (to_device < 0) awaited_.push_back(run);
  if (to_device < 0 || from_device < 0 || to_device == from_device)
    return copy_async(to.first(), from.first(), to.bytes(), run);
  enable_peers(to_device, from_device);
  copy_peer_async(to.first(), Device(to_device), from.first(), Device(from_device), to.bytes(), run);
}

void Exchange::copy(const TensorView& to, const TensorView& from, const Stream& run) {
  if (to.elements() == 0) return;
  StridedWork work = work_of(StridedOperation::copy, to, from);
  simplify(work);
  if (is_plain_run(work)) return move(to, from, run);
  const int to_device = device_index(to);
  const int from_device = device_index(from);
  if (to_device == from_device && to_device >= 0) return queue_strided(work, run);
  // Each side's elements are brought together there.
  const int run_device = device_of_stream(run);
  const Stream packs = from_device < 0 || run_device == from_device ? run : stream_of(from);
  const TensorView source = packed(from, packs);
  lend(packs, run);
  if (to.is_contiguous()) return move(to, source, run);
  if (to_device < 0) {
    require_no_capture(run, kHostPacks);
    const TensorView arrived = staging(to, to.place, run);
    move(arrived, source, run);
    on_host_.push_back(work_of(StridedOperation::copy, to, arrived));
    return;
  }
  const Stream unpacks = run_device == to_device ? run : stream_of(to);
  const TensorView arrived = staging(to, to.place, unpacks);
  lend(unpacks, run);
  move(arrived, source, run);
  unpackings_.push_back({work_of(StridedOperation::copy, to, arrived), unpacks, run});
}

void Exchange::unpack() {
  for (const Unpacking& each : std::exchange(unpackings_, {})) {
    if (each.stream != each.run) each.stream.wait_stream(each.run);
    queue_strided(each.work, each.stream);
  }
}

void Exchange::add(const TensorView& to, const TensorView& from, const Stream& run) {
  queue_strided(work_of(StridedOperation::add, to, from), run);
}

void Exchange::finish() {
  unpack();
  while (!loans_.empty()) {
    loans_.back().stream.wait_stream(loans_.back().run);
    loans_.pop_back();
  }
  staging_.clear();
}

void Exchange::finish_on_host() {
  // Those that are left, the one that failed too, are the destructor's.
  while (!awaited_.empty()) {
    awaited_.back().synchronize();
    awaited_.pop_back();
  }
  for (StridedWork& work : on_host_) {
    simplify(work);
    run_strided(work);
  }
  on_host_.clear();
  finish();
}

}  // namespace cistern::comm
