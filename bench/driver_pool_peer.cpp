// The driver's own pool as a peer (peer.h): cuMemAllocAsync and cuMemFreeAsync of a real device, which keeps
// all that it was given (a release threshold without a limit), so that it always hits when it is warm. A
// library of its own, which finds libcuda when it is loaded.

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace {

class DriverPool {
 public:
  DriverPool() { is_ready_ = open(); }

  [[nodiscard]] bool is_ready() const { return is_ready_; }

  void* allocate(std::size_t bytes, unsigned stream) {
    bind_thread();
    stream_of_thread_ = streams_[stream % streams_.size()];
    CUdeviceptr address = 0;
    return mem_alloc_async_(&address, bytes, stream_of_thread_) == CUDA_SUCCESS ? reinterpret_cast<void*>(address)
                                                                                : nullptr;
  }
  // On the stream of the thread's last request: in these workloads each thread has one.
  void release(void* pointer) {
    static_cast<void>(mem_free_async_(reinterpret_cast<CUdeviceptr>(pointer), stream_of_thread_));
  }

 private:
  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function != nullptr;
  }

  bool open() {
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return false;
    decltype(&cuInit) init = nullptr;
    decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&cuStreamCreate) stream_create = nullptr;
    decltype(&cuDeviceGetDefaultMemPool) default_pool = nullptr;
    decltype(&cuMemPoolSetAttribute) set_attribute = nullptr;
    if (!find(init, "cuInit") || !find(retain, "cuDevicePrimaryCtxRetain") || !find(stream_create, "cuStreamCreate") ||
        !find(default_pool, "cuDeviceGetDefaultMemPool") || !find(set_attribute, "cuMemPoolSetAttribute") ||
        !find(ctx_set_current_, "cuCtxSetCurrent") || !find(mem_alloc_async_, "cuMemAllocAsync") ||
        !find(mem_free_async_, "cuMemFreeAsync"))
      return false;
    CUmemoryPool pool = nullptr;
    cuuint64_t threshold = UINT64_MAX;
    if (init(0) != CUDA_SUCCESS || retain(&context_, 0) != CUDA_SUCCESS || ctx_set_current_(context_) != CUDA_SUCCESS ||
        default_pool(&pool, 0) != CUDA_SUCCESS ||
        set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != CUDA_SUCCESS)
      return false;
    for (CUstream& stream : streams_)
      if (stream_create(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return false;
    return true;
  }

  void bind_thread() {
    static thread_local const CUresult bound = ctx_set_current_(context_);
    static_cast<void>(bound);
  }

  static thread_local CUstream stream_of_thread_;

  bool is_ready_ = false;
  void* library_ = nullptr;
  CUcontext context_ = nullptr;
  std::array<CUstream, 8> streams_{};
  decltype(&cuCtxSetCurrent) ctx_set_current_ = nullptr;
  decltype(&cuMemAllocAsync) mem_alloc_async_ = nullptr;
  decltype(&cuMemFreeAsync) mem_free_async_ = nullptr;
};
thread_local CUstream DriverPool::stream_of_thread_ = nullptr;

DriverPool& driver_pool() {
  // Never destroyed: the driver may be gone by then.
  static DriverPool& made = *new DriverPool();
  return made;
}

}  // namespace

#define CISTERN_PEER_FUNCTION extern "C" __attribute__((visibility("default")))

CISTERN_PEER_FUNCTION bool cistern_peer_is_ready() { return driver_pool().is_ready(); }
CISTERN_PEER_FUNCTION void* cistern_driver_pool_allocate(std::size_t bytes) { return driver_pool().allocate(bytes, 0); }
CISTERN_PEER_FUNCTION void* cistern_driver_pool_allocate_on(std::size_t bytes, unsigned stream) {
  return driver_pool().allocate(bytes, stream);
}
CISTERN_PEER_FUNCTION void cistern_driver_pool_release(void* pointer) { driver_pool().release(pointer); }
