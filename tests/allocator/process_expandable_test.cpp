// Expandable segments of the process-wide heap: peers and other processes. Each case runs in a
// process of its own.

#include <cistern/cistern.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>

#include "allocator/process_heap.h"
#include "runtime/process_driver.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class ProcessExpandable : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB", 1);
    setenv("CISTERN_ALLOC_CONF", "expandable_segments:True", 1);
  }
  static bool may_write(int device, const void* pointer) {
    unsigned long long flags = 0;
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
    EXPECT_EQ(process_driver().mem_get_access(&flags, &location, reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  static std::string refusal(void* block) {
    try {
      static_cast<void>(export_range(block));
    } catch (const NotSupported& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(ProcessExpandable, APeerMayUseWhatIsThereAndWhatComes) {
  DeviceGuard guard(Device(0));
  void* before = allocate(30 * kMega);
  EXPECT_FALSE(may_write(1, before));
  EXPECT_TRUE(enable_peer_access(1, 0));
  EXPECT_TRUE(may_write(1, before));
  void* after = allocate(60 * kMega);
  EXPECT_TRUE(may_write(1, after));
  EXPECT_TRUE(may_write(0, after));
  DeviceGuard other(Device(1));
  void* theirs = allocate(30 * kMega);
  EXPECT_FALSE(may_write(0, theirs)) << "the other way is a call of its own";
}

TEST_F(ProcessExpandable, AUseIsRecordedByAnyByteOfTheBlock) {
  const Stream user = Stream::from_pool();
  void* const below = allocate(30 * kMega);
  auto* const used = static_cast<char*>(allocate(3 * kMega));
  void* const above = allocate(20 * kMega);
  fill_async(used, 7, 3 * kMega, user);
  record_stream_around(used + 3 * kMega - 1, user);
  for (void* block : {below, static_cast<void*>(used), above}) deallocate(block);
  EXPECT_EQ(oldest_pending_free()->address, reinterpret_cast<std::uintptr_t>(used));
  EXPECT_EQ(memory_stats().active_bytes.all.current, static_cast<std::int64_t>(3 * kMega)) << "no other";
  record_stream_around(used + 1, user);  // nobody's any more
  user.synchronize();
}

TEST_F(ProcessExpandable, APeerThatWasThereBeforeTheHeapMayUseIt) {
  EXPECT_TRUE(enable_peer_access(1, 0));
  DeviceGuard guard(Device(0));
  EXPECT_TRUE(may_write(1, allocate(30 * kMega)));
}

TEST_F(ProcessExpandable, ARefusedPeerIsTriedAgain) {
  DeviceGuard guard(Device(0));
  void* before = allocate(30 * kMega);
  simulated::driver().fail_call("cuMemSetAccess", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THROW(enable_peer_access(1, 0), DriverError);
  EXPECT_FALSE(may_write(1, before));
  enable_peer_access(1, 0);
  EXPECT_TRUE(may_write(1, before));
  EXPECT_TRUE(may_write(1, allocate(60 * kMega)));
}

TEST_F(ProcessExpandable, ABlockTravelsAsTheDescriptorsOfItsPieces) {
  static_cast<void>(allocate(3 * kMega));
  auto* block = static_cast<unsigned char*>(allocate(40 * kMega));
  fill_async(block, static_cast<unsigned char>(7), 40 * kMega);
  current_stream().synchronize();

  const SharedRange range = export_range(block);
  EXPECT_EQ(range.piece_bytes, 20 * kMega);
  EXPECT_EQ(range.descriptors.size(), 3U);
  EXPECT_EQ(range.offset, 3 * kMega);
  EXPECT_EQ(range.bytes, 40 * kMega);
  IpcMemory memory = import_range(range);
  EXPECT_EQ(memory.size(), 40 * kMega);
  unsigned char last = 0;
  copy_async(&last, static_cast<unsigned char*>(memory.data()) + 40 * kMega - 1, 1);
  current_stream().synchronize();
  EXPECT_EQ(last, 7);
  fill_async(memory.data(), static_cast<unsigned char>(9), memory.size());
  current_stream().synchronize();
  copy_async(&last, block, 1);
  current_stream().synchronize();
  EXPECT_EQ(last, 9) << "the same bytes";
  memory.release();
  EXPECT_EQ(memory_info().free, 1024 * kMega - 60 * kMega);
}

TEST_F(ProcessExpandable, ARangeThatIsNoneIsRefused) {
  SharedRange range;
  EXPECT_THROW(static_cast<void>(import_range(range)), InvalidArgument);
  range.descriptors.emplace_back();
  range.piece_bytes = 2 * kMega;
  range.bytes = 3 * kMega;
  EXPECT_THROW(static_cast<void>(import_range(range)), InvalidArgument) << "more than its pieces hold";
  range.bytes = kMega;
  EXPECT_THROW(static_cast<void>(import_range(range)), InvalidArgument) << "no descriptor";
  int local = 0;
  EXPECT_THROW(static_cast<void>(export_range(&local)), InvalidArgument);
}

// The driver has no word for it: sizes are the sender's to tell.
TEST_F(ProcessExpandable, SizesThatAreNotThoseOfTheMemoryAreRefusedAndMapNothing) {
  void* const block = allocate(3 * kMega);
  SharedRange range = export_range(block);
  const std::size_t piece = range.piece_bytes;
  for (const std::size_t wrong : {std::size_t{1}, std::size_t{4096}, piece / 2, 2 * piece}) {
    EXPECT_THROW(static_cast<void>(import_fd(range.descriptors[0].get(), wrong)), InvalidArgument) << wrong;
    range.piece_bytes = wrong;
    range.bytes = 1;
    EXPECT_THROW(static_cast<void>(import_range(range)), InvalidArgument) << wrong;
  }
  for (int i = 0; i < 2; ++i) range.descriptors.emplace_back();
  range.piece_bytes = std::numeric_limits<std::size_t>::max() / 3 + 1;  // three of them are 2 bytes, modulo 2^64
  EXPECT_THROW(static_cast<void>(import_range(range)), InvalidArgument);
  EXPECT_EQ(memory_info().free, 1024 * kMega - piece);
  EXPECT_EQ(import_fd(range.descriptors[0].get(), piece).size(), piece);
  deallocate(block);
}

TEST_F(ProcessExpandable, WhatCannotBeSharedSaysWhatToDo) {
  void* block = allocate(3 * kMega);
  try {
    static_cast<void>(send_memory(block));
    FAIL();
  } catch (const NotSupported& error) {
    EXPECT_NE(std::string(error.what()).find("export_range"), std::string::npos) << error.what();
  }
  set_options("expandable_segments:False");
  void* classic = allocate(30 * kMega);
  EXPECT_NE(refusal(classic).find("send_memory"), std::string::npos) << refusal(classic);
  set_options("expandable_segments:True,pytorch_rules:2.4");
  EXPECT_NE(refusal(block).find("expandable_segments:False"), std::string::npos) << refusal(block);
}

TEST_F(ProcessExpandable, TheConfigurationSaysThatItIsOn) {
  static_cast<void>(allocate(1000));
  EXPECT_NE(effective_config().find("policy: expandable"), std::string::npos) << effective_config();
  EXPECT_TRUE(memory_snapshot().settings.expandable_segments);
}

}  // namespace
}  // namespace cistern
