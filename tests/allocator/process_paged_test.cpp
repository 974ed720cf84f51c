// The free functions over paged memory: peers reach it, and other processes do not. Each case has a process of its own.

#include <cistern/cistern.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "allocator/process_heap.h"
#include "runtime/process_driver.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class ProcessPaged : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB", 1);
    setenv("CISTERN_ALLOC_CONF", "policy:paged", 1);
  }
  static bool may_write(int device, const void* pointer) {
    unsigned long long flags = 0;
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
    EXPECT_EQ(process_driver().mem_get_access(&flags, &location, reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
};

TEST_F(ProcessPaged, APeerMayUseWhatIsThereAndWhatComes) {
  DeviceGuard guard(Device(0));
  void* before = allocate(30 * kMega);
  EXPECT_FALSE(may_write(1, before));
  EXPECT_TRUE(enable_peer_access(1, 0));
  EXPECT_TRUE(may_write(1, before));
  void* after = allocate(90 * kMega);
  EXPECT_TRUE(may_write(1, after));
  deallocate(before);
  deallocate(after);
}

TEST_F(ProcessPaged, ABlockDoesNotLeaveTheProcess) {
  void* block = allocate(3 * kMega);
  const auto refusal = [](auto&& share) {
    try {
      share();
    } catch (const NotSupported& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string sent = refusal([block] { static_cast<void>(send_memory(block)); });
  EXPECT_NE(sent.find("paged memory"), std::string::npos) << sent;
  EXPECT_NE(sent.find("MemPool"), std::string::npos) << sent;
  const std::string exported = refusal([block] { static_cast<void>(export_range(block)); });
  EXPECT_NE(exported.find("paged memory"), std::string::npos) << exported;
  deallocate(block);
}

TEST_F(ProcessPaged, AUseIsRecordedByAnyByteOfTheBlock) {
  const Stream user = Stream::from_pool();
  std::vector<void*> blocks;
  for (const std::size_t bytes : {std::size_t{512}, 3 * kMega, 24 * kMega, std::size_t{4096}})
    blocks.push_back(allocate(bytes));
  blocks.push_back(allocate(3 * kMega, Stream::from_pool()));  // another stream's, looked at first
  auto* const used = static_cast<char*>(blocks[1]);
  fill_async(used, 7, 3 * kMega, user);
  record_stream_around(used + 3 * kMega - 1, user);
  for (void* block : blocks) deallocate(block);
  EXPECT_EQ(oldest_pending_free()->address, reinterpret_cast<std::uintptr_t>(used));
  EXPECT_EQ(oldest_pending_free()->waits_for_id, user.id());
  EXPECT_EQ(memory_stats().active_bytes.all.current, static_cast<std::int64_t>(3 * kMega)) << "no other";
  user.synchronize();
}

// The second stream's fill comes after the first one's, though nobody waited for that.
TEST_F(ProcessPaged, WorkOnTheSameBytesIsOrderedAcrossStreams) {
  const Stream first = Stream::from_pool();
  const Stream second = Stream::from_pool();
  constexpr std::size_t bytes = 24 * kMega;
  void* before = allocate(bytes, first);
  fill_async(before, 7, bytes, first);
  deallocate(before);
  auto* block = static_cast<unsigned char*>(allocate(bytes, second));
  EXPECT_EQ(memory_reserved(), bytes) << "one stream's bytes serve the other";
  fill_async(block, 9, bytes, second);
  unsigned char ends[2] = {};
  copy_async(&ends[0], block, 1, second);
  copy_async(&ends[1], block + bytes - 1, 1, second);
  second.synchronize();
  first.synchronize();
  EXPECT_EQ(ends[0], 9);
  EXPECT_EQ(ends[1], 9);
  deallocate(block);
}

TEST_F(ProcessPaged, TheConfigurationSaysThatItIsOn) {
  static_cast<void>(allocate(1000));
  EXPECT_NE(effective_config().find("policy: paged"), std::string::npos) << effective_config();
  EXPECT_EQ(memory_snapshot().settings.policy, "paged");
}

}  // namespace
}  // namespace cistern
