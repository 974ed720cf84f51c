// Virtual memory: reservations, physical handles, mappings, access, aliases.

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Virtual Memory Management, "
#define GUIDE "Programming Guide, Virtual Memory Management, "

class VirtualMemory : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    if (!api.mem_create) GTEST_SKIP() << "the driver has no virtual memory management";
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    ASSERT_OK(api.mem_get_allocation_granularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ASSERT_GT(granule, 0u);
  }

  CUdeviceptr reserve(std::size_t bytes, std::size_t alignment = 0) {
    CUdeviceptr address = 0;
    EXPECT_OK(api.mem_address_reserve(&address, bytes, alignment, 0, 0));
    return address;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_OK(api.mem_create(&handle, bytes, &properties, 0));
    return handle;
  }
  void map(CUdeviceptr address, CUmemGenericAllocationHandle handle, std::size_t bytes) {
    EXPECT_OK(api.mem_map(address, bytes, 0, handle, 0));
  }
  void allow(CUdeviceptr address, std::size_t bytes) {
    EXPECT_OK(api.mem_set_access(address, bytes, &read_and_write, 1));
  }
  void unmap(CUdeviceptr address, std::size_t bytes) { EXPECT_OK(api.mem_unmap(address, bytes)); }
  void release(CUmemGenericAllocationHandle handle) { EXPECT_OK(api.mem_release(handle)); }
  void unreserve(CUdeviceptr address, std::size_t bytes) { EXPECT_OK(api.mem_address_free(address, bytes)); }
  // The access of the first device.
  unsigned long long access(CUdeviceptr address) {
    unsigned long long flags = 99;
    EXPECT_OK(api.mem_get_access(&flags, &read_and_write.location, address));
    return flags;
  }
  std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_OK(api.mem_get_info(&free, &total));
    return free;
  }

  CUmemAllocationProp properties{};
  const CUmemAccessDesc read_and_write{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  std::size_t granule = 0;
};

STATEMENT(C117, VirtualMemory, TheRecommendedGranularityIsAMultiple, SECTION "cuMemGetAllocationGranularity",
          "The recommended granularity is a multiple of the minimal one.") {
  std::size_t recommended = 0;
  EXPECT_OK(api.mem_get_allocation_granularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT_GT(recommended, 0u);
  EXPECT_EQ(recommended % granule, 0u);
}

STATEMENT(C118, VirtualMemory, AHandlesSizeIsWholeGranules, SECTION "cuMemCreate",
          "The size of a handle must be a multiple of the minimal granularity, and not 0.") {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_create(&handle, granule + 1, &properties, 0));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_create(&handle, 0, &properties, 0));
}

STATEMENT(C119, VirtualMemory, CreateFlagsMustBeZero, SECTION "cuMemCreate",
          "The flags of cuMemCreate must be 0 for now, and the properties must be given.") {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_create(&handle, granule, &properties, 1));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_create(&handle, granule, nullptr, 0));
}

STATEMENT(C120, VirtualMemory, TooMuchIsRefused, SECTION "cuMemCreate",
          "More physical memory than there is is `CUDA_ERROR_OUT_OF_MEMORY`.") {
  std::size_t total = 0;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(api.device_total_mem(&total, device));
  EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, api.mem_create(&handle, total / granule * granule * 2, &properties, 0));
}

STATEMENT(C121, VirtualMemory, PhysicalMemoryIsTakenByTheHandle, SECTION "cuMemRelease",
          "Memory is taken when the handle is created, and freed when the handle is released and no mapping is left.") {
  const std::size_t bytes = 16 * granule;
  const CUdeviceptr address = reserve(bytes);
  const std::size_t before = free_bytes();
  const auto handle = create(bytes);
  EXPECT_LE(free_bytes() + bytes, before);
  map(address, handle, bytes);
  release(handle);
  EXPECT_LE(free_bytes() + bytes, before);
  unmap(address, bytes);
  EXPECT_GE(free_bytes() + bytes, before);
  EXPECT_GT(free_bytes(), before - bytes);
  unreserve(address, bytes);
}

