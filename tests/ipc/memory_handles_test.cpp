// Legacy handles of memory, between processes that were started separately.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/ipc/peer_process.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern::testing {
namespace {

using Kind = PeerProcess::Kind;
constexpr const char* kSettings = "capacity=256MiB";

std::string refused(CUresult code) { return "error " + std::to_string(static_cast<int>(code)); }

class MemoryHandles : public ::testing::Test {
 protected:
  CUipcMemHandle handle_of(CUdeviceptr pointer) {
    CUipcMemHandle handle{};
    EXPECT_EQ(own.api.ipc_get_mem_handle(&handle, pointer), CUDA_SUCCESS);
    return handle;
  }
  static std::string text_of(const CUipcMemHandle& handle) { return to_hex(&handle, sizeof handle); }
  static unsigned char byte_at(CUdeviceptr pointer) { return *reinterpret_cast<unsigned char*>(pointer); }
  static CUipcMemHandle handle_from(const std::string& text) {
    CUipcMemHandle handle{};
    const auto bytes = from_hex(text);
    EXPECT_EQ(bytes.size(), sizeof handle) << text;
    if (bytes.size() == sizeof handle) std::memcpy(&handle, bytes.data(), sizeof handle);
    return handle;
  }
  CUresult open(const CUipcMemHandle& handle, CUdeviceptr* pointer) {
    return own.api.ipc_open_mem_handle(pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }

  ReadyDriver own;
  PeerProcess peer{Kind::driver, kSettings};
};

TEST_F(MemoryHandles, BothProcessesSeeOneMemory) {
  const CUdeviceptr ours = own.allocate(4 * MiB);
  std::memset(reinterpret_cast<void*>(ours), 7, 4 * MiB);

  const std::uint64_t theirs = peer.ask_number("open_memory " + text_of(handle_of(ours)));
  EXPECT_EQ(peer.ask("byte " + std::to_string(theirs + 4 * MiB - 1)), "7");
  EXPECT_EQ(peer.ask("fill " + std::to_string(theirs) + " 9 4194304"), "ok");
  EXPECT_EQ(byte_at(ours), 9);
  EXPECT_EQ(byte_at(ours + 4 * MiB - 1), 9);
}

TEST_F(MemoryHandles, SmallAllocationsAreSharedAtTheirPlace) {
  own.allocate(100 * KiB);
  const CUdeviceptr ours = own.allocate(3 * KiB);
  std::memset(reinterpret_cast<void*>(ours), 5, 3 * KiB);

  const std::uint64_t theirs = peer.ask_number("open_memory " + text_of(handle_of(ours)));
  EXPECT_EQ(peer.ask("byte " + std::to_string(theirs)), "5");
  EXPECT_EQ(peer.ask("byte " + std::to_string(theirs + 3 * KiB - 1)), "5");
}

TEST_F(MemoryHandles, AnyAddressOfAnAllocationGivesTheHandleOfItsBase) {
  const CUdeviceptr ours = own.allocate(4 * MiB);
  EXPECT_EQ(text_of(handle_of(ours + 3 * MiB)), text_of(handle_of(ours)));
  EXPECT_EQ(text_of(handle_of(ours)), text_of(handle_of(ours)));
}

TEST_F(MemoryHandles, OpeningTwiceGivesOneAddressUntilItIsClosedTwice) {
  const std::uint64_t theirs = peer.ask_number("allocate 2097152");
  const CUipcMemHandle handle = handle_from(peer.ask("memory_handle " + std::to_string(theirs)));
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  ASSERT_EQ(open(handle, &first), CUDA_SUCCESS);
  ASSERT_EQ(open(handle, &second), CUDA_SUCCESS);
  EXPECT_EQ(first, second);

  EXPECT_EQ(own.api.ipc_close_mem_handle(first), CUDA_SUCCESS);
  EXPECT_EQ(own.api.memset_d8_async(first, 3, 8, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(own.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(peer.ask("byte " + std::to_string(theirs)), "3");
  EXPECT_EQ(own.api.ipc_close_mem_handle(first), CUDA_SUCCESS);
  EXPECT_EQ(own.api.ipc_close_mem_handle(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.api.memset_d8_async(first, 3, 8, nullptr), CUDA_ERROR_INVALID_VALUE) << "it is unmapped";
}

TEST_F(MemoryHandles, ClosingWaitsForTheWorkThatUsesTheMemory) {
  const std::uint64_t theirs = peer.ask_number("allocate 2097152");
  CUdeviceptr mapped = 0;
  ASSERT_EQ(open(handle_from(peer.ask("memory_handle " + std::to_string(theirs))), &mapped), CUDA_SUCCESS);
  ASSERT_EQ(own.api.memset_d8_async(mapped, 6, 2 * MiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(own.api.ipc_close_mem_handle(mapped), CUDA_SUCCESS);
  EXPECT_EQ(peer.ask("byte " + std::to_string(theirs)), "6");
}

TEST_F(MemoryHandles, TheExportingProcessCannotOpenItsOwn) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(open(handle_of(own.allocate(2 * MiB)), &pointer), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(MemoryHandles, MemoryThatWasFreedCannotBeOpenedThoughItsAddressIsUsedAgain) {
  const CUdeviceptr first = own.allocate(2 * MiB);
  const std::string stale = text_of(handle_of(first));
  ASSERT_EQ(own.api.mem_free(first), CUDA_SUCCESS);
  ASSERT_EQ(own.allocate(2 * MiB), first);
  EXPECT_EQ(peer.ask("open_memory " + stale), refused(CUDA_ERROR_MAP_FAILED));
  const std::string fresh = text_of(handle_of(first));
  EXPECT_NE(fresh, stale) << "a unique handle for the new memory";
  EXPECT_NE(peer.ask_number("open_memory " + fresh), 0u);
}

TEST_F(MemoryHandles, AnExporterThatDiedLeavesWhatIsMappedAndOpensNothing) {
  const std::uint64_t theirs = peer.ask_number("allocate 2097152");
  peer.ask("fill " + std::to_string(theirs) + " 8 2097152");
  const CUipcMemHandle handle = handle_from(peer.ask("memory_handle " + std::to_string(theirs)));
  const std::uint64_t other = peer.ask_number("allocate 2097152");
  const CUipcMemHandle other_handle = handle_from(peer.ask("memory_handle " + std::to_string(other)));
  CUdeviceptr mapped = 0;
  ASSERT_EQ(open(handle, &mapped), CUDA_SUCCESS);
  peer.kill();

  EXPECT_EQ(byte_at(mapped), 8);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(open(other_handle, &pointer), CUDA_ERROR_MAP_FAILED);
  EXPECT_EQ(own.api.ipc_close_mem_handle(mapped), CUDA_SUCCESS);
}

TEST_F(MemoryHandles, AnExporterThatFreesOpenMemoryHarmsOnlyItsBytes) {
  const std::uint64_t theirs = peer.ask_number("allocate 2097152");
  CUdeviceptr mapped = 0;
  ASSERT_EQ(open(handle_from(peer.ask("memory_handle " + std::to_string(theirs))), &mapped), CUDA_SUCCESS);
  EXPECT_EQ(peer.ask("free " + std::to_string(theirs)), "ok");
  EXPECT_EQ(own.api.memset_d8_async(mapped, 1, 2 * MiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(own.api.ipc_close_mem_handle(mapped), CUDA_SUCCESS);
}

TEST_F(MemoryHandles, WhatIsNoHandleOrNoMemoryIsRefused) {
  CUdeviceptr pointer = 0;
  CUipcMemHandle handle{};
  EXPECT_EQ(open(handle, &pointer), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(own.api.ipc_get_mem_handle(nullptr, own.allocate(1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.api.ipc_get_mem_handle(&handle, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.api.ipc_close_mem_handle(own.allocate(1)), CUDA_ERROR_INVALID_VALUE);
  const CUipcMemHandle theirs =
      handle_from(peer.ask("memory_handle " + std::to_string(peer.ask_number("allocate 1024"))));
  EXPECT_EQ(own.api.ipc_open_mem_handle(&pointer, theirs, 0), CUDA_ERROR_INVALID_VALUE) << "the flag is required";
  EXPECT_EQ(own.api.ipc_open_mem_handle(nullptr, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(own.api.ctx_set_current(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(open(theirs, &pointer), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(MemoryHandles, AnImportIsNotFreedNorExportedAgainNorCounted) {
  const std::uint64_t theirs = peer.ask_number("allocate 2097152");
  CUdeviceptr mapped = 0;
  ASSERT_EQ(open(handle_from(peer.ask("memory_handle " + std::to_string(theirs))), &mapped), CUDA_SUCCESS);
  CUipcMemHandle handle{};
  EXPECT_EQ(own.api.mem_free(mapped), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.api.ipc_get_mem_handle(&handle, mapped), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.driver.used_bytes(), 0u);
}

TEST_F(MemoryHandles, ADeviceThatIsNotHereCannotBeOpened) {
  PeerProcess two(Kind::driver, "devices=2,capacity=256MiB");
  ASSERT_EQ(two.ask("use 1"), "ok");
  const CUipcMemHandle handle =
      handle_from(two.ask("memory_handle " + std::to_string(two.ask_number("allocate 2097152"))));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(open(handle, &pointer), CUDA_ERROR_MAP_FAILED);
}

TEST_F(MemoryHandles, AnotherDeviceOpensWhatItCanReach) {
  PeerProcess linked(Kind::driver, "devices=2,capacity=256MiB");
  PeerProcess apart(Kind::driver, "devices=2,capacity=256MiB,peers=none");
  const std::string handle = text_of(handle_of(own.allocate(2 * MiB)));
  ASSERT_EQ(linked.ask("use 1"), "ok");
  EXPECT_NE(linked.ask_number("open_memory " + handle), 0u);
  ASSERT_EQ(apart.ask("use 1"), "ok");
  EXPECT_EQ(apart.ask("open_memory " + handle), refused(CUDA_ERROR_MAP_FAILED));
}

// cuIpcOpenMemHandle: "as if the user called cuCtxEnablePeerAccess".
TEST_F(MemoryHandles, OpeningAPeersMemoryEnablesAccessToThePeer) {
  ReadyDriver two({.devices = 2, .capacity_bytes = 256 * MiB});
  CUcontext owner = nullptr;
  ASSERT_EQ(two.api.primary_ctx_retain(&owner, 0), CUDA_SUCCESS);
  two.use(1);
  const CUipcMemHandle handle =
      handle_from(peer.ask("memory_handle " + std::to_string(peer.ask_number("allocate 2097152"))));
  CUdeviceptr mapped = 0;
  for (int opened = 0; opened < 2; ++opened) {
    ASSERT_EQ(two.api.ipc_open_mem_handle(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
    EXPECT_EQ(two.api.ctx_enable_peer_access(owner, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    EXPECT_EQ(two.api.ctx_disable_peer_access(owner), CUDA_SUCCESS);
  }
  two.use(0);
  ASSERT_EQ(two.api.ipc_open_mem_handle(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
  CUcontext other = nullptr;
  ASSERT_EQ(two.api.primary_ctx_retain(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(two.api.ctx_disable_peer_access(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) << "its own device's memory";
}

TEST_F(MemoryHandles, WhatCouldNotBeOpenedEnablesNothing) {
  ReadyDriver two({.devices = 2, .capacity_bytes = 256 * MiB});
  CUcontext owner = nullptr;
  ASSERT_EQ(two.api.primary_ctx_retain(&owner, 0), CUDA_SUCCESS);
  two.use(1);
  const std::uint64_t theirs = peer.ask_number("allocate 2097152");
  const CUipcMemHandle handle = handle_from(peer.ask("memory_handle " + std::to_string(theirs)));
  ASSERT_EQ(peer.ask("free " + std::to_string(theirs)), "ok");
  CUdeviceptr mapped = 0;
  EXPECT_EQ(two.api.ipc_open_mem_handle(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_MAP_FAILED);
  EXPECT_EQ(two.api.ctx_disable_peer_access(owner), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

TEST_F(MemoryHandles, ThreeProcessesShareOneAllocation) {
  PeerProcess third(Kind::driver, kSettings);
  const CUdeviceptr ours = own.allocate(2 * MiB);
  const std::string handle = text_of(handle_of(ours));
  const std::uint64_t in_peer = peer.ask_number("open_memory " + handle);
  const std::uint64_t in_third = third.ask_number("open_memory " + handle);
  EXPECT_EQ(peer.ask("fill " + std::to_string(in_peer) + " 4 16"), "ok");
  EXPECT_EQ(third.ask("byte " + std::to_string(in_third + 15)), "4");
}

}  // namespace
}  // namespace cistern::testing
