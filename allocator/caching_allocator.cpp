// CachingAllocator: the public face of a DeviceHeaps of one's own.

#include "allocator/device_heaps.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

// The contexts that an allocator of one's own works in: it has its own over a driver it
// was given, and shares the process's otherwise.
struct OwnContexts {
  explicit OwnContexts(const DriverApi* driver) : own(driver ? std::make_unique<Contexts>(*driver) : nullptr) {}
  [[nodiscard]] Contexts& get() const { return own ? *own : process_contexts(); }
  std::unique_ptr<Contexts> own;
};

}  // namespace

struct CachingAllocator::State {
  explicit State(const CachingAllocatorOptions& options)
      : contexts(options.driver), heaps(contexts.get(), options.options) {}
  OwnContexts contexts;
  DeviceHeaps heaps;  // after the contexts: its end still uses them
};

CachingAllocator::CachingAllocator(const CachingAllocatorOptions& options) : state_(std::make_unique<State>(options)) {}
CachingAllocator::~CachingAllocator() = default;

void* CachingAllocator::allocate(std::size_t bytes, StreamHandle stream, int device) {
  if (stream == nullptr) return state_->heaps.allocate(bytes, {}, device);
  if (bytes == 0) return nullptr;
  const StreamUse use = state_->heaps.use_of(stream, device);
  return state_->heaps.allocate(bytes, use.stream, use.device);
}

void* CachingAllocator::allocate(std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return nullptr;
  const StreamUse use = state_->heaps.use_of(stream);
  return state_->heaps.allocate(bytes, use.stream, use.device);
}

void CachingAllocator::deallocate(void* pointer) noexcept { state_->heaps.deallocate(pointer); }

void CachingAllocator::deallocate(void* pointer, StreamHandle last_used_on) noexcept {
  const int device = state_->heaps.device_of(pointer);
  if (device < 0) {
    deallocate(pointer);
    return;
  }
  try {
    const StreamUse use = state_->heaps.use_of(last_used_on, device);
    state_->heaps.deallocate(pointer, &use);
  } catch (...) {  // no event can guard the free
    state_->heaps.deallocate_after_waiting(pointer);
  }
}

void CachingAllocator::record_stream(void* pointer, StreamHandle stream) {
  const int device = state_->heaps.device_of(pointer);
  if (device >= 0) state_->heaps.record_stream(pointer, state_->heaps.use_of(stream, device));
}

void CachingAllocator::record_stream(void* pointer, const Stream& stream) {
  state_->heaps.record_stream(pointer, state_->heaps.use_of(stream));
}

void CachingAllocator::empty_cache() {
  state_->heaps.for_each([](DeviceAllocator& heap) { heap.empty_cache(); });
}

std::size_t CachingAllocator::trim(std::size_t target_bytes, int device) {
  return state_->heaps.heap(device).trim(target_bytes);
}

void CachingAllocator::set_memory_fraction(double fraction, int device) {
  state_->heaps.heap(device).set_memory_fraction(fraction);
}

double CachingAllocator::memory_fraction(int device) const { return state_->heaps.heap(device).memory_fraction(); }

void CachingAllocator::set_options(std::string_view text) { state_->heaps.set_options(text); }
AllocatorOptions CachingAllocator::options() const { return state_->heaps.options(); }

ObserverId CachingAllocator::add_out_of_memory_observer(OutOfMemoryObserver observer) {
  return state_->heaps.observers().add(std::move(observer));
}

ObserverId CachingAllocator::add_free_memory_callback(FreeMemoryCallback callback) {
  return state_->heaps.observers().add(std::move(callback));
}

bool CachingAllocator::remove_observer(ObserverId id) { return state_->heaps.observers().remove(id); }

MemoryStats CachingAllocator::memory_stats(int device) const { return state_->heaps.stats(device); }

std::string CachingAllocator::memory_summary(int device, bool abbreviated) const {
  return state_->heaps.summary(device, abbreviated);
}

std::string CachingAllocator::memory_report(int device) const { return state_->heaps.report(device); }
Snapshot CachingAllocator::snapshot() const { return state_->heaps.snapshot(); }

void CachingAllocator::reset_peak_memory_stats(int device) { state_->heaps.heap(device).reset_peak_stats(); }

void CachingAllocator::reset_accumulated_memory_stats(int device) {
  state_->heaps.heap(device).reset_accumulated_stats();
}

void CachingAllocator::check() const {
  state_->heaps.for_each([](const DeviceAllocator& heap) { heap.check(); });
}

}  // namespace cistern
