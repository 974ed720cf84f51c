#pragma once

// cuda::mr's doors, by the names of the CCCL that is included: the Toolkit's, or what stands in for a newer one.

#include <cistern/integrations/cuda_mr.h>

#include <memory>

#include "tests/contract/door.h"

namespace cistern::contract {

class StreamOrderedResource final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override {
    return allocate(CudaMemoryResource(stream.device()), bytes, 256, stream.native_handle());
  }
  Outcome free(void* pointer, std::size_t bytes, const Stream& stream) override {
    return free_on_handle(pointer, bytes, stream.native_handle());
  }
  Outcome on_device(int device) override {
    return thrown_by([&] { static_cast<void>(allocate(CudaMemoryResource(device), 1024, 256, nullptr)); });
  }
  Outcome free_on_handle(void* pointer, std::size_t bytes, StreamHandle stream) override {
    return said_by([&] {
      CudaMemoryResource resource(0);
#if CCCL_VERSION >= 3001000
      resource.deallocate(cuda::stream_ref(stream), pointer, bytes);
#else
      resource.deallocate_async(pointer, bytes, 256, cuda::stream_ref(stream));
#endif
    });
  }

 private:
  static void* allocate(CudaMemoryResource resource, std::size_t bytes, std::size_t alignment, StreamHandle stream) {
#if CCCL_VERSION >= 3001000
    return resource.allocate(cuda::stream_ref(stream), bytes, alignment);
#else
    return resource.allocate_async(bytes, alignment, cuda::stream_ref(stream));
#endif
  }
};

class SynchronousResource final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override {
    return allocate(CudaMemoryResource(stream.device()), bytes);
  }
  Outcome free(void* pointer, std::size_t bytes, const Stream& stream) override {
    stream.synchronize();  // by its contract
    return said_by([&] {
      CudaMemoryResource resource(0);
#if CCCL_VERSION >= 3001000
      resource.deallocate_sync(pointer, bytes);
#else
      resource.deallocate(pointer, bytes);
#endif
    });
  }
  Outcome on_device(int device) override {
    return thrown_by([&] { static_cast<void>(allocate(CudaMemoryResource(device), 1024)); });
  }

 private:
  static void* allocate(CudaMemoryResource resource, std::size_t bytes) {
#if CCCL_VERSION >= 3001000
    return resource.allocate_sync(bytes);
#else
    return resource.allocate(bytes);
#endif
  }
};

inline std::vector<DoorKind> cuda_mr_doors() {
  std::vector<DoorKind> kinds(2);
  kinds[0] = {"CudaMr", [] { return std::make_unique<StreamOrderedResource>(); }};
  kinds[0].has_sizes = kinds[0].takes_handles = true;
  kinds[1] = {"CudaMrSynchronous", [] { return std::make_unique<SynchronousResource>(); }};
  kinds[1].has_sizes = kinds[1].waits = true;
  return kinds;
}

}  // namespace cistern::contract
