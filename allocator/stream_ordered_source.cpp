#include "allocator/stream_ordered_source.h"

#include "allocator/guard_events.h"
#include "runtime/driver_error.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <limits>

namespace cistern {
namespace {

void require_pools(const DriverApi& api, int index, CUdevice device) {
  int has_pools = 0;
  check_driver(api, api.device_get_attribute(&has_pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device),
               DriverEntryId::device_get_attribute, [&] { return fmt::format("device {}", index); });
  if (has_pools == 0 || !api.mem_alloc_from_pool_async || !api.mem_pool_create)
    throw NotSupported(
        fmt::format("policy async: device {} has no stream-ordered memory pools: choose another policy", index));
}

}  // namespace

StreamOrderedSource::StreamOrderedSource(Contexts& contexts, int index)
    : contexts_(contexts), api_(contexts.api()), index_(index) {
  const DriverApi& api = api_;
  const CUdevice device = contexts.driver_device(index);
  require_pools(api, index, device);
  const auto describe = [&] { return fmt::format("a memory pool of device {}", index); };
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  check_driver(api, api.mem_pool_create(&pool_, &properties), DriverEntryId::mem_pool_create, describe);
  cuuint64_t all = std::numeric_limits<cuuint64_t>::max();
  const CUresult kept = api.mem_pool_set_attribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
  if (kept == CUDA_SUCCESS) return;
  static_cast<void>(api.mem_pool_destroy(pool_));
  throw_driver_error(api, kept, DriverEntryId::mem_pool_set_attribute, describe());
}

StreamOrderedSource::~StreamOrderedSource() { static_cast<void>(api_.mem_pool_destroy(pool_)); }

CUresult StreamOrderedSource::allocate(std::size_t bytes, const StreamIdentity& stream, std::uint64_t* address) {
  if (is_captured_now(api_, stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUdeviceptr pointer = 0;
  const CUresult result = api_.mem_alloc_from_pool_async(&pointer, bytes, pool_, stream.handle);
  *address = pointer;
  return result;
}

CUresult StreamOrderedSource::release(std::uint64_t address, const StreamIdentity& stream, bool may_wait) {
  if (!names_its_stream(contexts_, {stream, index_, nullptr})) {
    if (!may_wait) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    // cuMemFree takes all work on memory of a pool to be over, and waits for none.
    const CUresult waited = api_.ctx_synchronize();
    return waited == CUDA_SUCCESS ? api_.mem_free(address) : waited;
  }
  if (is_captured_now(api_, stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return api_.mem_free_async(address, stream.handle);
}

bool StreamOrderedSource::holds_more_than(std::size_t bytes) const {
  std::size_t all = 0;
  return held(&all) == CUDA_SUCCESS && all > bytes;
}

CUresult StreamOrderedSource::held(std::size_t* bytes) const {
  cuuint64_t value = 0;
  const CUresult result = api_.mem_pool_get_attribute(pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value);
  *bytes = value;
  return result;
}

CUresult StreamOrderedSource::trim(std::size_t most_bytes, std::size_t* released) {
  std::size_t before = 0, after = 0;
  *released = 0;
  CUresult result = held(&before);
  if (result != CUDA_SUCCESS || before <= most_bytes) return result;
  result = api_.mem_pool_trim_to(pool_, most_bytes);
  if (result == CUDA_SUCCESS) result = held(&after);
  if (result == CUDA_SUCCESS && after < before) *released = before - after;
  return result;
}

CUresult StreamOrderedSource::allow(CUdevice peer) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, peer};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return api_.mem_pool_set_access(pool_, &access, 1);
}

}  // namespace cistern
