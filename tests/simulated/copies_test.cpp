// Copies, fills and declared work: what touches memory in stream order.
#include <cistern/error.h>

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::address_of;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

const void* pointer_to(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

TEST(SimulatedCopies, MoveRealBytesInStreamOrder) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  std::vector<int> source(1000);
  std::iota(source.begin(), source.end(), 0);
  std::vector<int> result(1000);
  const std::size_t bytes = 4000;
  const CUdeviceptr first = ready.allocate(bytes);
  const CUdeviceptr second = ready.allocate(bytes);
  EXPECT_EQ(ready.api.memcpy_async(first, address_of(source.data()), bytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memcpy_async(second, first, bytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memset_d8_async(first, 0xff, bytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memcpy_async(address_of(result.data()), second, bytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(result, std::vector<int>(1000));
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(result, source);
  EXPECT_EQ(*static_cast<const int*>(pointer_to(first)), -1);
}

TEST(SimulatedCopies, ReachBetweenDevices) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUdeviceptr here = ready.allocate(512);
  ready.use(1);
  const CUdeviceptr there = ready.allocate(512);
  EXPECT_EQ(ready.api.memset_d8_async(here, 7, 512, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memcpy_async(there, here, 512, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<const unsigned char*>(pointer_to(there))[511], 7);
}

TEST(SimulatedCopies, RangesMustLieInOneLiveAllocation) {
  ReadyDriver ready;
  std::vector<char> host(4096);
  const CUdeviceptr memory = ready.allocate(2048);
  const CUdeviceptr freed = ready.allocate(4 * MiB);
  EXPECT_EQ(ready.api.mem_free(freed), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memcpy_async(memory, address_of(host.data()), 2049, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memcpy_async(memory + 2047, address_of(host.data()), 2, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memcpy_async(address_of(host.data()), freed, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memcpy_async(0, memory, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memset_d8_async(freed, 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memset_d8_async(address_of(host.data()), 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memcpy_async(memory, address_of(host.data()), 2048, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memset_d8_async(memory + 2047, 0, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memset_d8_async(freed, 0, 0, nullptr), CUDA_SUCCESS);  // no bytes, nothing to do
}

TEST(SimulatedCopies, KernelsAreHostCodeOnDeviceMemory) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  const CUdeviceptr memory = ready.allocate(4000);
  auto* values = reinterpret_cast<int*>(memory);
  ready.driver.launch(stream, {}, {{values, 4000}}, 2ms, [values] { std::iota(values, values + 1000, 1); });
  int sum = 0;
  ready.driver.launch(stream, {{values, 4000}}, {}, 3ms,
                      [values, &sum] { sum = std::accumulate(values, values + 1000, 0); });
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(sum, 500500);
  EXPECT_EQ(ready.driver.virtual_time(), 5ms);
}

TEST(SimulatedCopies, LaunchRefusesRangesThatAreNotDeviceMemory) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  const CUdeviceptr memory = ready.allocate(1024);
  const int host = 0;
  EXPECT_THROW(ready.driver.launch(stream, {{&host, 4}}, {}, 0ns, {}), InvalidArgument);
  EXPECT_THROW(ready.driver.launch(stream, {}, {{pointer_to(memory), 1025}}, 0ns, {}), InvalidArgument);
  EXPECT_THROW(ready.driver.launch(stream, {}, {}, -1ns, {}), InvalidArgument);
  EXPECT_FALSE(ready.driver.step());
  try {
    ready.driver.launch(stream, {{&host, 4}}, {}, 0ns, {});
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("4 bytes"), std::string::npos) << error.what();
  }
  ready.driver.launch(stream, {{nullptr, 0}}, {{pointer_to(memory), 1024}}, 0ns, {});
}

TEST(SimulatedCopies, MemoryThatIsGoneWhenItsTurnComesFailsTheDevice) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUdeviceptr memory = ready.allocate(1024);
  const StreamHandle there = ready.driver.create_stream(1);
  EXPECT_EQ(ready.api.memset_d8_async(memory, 1, 1024, there), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free(memory), CUDA_SUCCESS);  // waits for the memory's own device alone
  EXPECT_EQ(ready.api.stream_synchronize(there), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.stream_query(there), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);  // of the other device
}

TEST(SimulatedCopies, WithoutBackingNothingIsTouched) {
  ReadyDriver ready({.capacity_bytes = 16 * MiB, .backing = Backing::none});
  const CUdeviceptr memory = ready.allocate(4 * MiB);
  const CUdeviceptr host = 64;  // would crash if anybody looked
  EXPECT_EQ(ready.api.memcpy_async(memory, host, 4 * MiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memcpy_async(memory, host, 5 * MiB, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cistern
