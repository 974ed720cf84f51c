#include "allocator/page_source.h"

#include "runtime/virtual_memory_support.h"

#include <algorithm>

namespace cistern {
namespace {

CUmemAccessDesc read_and_write(CUdevice device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

}  // namespace

std::unique_ptr<PageSource> PageSource::make(const DriverApi& api, CUdevice device) {
  if (!supports_virtual_memory(api, device)) return nullptr;
  return std::unique_ptr<PageSource>(new PageSource(api, device, supports_descriptor_handles(api, device),
                                                    supports_rdma_of_virtual_memory(api, device)));
}

CUresult PageSource::reserve(std::size_t bytes, std::uint64_t* address) const {
  CUdeviceptr reserved = 0;
  const CUresult result = api_.mem_address_reserve(&reserved, bytes, 0, 0, 0);
  *address = reserved;
  return result;
}

CUresult PageSource::free(std::uint64_t address, std::size_t bytes) const {
  return api_.mem_address_free(address, bytes);
}

// Neither property can be added to memory that is there.
CUmemAllocationProp PageSource::properties(bool shareable) const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  if (shareable && has_descriptors_) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.allocFlags.gpuDirectRDMACapable = has_rdma_ ? 1 : 0;
  return properties;
}

void PageSource::make_room(Room& room, std::size_t pages) {
  if (room.empty()) room.emplace_back();
  room.front().reserve(pages);
}

PageSource::Outcome PageSource::map(const Pages& pages, const std::vector<CUdevice>& peers, bool shareable,
                                    Room& room) {
  try {
    // They may be what the device is short of.
    if (owes_releases()) release_owed();
    // All host memory first: nothing below may fail for want of it.
    make_room(room, pages.bytes / pages.page_bytes);
  } catch (...) {  // as the driver says when the host has none left for it
    return {CUDA_ERROR_OUT_OF_MEMORY, DriverEntryId::mem_create, 0};
  }
  const Outcome outcome = map_all(pages, peers, properties(shareable), room.front());
  release(room);
  return outcome;
}

// Leaves the handles to the caller, who releases them whether this succeeds or not.
PageSource::Outcome PageSource::map_all(const Pages& pages, const std::vector<CUdevice>& peers,
                                        const CUmemAllocationProp& properties, Handles& handles) {
  const std::size_t page = pages.page_bytes;
  for (std::size_t at = 0; at < pages.bytes; at += page) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = api_.mem_create(&handle, page, &properties, 0);
    if (result != CUDA_SUCCESS) return {result, DriverEntryId::mem_create, 0};
    handles.push_back(handle);
  }
  Outcome outcome;
  while (outcome.done < pages.bytes && outcome.result == CUDA_SUCCESS) {
    outcome.result = api_.mem_map(pages.address + outcome.done, page, 0, handles[outcome.done / page], 0);
    if (outcome.result == CUDA_SUCCESS) outcome.done += page;
  }
  if (outcome.result == CUDA_SUCCESS) {
    outcome.call = DriverEntryId::mem_set_access;
    outcome.result = allow_all(pages, peers);
    if (outcome.result == CUDA_SUCCESS) return outcome;
  }
  // From the last one back, so that what stays, if the driver refuses, is one piece.
  while (outcome.done != 0 && api_.mem_unmap(pages.address + outcome.done - page, page) == CUDA_SUCCESS)
    outcome.done -= page;
  return outcome;
}

CUresult PageSource::allow_all(const Pages& pages, const std::vector<CUdevice>& peers) const {
  CUresult result = allow(pages, device_);
  for (std::size_t i = 0; i < peers.size() && result == CUDA_SUCCESS; ++i) result = allow(pages, peers[i]);
  return result;
}

PageSource::Outcome PageSource::unmap(const Pages& pages) const {
  Outcome outcome{CUDA_SUCCESS, DriverEntryId::mem_unmap, 0};
  while (outcome.done < pages.bytes) {
    outcome.result = api_.mem_unmap(pages.address + outcome.done, pages.page_bytes);
    if (outcome.result != CUDA_SUCCESS) break;
    outcome.done += pages.page_bytes;
  }
  return outcome;
}

CUresult PageSource::allow(const Pages& pages, CUdevice peer) const {
  const CUmemAccessDesc access = read_and_write(peer);
  return api_.mem_set_access(pages.address, pages.bytes, &access, 1);
}

bool PageSource::owes_releases() noexcept {
  const std::lock_guard lock(mutex_);
  return !unreleased_.empty();
}

void PageSource::release_owed() noexcept {
  Room owed;
  {
    const std::lock_guard lock(mutex_);
    owed.swap(unreleased_);
  }
  release(owed);
}

void PageSource::release(Room& handles) noexcept {
  for (auto some = handles.begin(); some != handles.end();) {
    std::erase_if(*some,
                  [this](CUmemGenericAllocationHandle handle) { return api_.mem_release(handle) == CUDA_SUCCESS; });
    const auto place = some++;
    if (place->empty()) continue;
    const std::lock_guard lock(mutex_);
    unreleased_.splice(unreleased_.end(), handles, place);
  }
}

}  // namespace cistern
