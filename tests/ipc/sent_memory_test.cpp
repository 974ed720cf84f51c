// Blocks of the heap that are sent to other processes, and what the receivers do with them.

#include <cistern/c_api.h>
#include <cistern/cistern.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/byte_units.h"
#include "tests/ipc/peer_process.h"

namespace cistern::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = PeerProcess::Kind;

class SentMemory : public ::testing::Test {
 protected:
  static std::string text_of(const MemoryHandle& handle) {
    const auto bytes = handle.to_bytes();
    return to_hex(bytes.data(), bytes.size());
  }
  static unsigned char byte_at(const void* pointer) {
    unsigned char byte = 0;
    copy_async(&byte, pointer, 1);
    current_stream().synchronize();
    return byte;
  }
  static void fill(void* pointer, unsigned char value, std::size_t bytes) {
    fill_async(pointer, value, bytes);
    current_stream().synchronize();
  }
  void TearDown() override { EXPECT_EQ(ipc_collect().handles, 0u) << "a story must end with nothing sent"; }

  PeerProcess peer{Kind::library, "capacity=4GiB"};
};

TEST_F(SentMemory, TheReceiverSeesTheBlockAtItsOffset) {
  void* first = allocate(kMega / 2);
  void* block = allocate(kMega / 2);
  fill(block, 7, kMega / 2);
  const MemoryHandle handle = send_memory(block);
  const std::string number = peer.ask("open " + text_of(handle));
  EXPECT_EQ(number, "1");
  EXPECT_EQ(peer.ask("byte 1"), "7");
  EXPECT_EQ(peer.ask("fill 1 9"), "ok");
  EXPECT_EQ(byte_at(block), 9);
  EXPECT_EQ(peer.ask("release 1"), "ok");
  deallocate(block);
  deallocate(first);
}

TEST_F(SentMemory, ByTheFunctionsForC) {
  void* block = nullptr;
  MemoryHandle::Bytes handle{};
  ASSERT_EQ(cistern_allocate(kMega, 0, nullptr, &block), CISTERN_SUCCESS);
  fill(block, 5, kMega);
  ASSERT_EQ(cistern_send_memory(block, 1, handle.data(), handle.size()), CISTERN_SUCCESS) << cistern_last_error();
  EXPECT_EQ(cistern_deallocate(block), CISTERN_SUCCESS);
  CISTERN_STRUCT(cistern_ipc_counts, counts);
  EXPECT_EQ(peer.ask("byte_by_c " + to_hex(handle.data(), handle.size())), "5");
  EXPECT_EQ(cistern_ipc_collect(), CISTERN_SUCCESS);
  EXPECT_EQ(cistern_get_ipc_counts(&counts), CISTERN_SUCCESS);
  EXPECT_EQ(counts.handles, 0U);
  EXPECT_EQ(peer.ask("byte_by_c " + to_hex(handle.data(), handle.size())).rfind("error: open_ipc", 0), 0U);
}

TEST_F(SentMemory, ADeallocatedBlockIsKeptUntilTheReceiverLetsGo) {
  void* block = allocate(kMega);
  fill(block, 3, kMega);
  ASSERT_EQ(peer.ask("open " + text_of(send_memory(block))), "1");
  deallocate(block);
  EXPECT_NE(allocate(kMega), block);
  EXPECT_EQ(ipc_collect().waiting, 1u);
  EXPECT_EQ(ipc_counts().bytes, kMega);
  EXPECT_THROW(static_cast<void>(send_memory(block)), InvalidArgument) << "it is not the sender's any more";
  EXPECT_EQ(peer.ask("byte 1"), "3");

  EXPECT_EQ(peer.ask("release 1"), "ok");
  const IpcCounts left = ipc_collect();
  EXPECT_EQ(left.blocks, 0u);
  EXPECT_FALSE(left.has_file);
  EXPECT_EQ(allocate(kMega), block) << "it is free again";
}

TEST_F(SentMemory, AReceiverThatIsKilledLetsGo) {
  void* block = allocate(kMega);
  ASSERT_EQ(peer.ask("open " + text_of(send_memory(block))), "1");
  deallocate(block);
  ASSERT_EQ(ipc_collect().waiting, 1u);
  peer.kill();
  EXPECT_EQ(ipc_collect().handles, 0u);
  EXPECT_EQ(allocate(kMega), block);
}

TEST_F(SentMemory, AllReceiversMustBeDone) {
  PeerProcess second(Kind::library, "capacity=4GiB");
  void* block = allocate(kMega);
  const std::string handle = text_of(send_memory(block, 2));
  ASSERT_EQ(peer.ask("open " + handle), "1");
  deallocate(block);
  ASSERT_EQ(peer.ask("release 1"), "ok");
  EXPECT_EQ(ipc_collect().receivers, 1u) << "one is still to come";
  ASSERT_EQ(second.ask("open " + handle), "1");
  EXPECT_THAT(peer.ask("open " + handle), HasSubstr("all receivers")) << "there were two";
  ASSERT_EQ(second.ask("release 1"), "ok");
  EXPECT_EQ(ipc_collect().blocks, 0u);
}

