// Physical memory shared with a second process by file descriptors.

#include <unistd.h>

#include "tests/conformance/driver_case.h"
#include "tests/conformance/ipc_peer.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Virtual Memory Management, "

class ShareableHandles : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    int supported = 0;
    EXPECT_OK(
        api.device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device));
    if (!api.mem_export_to_shareable_handle || supported == 0) GTEST_SKIP() << "the device exports no descriptors";
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ASSERT_OK(api.mem_get_allocation_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ASSERT_OK(api.mem_create(&handle, bytes, &properties, 0));
    ASSERT_OK(api.mem_address_reserve(&address, bytes, 0, 0, 0));
    ASSERT_OK(api.mem_map(address, bytes, 0, handle, 0));
    ASSERT_OK(api.mem_set_access(address, bytes, &access, 1));
  }
  void give_back() override {
    if (descriptor >= 0) close(descriptor);
    if (address == 0) return;
    EXPECT_OK(api.mem_unmap(address, bytes));
    EXPECT_OK(api.mem_address_free(address, bytes));
    EXPECT_OK(api.mem_release(handle));
  }

  CUresult export_handle() {
    return api.mem_export_to_shareable_handle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }
  // The address of the memory in the peer, which imported and mapped it.
  std::uint64_t mapped_by(IpcPeer& peer) {
    const Reply imported = peer.ask(Task::import);
    EXPECT_OK(imported.result);
    theirs = imported.value;
    const Reply mapped = peer.ask(Task::map, imported.value, bytes);
    EXPECT_OK(mapped.result);
    return mapped.value;
  }

  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemAllocationProp properties{};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  std::uint64_t theirs = 0;
  int descriptor = -1;
};

STATEMENT(C229, ShareableHandles, AnotherProcessMapsTheMemory, SECTION "cuMemExportToShareableHandle",
          "A process that imports an exported handle and maps it has the same memory: bytes written in either are seen "
          "in both.") {
  const CUstream stream = make_stream();
  fill(address, 5, bytes, stream);
  finish(stream);
  ASSERT_OK(export_handle());
  IpcPeer peer(descriptor);
  const std::uint64_t mapped = mapped_by(peer);
  EXPECT_OK(peer.ask(Task::set_access, mapped, bytes).result);
  EXPECT_EQ(peer.ask(Task::read, mapped + bytes - 1).value, 5u);
  EXPECT_OK(peer.ask(Task::fill, mapped, 6).result);
  EXPECT_TRUE(holds(address, 4096, 6));
}

STATEMENT(C230, ShareableHandles, AnImportedMappingStartsWithoutAccess, SECTION "cuMemMap",
          "An imported handle must be mapped, and its access set, before it is used.") {
  ASSERT_OK(export_handle());
  IpcPeer peer(descriptor);
  const std::uint64_t mapped = mapped_by(peer);
  const Reply none = peer.ask(Task::get_access, mapped);
  EXPECT_OK(none.result);
  EXPECT_EQ(none.value, unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE});
  EXPECT_OK(peer.ask(Task::set_access, mapped, bytes).result);
  EXPECT_EQ(peer.ask(Task::get_access, mapped).value, unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
}

STATEMENT(C231, ShareableHandles, OnlyARequestedTypeIsExported, SECTION "cuMemExportToShareableHandle",
          "A handle is exported as a type that it was created for: any other is `CUDA_ERROR_INVALID_VALUE`.") {
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CUmemGenericAllocationHandle plain = 0;
  ASSERT_OK(api.mem_create(&plain, bytes, &properties, 0));
  int ignored = -1;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE,
                api.mem_export_to_shareable_handle(&ignored, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_OK(api.mem_release(plain));
}

STATEMENT(C232, ShareableHandles, TheImporterReleasesItsOwn, SECTION "cuMemRelease",
          "Each import needs a release of its own: what the importer releases and unmaps leaves the exporter's memory "
          "as it is.") {
  const CUstream stream = make_stream();
  ASSERT_OK(export_handle());
  {
    IpcPeer peer(descriptor);
    static_cast<void>(mapped_by(peer));
    EXPECT_OK(peer.ask(Task::release, theirs).result);
  }
  fill(address, 8, bytes, stream);
  finish(stream);
  EXPECT_TRUE(holds(address, bytes, 8));
}

STATEMENT(C233, ShareableHandles, AnImportInTheSameProcessIsTheSameMemory, SECTION "cuMemImportFromShareableHandle",
          "A descriptor can be imported where it was exported, too: the memory is the same, the handle need not be.") {
  const CUstream stream = make_stream();
  ASSERT_OK(export_handle());
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_OK(api.mem_import_from_shareable_handle(&imported,
                                                 reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUdeviceptr alias = 0;
  ASSERT_OK(api.mem_address_reserve(&alias, bytes, 0, 0, 0));
  EXPECT_OK(api.mem_map(alias, bytes, 0, imported, 0));
  EXPECT_OK(api.mem_set_access(alias, bytes, &access, 1));
  fill(address, 4, bytes, stream);
  finish(stream);
  EXPECT_TRUE(holds(alias, bytes, 4));
  EXPECT_OK(api.mem_unmap(alias, bytes));
  EXPECT_OK(api.mem_release(imported));
  EXPECT_OK(api.mem_address_free(alias, bytes));
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