STATEMENT(C122, VirtualMemory, AReservationIsWholePages, SECTION "cuMemAddressReserve",
          "The size of a reservation must be a multiple of the page size, its alignment a power of two or 0.") {
  CUdeviceptr address = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_address_reserve(&address, 1, 0, 0, 0));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_address_reserve(&address, granule, 3 * granule, 0, 0));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_address_reserve(&address, 0, 0, 0, 0));
}

STATEMENT(C123, VirtualMemory, AReservationHasItsAlignment, SECTION "cuMemAddressReserve",
          "A reservation begins at a multiple of the alignment that was asked for.") {
  const CUdeviceptr address = reserve(granule, 64 * kMiB);
  EXPECT_EQ(address % (64 * kMiB), 0u);
  unreserve(address, granule);
}

STATEMENT(C124, VirtualMemory, AnAddressIsAHint, SECTION "cuMemAddressReserve",
          "The address asked for is a hint: where it is taken, another range is reserved.") {
  const CUdeviceptr taken = reserve(4 * granule);
  CUdeviceptr other = 0;
  EXPECT_OK(api.mem_address_reserve(&other, 4 * granule, 0, taken, 0));
  EXPECT_TRUE(other + 4 * granule <= taken || taken + 4 * granule <= other);
  unreserve(other, 4 * granule);
  unreserve(taken, 4 * granule);
}

STATEMENT(C125, VirtualMemory, AReservationIsFreedAsItWasMade, SECTION "cuMemAddressFree",
          "Address and size of a reservation that is freed must be those of the reservation.") {
  const CUdeviceptr address = reserve(2 * granule);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_address_free(address, granule));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_address_free(address + granule, granule));
  unreserve(address, 2 * granule);
}

STATEMENT(C126, VirtualMemory, TheOffsetOfAMappingIsZero, SECTION "cuMemMap",
          "The offset into the handle must be 0 for now: `CUDA_ERROR_NOT_SUPPORTED`.") {
  const CUdeviceptr address = reserve(2 * granule);
  const auto handle = create(2 * granule);
  EXPECT_RESULT(CUDA_ERROR_NOT_SUPPORTED, api.mem_map(address, granule, granule, handle, 0));
  release(handle);
  unreserve(address, 2 * granule);
}

STATEMENT(C127, VirtualMemory, AMappingNeedsAReservation, SECTION "cuMemMap", "The range mapped must be reserved.") {
  const CUdeviceptr address = reserve(granule);
  const auto handle = create(2 * granule);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_map(address, 2 * granule, 0, handle, 0));
  release(handle);
  unreserve(address, granule);
}

STATEMENT(C128, VirtualMemory, AMappingNeedsAFreeRange, SECTION "cuMemMap",
          "A range that is mapped cannot be mapped again before it is unmapped.") {
  const CUdeviceptr address = reserve(granule);
  const auto one = create(granule), other = create(granule);
  map(address, one, granule);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_map(address, granule, 0, other, 0));
  unmap(address, granule);
  map(address, other, granule);
  unmap(address, granule);
  release(one);
  release(other);
  unreserve(address, granule);
}

STATEMENT(C129, VirtualMemory, AMappingAloneGivesNoAccess, SECTION "cuMemMap",
          "cuMemMap does not make the range accessible: there is no access before cuMemSetAccess.") {
  const CUdeviceptr address = reserve(granule);
  const auto handle = create(granule);
  map(address, handle, granule);
  EXPECT_EQ(access(address), unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE});
  allow(address, granule);
  EXPECT_EQ(access(address), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  unmap(address, granule);
  release(handle);
  unreserve(address, granule);
}

