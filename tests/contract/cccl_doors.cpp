#include <cistern/integrations/thrust.h>

#include "tests/contract/cuda_mr_doors.h"
#include "tests/contract/native_doors.h"

#if CCCL_VERSION < 3001000
static_assert(cuda::mr::async_resource_with<cistern::CudaMemoryResource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::resource_with<cistern::CudaMemoryResource, cuda::mr::device_accessible>);
#endif

namespace cistern::contract {
namespace {

class Thrust final : public Door {
 public:
  void* allocate(std::size_t bytes, const Stream& stream) override {
    return ThrustAllocator<char>(stream).allocate(bytes).get();
  }
  Outcome free(void* pointer, std::size_t bytes, const Stream& stream) override {
    return said_by([&] {
      ThrustAllocator<char>(stream).deallocate(thrust::device_ptr<char>(static_cast<char*>(pointer)), bytes);
    });
  }
};

}  // namespace

std::vector<DoorKind> cccl_doors() {
  std::vector<DoorKind> kinds = cuda_mr_doors();
  kinds.push_back({"Thrust", [] { return std::make_unique<Thrust>(); }});
  kinds.back().has_sizes = true;
  return kinds;
}

}  // namespace cistern::contract
