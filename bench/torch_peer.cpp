// PyTorch's caching allocator as a peer (peer.h): a library of its own, which scripts/device_peers.sh
// compiles on the machine that has PyTorch and a device, against the PyTorch that is there. A block takes the
// allocator's steps that a tensor's storage takes, without the storage.

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <exception>
#include <vector>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr unsigned kStreams = 8;

// Of PyTorch's own; empty where it has no device.
const std::vector<c10::cuda::CUDAStream>& streams() {
  static const auto& made = *new std::vector<c10::cuda::CUDAStream>([] {
    std::vector<c10::cuda::CUDAStream> taken;
    try {
      if (c10::cuda::device_count() == 0) return taken;
      at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
      for (unsigned i = 0; i < kStreams; ++i) taken.push_back(c10::cuda::getStreamFromPool(false, 0));
    } catch (const std::exception&) {
      taken.clear();
    }
    return taken;
  }());
  return made;
}

}  // namespace

#define CISTERN_PEER_FUNCTION extern "C" __attribute__((visibility("default")))

CISTERN_PEER_FUNCTION bool cistern_peer_is_ready() { return !streams().empty(); }

// Null where the device has no memory left.
CISTERN_PEER_FUNCTION void* cistern_torch_allocate(std::size_t bytes) {
  try {
    return caching::raw_alloc(bytes);
  } catch (const std::exception&) {
    return nullptr;
  }
}

CISTERN_PEER_FUNCTION void* cistern_torch_allocate_on(std::size_t bytes, unsigned stream) {
  try {
    return caching::raw_alloc_with_stream(bytes, streams()[stream % kStreams].stream());
  } catch (const std::exception&) {
    return nullptr;
  }
}

CISTERN_PEER_FUNCTION void cistern_torch_record(void* pointer, unsigned stream) {
  // It takes a DataPtr, as a tensor's storage holds it, and knows its own by the deleter.
  c10::DataPtr held(pointer, pointer, caching::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
  caching::recordStream(held, streams()[stream % kStreams]);
  static_cast<void>(held.release_context());
}

CISTERN_PEER_FUNCTION void cistern_torch_release(void* pointer) { caching::raw_delete(pointer); }