TEST_F(SentMemory, ABlockThatIsStillAllocatedIsNotFreedByCollecting) {
  void* block = allocate(kMega);
  ASSERT_EQ(peer.ask("open " + text_of(send_memory(block))), "1");
  ASSERT_EQ(peer.ask("release 1"), "ok");
  EXPECT_EQ(ipc_collect().handles, 0u);
  EXPECT_NE(allocate(kMega), block);
  deallocate(block);
  EXPECT_EQ(allocate(kMega), block);
}

TEST_F(SentMemory, ARecalledHandleIsAwaitedNoMoreAndOpensNothing) {
  void* block = allocate(kMega);
  const MemoryHandle handle = send_memory(block);
  deallocate(block);
  ASSERT_EQ(ipc_collect().receivers, 1u);
  recall_memory(handle);
  EXPECT_EQ(ipc_counts().blocks, 0u);
  EXPECT_THAT(peer.ask("open " + text_of(handle)), StartsWith("error"));
  EXPECT_THROW(recall_memory(handle), InvalidArgument);
}

TEST_F(SentMemory, OneProcessOpensAHandleOnceAndSharesIt) {
  void* block = allocate(kMega);
  const std::string handle = text_of(send_memory(block));
  ASSERT_EQ(peer.ask("open " + handle), "1");
  ASSERT_EQ(peer.ask("open " + handle), "2");
  EXPECT_EQ(peer.ask("fill 1 5"), "ok");
  EXPECT_EQ(peer.ask("byte 2"), "5");
  EXPECT_EQ(peer.ask("release 1"), "ok");
  EXPECT_EQ(ipc_collect().receivers, 1u) << "the second share holds on";
  EXPECT_EQ(peer.ask("release 2"), "ok");
  EXPECT_EQ(ipc_collect().receivers, 0u);
  deallocate(block);
}

TEST_F(SentMemory, WhatIsNoBlockIsRefusedAndChangesNothing) {
  int host = 0;
  EXPECT_THROW(static_cast<void>(send_memory(&host)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(send_memory(nullptr)), InvalidArgument);
  void* block = allocate(kMega);
  EXPECT_THROW(static_cast<void>(send_memory(block, 0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(send_memory(block, 65)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(send_memory(static_cast<char*>(block) + 512)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(open_ipc(ipc_handle(block))), InvalidArgument) << "its own process";
  EXPECT_EQ(ipc_counts().handles, 0u);
  deallocate(block);
}

// Event::ipc_handle and Event::from_ipc_handle, between processes.
TEST(SentEvents, AreSeenCompleteWhereTheyWereOpened) {
  PeerProcess peer(Kind::library, "capacity=4GiB");
  Event event(EventOptions{.interprocess = true});
  const auto bytes = event.ipc_handle().to_bytes();
  ASSERT_EQ(peer.ask("open_event " + to_hex(bytes.data(), bytes.size())), "0");
  EXPECT_EQ(peer.ask("query 0"), "true");
  const Stream stream = Stream::create();
  simulated::driver().occupy(stream.native_handle(), std::chrono::milliseconds(1));
  event.record(stream);
  EXPECT_EQ(peer.ask("query 0"), "false");
  stream.synchronize();
  EXPECT_EQ(peer.ask("query 0"), "true");
}

TEST(IpcHandles, AreTheSameAfterTheirBytesTravelled) {
  MemoryHandle::Parts parts;
  parts.driver[3] = 9;
  parts.device[15] = 1;
  parts.allocation = 4096;
  parts.offset = 512;
  parts.bytes = 1024;
  parts.sender = {7, 8, 9, 10, 11, 12};
  const MemoryHandle handle(parts);
  const auto bytes = handle.to_bytes();
  const MemoryHandle again = MemoryHandle::from_bytes(bytes.data(), bytes.size());
  EXPECT_EQ(again, handle);
  EXPECT_EQ(std::hash<MemoryHandle>()(again), std::hash<MemoryHandle>()(handle));
  EXPECT_EQ(again.parts().sender.serial, 12u);
  parts.sender.serial = 13;
  EXPECT_NE(MemoryHandle(parts), handle);
}

TEST(IpcHandles, BytesThatAreNoneAreRefused) {
  const EventHandle event({}, {});
  auto bytes = event.to_bytes();
  EXPECT_EQ(EventHandle::from_bytes(bytes.data(), bytes.size()), event);
  EXPECT_THROW(static_cast<void>(EventHandle::from_bytes(bytes.data(), bytes.size() - 1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(EventHandle::from_bytes(nullptr, bytes.size())), InvalidArgument);
  bytes[0] ^= 1;
  EXPECT_THROW(static_cast<void>(EventHandle::from_bytes(bytes.data(), bytes.size())), InvalidArgument);
  MemoryHandle::Parts parts;
  parts.allocation = 10;
  parts.offset = 8;
  parts.bytes = 3;
  EXPECT_THROW(MemoryHandle{parts}, InvalidArgument);
}

TEST(Processes, AreListedAsTorchDoes) {
  void* block = allocate(3 * kMega);
  const std::size_t held = simulated::driver().used_bytes();  // what stories before this one left, too
  EXPECT_GE(held, 3 * kMega);
  EXPECT_THAT(list_gpu_processes(0), ::testing::MatchesRegex("GPU:0\nprocess +[0-9]+ uses +" +
                                                             std::to_string(held / kMega) + "\\.000 MB GPU memory"));
  EXPECT_EQ(gpu_processes(0).size(), 1u);
  deallocate(block);
}

}  // namespace
}  // namespace cistern::testing
