#include "runtime/nvtx_memory.h"

#if __has_include(<nvtx3/nvToolsExtMem.h>)
#include <nvtx3/nvToolsExtMem.h>

#include <iterator>
#include <map>
#include <mutex>

#include "runtime/host_block_note.h"

namespace cistern {
namespace {

nvtxMemVirtualRangeDesc_t range(CUdeviceptr address, std::size_t bytes) {
  return {bytes, reinterpret_cast<const void*>(address)};
}

// Registers pieces of device memory, as the driver gives them, and the blocks in them. Notes come with a
// heap's lock held: they call nothing of the driver.
class MemoryAnnotations {
 public:
  explicit MemoryAnnotations(const DriverApi& driver)
      : mem_alloc_(driver.mem_alloc),
        mem_free_(driver.mem_free),
        mem_map_(driver.mem_map),
        mem_unmap_(driver.mem_unmap),
        domain_(nvtxDomainCreateA("cistern")) {}

  void allocated(CUdeviceptr address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const nvtxMemVirtualRangeDesc_t region = range(address, bytes);
    nvtxMemRegionsRegisterBatch_t batch = {};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    batch.heap = heap_of(address, bytes);
    batch.regionCount = 1;
    batch.regionDescElementSize = sizeof region;
    batch.regionDescElements = &region;
    nvtxMemRegionsRegister(domain_, &batch);
  }

  void freed(CUdeviceptr address) {
    nvtxMemRegionRef_t region = {};
    region.pointer = reinterpret_cast<const void*>(address);
    nvtxMemRegionsUnregisterBatch_t batch = {};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    batch.refCount = 1;
    batch.refElementSize = sizeof region;
    batch.refElements = &region;
    nvtxMemRegionsUnregister(domain_, &batch);
  }

  CUresult mem_alloc(CUdeviceptr* address, std::size_t bytes) {
    const CUresult result = mem_alloc_(address, bytes);
    if (result == CUDA_SUCCESS) given(*address, bytes);
    return result;
  }
  // Before the call: afterwards the address may be somebody else's already.
  CUresult mem_free(CUdeviceptr address) {
    given_back(address);
    return mem_free_(address);
  }
  CUresult mem_map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                   unsigned long long flags) {
    const CUresult result = mem_map_(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS) given(address, bytes);
    return result;
  }
  CUresult mem_unmap(CUdeviceptr address, std::size_t bytes) {
    given_back(address);
    return mem_unmap_(address, bytes);
  }
  [[nodiscard]] bool has_virtual_memory() const { return mem_map_ && mem_unmap_; }

 private:
  struct Heap {
    std::size_t bytes = 0;
    nvtxMemHeapHandle_t handle = nullptr;
  };

  // The heap that a block lies in. A block over several pieces is one of the whole process.
  nvtxMemHeapHandle_t heap_of(CUdeviceptr address, std::size_t bytes) {
    const auto above = heaps_.upper_bound(address);
    if (above == heaps_.begin()) return NVTX_MEM_HEAP_HANDLE_PROCESS_WIDE;
    const auto& [base, heap] = *std::prev(above);
    return address + bytes <= base + heap.bytes ? heap.handle : NVTX_MEM_HEAP_HANDLE_PROCESS_WIDE;
  }

  nvtxMemHeapHandle_t registered(CUdeviceptr base, std::size_t bytes) {
    const nvtxMemVirtualRangeDesc_t piece = range(base, bytes);
    nvtxMemHeapDesc_t desc = {};
    desc.extCompatID = NVTX_EXT_COMPATID_MEM;
    desc.structSize = sizeof desc;
    desc.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    desc.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    desc.typeSpecificDescSize = sizeof piece;
    desc.typeSpecificDesc = &piece;
    return nvtxMemHeapRegister(domain_, &desc);
  }

  void given(CUdeviceptr address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    heaps_.insert_or_assign(address, Heap{bytes, registered(address, bytes)});
  }

  void given_back(CUdeviceptr address) {
    const std::lock_guard lock(mutex_);
    const auto heap = heaps_.find(address);
    if (heap == heaps_.end()) return;
    nvtxMemHeapUnregister(domain_, heap->second.handle);
    heaps_.erase(heap);
  }

  const decltype(DriverApi::mem_alloc) mem_alloc_;
  const decltype(DriverApi::mem_free) mem_free_;
  const decltype(DriverApi::mem_map) mem_map_;
  const decltype(DriverApi::mem_unmap) mem_unmap_;
  const nvtxDomainHandle_t domain_;
  std::mutex mutex_;
  std::map<CUdeviceptr, Heap> heaps_;  // by address
};

// The extension tells nobody whether a tool took it up but by its own table of functions, which the
// first call fills in.
bool is_tool_attached() {
  const nvtxMemRegionsUnregisterBatch_t none = {NVTX_EXT_COMPATID_MEM,
                                                sizeof(nvtxMemRegionsUnregisterBatch_t),
                                                NVTX_MEM_REGION_REF_TYPE_POINTER,
                                                0,
                                                sizeof(nvtxMemRegionRef_t),
                                                nullptr};
  nvtxMemRegionsUnregister(nullptr, &none);
  const std::intptr_t function = NVTX_EXT_MEM_VERSIONED_ID(nvtxExtMemSlots)[NVTX3EXT_CBID_nvtxMemRegionsRegister + 1];
  return function != NVTX_EXTENSION_DISABLED && function != NVTX_EXTENSION_FRESH;
}

MemoryAnnotations& annotations(void* self) { return *static_cast<MemoryAnnotations*>(self); }

}  // namespace

void annotate_memory(DriverApi& api) {
  if (!is_tool_attached()) return;
  auto* self = new MemoryAnnotations(api);  // as long as the driver's table: the process
  api.note_allocate = {self, [](void* each, CUdeviceptr address, std::size_t bytes, CUstream, const void* pool) {
                         if (!is_of_host_block(pool)) annotations(each).allocated(address, bytes);
                       }};
  api.note_free = {self, [](void* each, CUdeviceptr address, std::size_t bytes, CUstream, const void* pool) {
                     if (bytes != 0 && !is_of_host_block(pool)) annotations(each).freed(address);
                   }};
  api.mem_alloc = {self, [](void* each, CUdeviceptr* address, std::size_t bytes) {
                     return annotations(each).mem_alloc(address, bytes);
                   }};
  api.mem_free = {self, [](void* each, CUdeviceptr address) { return annotations(each).mem_free(address); }};
  if (!annotations(self).has_virtual_memory()) return;
  api.mem_map = {self, [](void* each, CUdeviceptr address, std::size_t bytes, std::size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
                   return annotations(each).mem_map(address, bytes, offset, handle, flags);
                 }};
  api.mem_unmap = {self, [](void* each, CUdeviceptr address, std::size_t bytes) {
                     return annotations(each).mem_unmap(address, bytes);
                   }};
}

}  // namespace cistern

#else

namespace cistern {

void annotate_memory(DriverApi&) {}  // a Toolkit whose NVTX does not have the extension yet

}  // namespace cistern

#endif