STATEMENT(C130, VirtualMemory, AccessNeedsMappings, SECTION "cuMemSetAccess",
          "The range of cuMemSetAccess must be mapped throughout.") {
  const CUdeviceptr address = reserve(2 * granule);
  const auto handle = create(granule);
  map(address, handle, granule);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_set_access(address, 2 * granule, &read_and_write, 1));
  EXPECT_EQ(access(address), unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE});
  unmap(address, granule);
  release(handle);
  unreserve(address, 2 * granule);
}

STATEMENT(C131, VirtualMemory, OneCallCoversManyHandles, SECTION "cuMemSetAccess",
          "One cuMemSetAccess covers a contiguous range of several mappings, which are one piece of memory then.") {
  const CUdeviceptr address = reserve(3 * granule);
  std::vector<CUmemGenericAllocationHandle> handles;
  for (std::size_t i = 0; i < 3; ++i) {
    handles.push_back(create(granule));
    map(address + i * granule, handles.back(), granule);
  }
  allow(address, 3 * granule);
  const CUstream stream = make_stream();
  fill(address, 4, 3 * granule, stream);
  finish(stream);
  EXPECT_TRUE(holds(address, 3 * granule, 4));
  for (std::size_t i = 0; i < 3; ++i) {
    unmap(address + i * granule, granule);
    release(handles[i]);
  }
  unreserve(address, 3 * granule);
}

STATEMENT(C132, VirtualMemory, AMappingIsUnmappedWhole, SECTION "cuMemUnmap",
          "A part of a mapping cannot be unmapped.") {
  const CUdeviceptr address = reserve(2 * granule);
  const auto handle = create(2 * granule);
  map(address, handle, 2 * granule);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_unmap(address, granule));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_unmap(address + granule, granule));
  unmap(address, 2 * granule);
  release(handle);
  unreserve(address, 2 * granule);
}

STATEMENT(C133, VirtualMemory, AnUnmappedRangeIsAReservationAgain, SECTION "cuMemUnmap",
          "An unmapped range can be mapped anew, and the new mapping starts without access.") {
  const CUdeviceptr address = reserve(granule);
  const auto handle = create(granule);
  map(address, handle, granule);
  allow(address, granule);
  unmap(address, granule);
  map(address, handle, granule);
  EXPECT_EQ(access(address), unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE});
  unmap(address, granule);
  release(handle);
  unreserve(address, granule);
}

STATEMENT(C134, VirtualMemory, AMappedReservationIsNotFreed, GUIDE "Freeing Physical Memory",
          "A reservation is freed after its mappings are gone: while it is mapped the call fails.") {
  const CUdeviceptr address = reserve(granule);
  const auto handle = create(granule);
  map(address, handle, granule);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_address_free(address, granule));
  unmap(address, granule);
  unreserve(address, granule);
  release(handle);
}

STATEMENT(C135, VirtualMemory, AReleasedHandleLivesWhileItIsMapped, SECTION "cuMemRelease",
          "A handle may be released while it is mapped: the memory stays until it is unmapped.") {
  const CUdeviceptr address = reserve(granule);
  const auto handle = create(granule);
  map(address, handle, granule);
  allow(address, granule);
  const CUstream stream = make_stream();
  fill(address, 6, granule, stream);
  finish(stream);
  release(handle);
  EXPECT_TRUE(holds(address, granule, 6));
  unmap(address, granule);
  unreserve(address, granule);
}

STATEMENT(C136, VirtualMemory, AliasesShowTheSameBytes, GUIDE "Virtual Aliasing Support",
          "Several mappings of one handle are the same memory: later operations see through each what was written "
          "through another.") {
  const CUdeviceptr one = reserve(granule), other = reserve(granule);
  const auto handle = create(granule);
  map(one, handle, granule);
  map(other, handle, granule);
  allow(one, granule);
  allow(other, granule);
  const CUstream stream = make_stream();
  fill(one, 1, granule, stream);
  fill(other + 10, 2, 10, stream);
  finish(stream);
  EXPECT_TRUE(holds(other, 10, 1));
  EXPECT_TRUE(holds(one + 10, 10, 2));
  EXPECT_TRUE(holds(one + 20, granule - 20, 1));
  unmap(one, granule);
  EXPECT_TRUE(holds(other + 10, 10, 2));
  unmap(other, granule);
  release(handle);
  unreserve(one, granule);
  unreserve(other, granule);
}

STATEMENT(C137, VirtualMemory, AccessBelongsToTheMapping, SECTION "cuMemSetAccess",
          "Access is set for a range of addresses: an alias at another address keeps its own.") {
  const CUdeviceptr one = reserve(granule), other = reserve(granule);
  const auto handle = create(granule);
  map(one, handle, granule);
  map(other, handle, granule);
  allow(one, granule);
  EXPECT_EQ(access(one), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  EXPECT_EQ(access(other), unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE});
  unmap(one, granule);
  unmap(other, granule);
  release(handle);
  unreserve(one, granule);
  unreserve(other, granule);
}

STATEMENT(C138, VirtualMemory, BytesStayWithTheHandle, GUIDE "Mapping Memory",
          "The bytes belong to the physical memory: mapped elsewhere they are the same.") {
  const CUdeviceptr one = reserve(granule), other = reserve(granule);
  const auto handle = create(granule);
  map(one, handle, granule);
  allow(one, granule);
  const CUstream stream = make_stream();
  fill(one, 8, granule, stream);
  finish(stream);
  unmap(one, granule);
  map(other, handle, granule);
  allow(other, granule);
  EXPECT_TRUE(holds(other, granule, 8));
  unmap(other, granule);
  release(handle);
  unreserve(one, granule);
  unreserve(other, granule);
}

STATEMENT(C139, VirtualMemory, AnAddressGivesItsHandle, SECTION "cuMemRetainAllocationHandle",
          "Any address of a mapping gives the handle that was mapped there, to be released once more; an unmapped one "
          "fails.") {
  const CUdeviceptr address = reserve(2 * granule);
  const auto handle = create(granule);
  map(address, handle, granule);
  CUmemGenericAllocationHandle came = 0;
  EXPECT_OK(api.mem_retain_allocation_handle(&came, reinterpret_cast<void*>(address + 100)));
  EXPECT_EQ(came, handle);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE,
                api.mem_retain_allocation_handle(&came, reinterpret_cast<void*>(address + granule)));
  release(handle);
  unmap(address, granule);
  // Still retained: it can be mapped.
  map(address, handle, granule);
  unmap(address, granule);
  release(handle);
  unreserve(address, 2 * granule);
}

STATEMENT(C140, VirtualMemory, AHandleKnowsItsProperties, SECTION "cuMemGetAllocationPropertiesFromHandle",
          "A handle's properties are those that it was created with.") {
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto handle = create(granule);
  CUmemAllocationProp came{};
  EXPECT_OK(api.mem_get_allocation_properties(&came, handle));
  EXPECT_EQ(came.type, properties.type);
  EXPECT_EQ(came.location.type, properties.location.type);
  EXPECT_EQ(came.location.id, properties.location.id);
  EXPECT_EQ(came.requestedHandleTypes, properties.requestedHandleTypes);
  release(handle);
}

STATEMENT(C141, VirtualMemory, MappedMemoryHasDevicePointers, "Driver API, Unified Addressing, cuPointerGetAttribute",
          "A pointer into a mapped range is a device pointer, marked as mapped.") {
  const CUdeviceptr address = reserve(granule);
  const auto handle = create(granule);
  map(address, handle, granule);
  allow(address, granule);
  unsigned type = 0, mapped = 0;
  EXPECT_OK(api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_OK(api.pointer_get_attribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, address));
  EXPECT_EQ(mapped & 1U, 1u);
  unmap(address, granule);
  release(handle);
  unreserve(address, granule);
}

#undef SECTION
#undef GUIDE

}  // namespace
}  // namespace cistern::conformance
