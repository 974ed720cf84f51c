// Device memory: allocation, fills and copies, and when the synchronous ones return.

#include <algorithm>

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

class Memory : public DriverCase {
 protected:
  static CUdeviceptr address(std::vector<unsigned char>& bytes) { return reinterpret_cast<CUdeviceptr>(bytes.data()); }
};

STATEMENT(C078, Memory, NothingIsNotAllocated, "Driver API, Memory Management, cuMemAlloc",
          "An allocation of 0 bytes is `CUDA_ERROR_INVALID_VALUE`.") {
  CUdeviceptr memory = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_alloc(&memory, 0));
}

STATEMENT(C079, Memory, AllocationsAreAligned, "Programming Guide, Device Memory Accesses",
          "The address of an allocation is aligned to at least 256 bytes, however small it is.") {
  for (const std::size_t bytes : {1, 3, 100, 257, 5000}) EXPECT_EQ(make_memory(bytes) % 256, 0u) << bytes;
}

STATEMENT(C080, Memory, TooMuchIsRefused, "Driver API, Memory Management, cuMemAlloc",
          "More memory than there is is `CUDA_ERROR_OUT_OF_MEMORY`, and later requests are served.") {
  std::size_t total = 0;
  CUdeviceptr memory = 0;
  ASSERT_OK(api.device_total_mem(&total, device));
  EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, api.mem_alloc(&memory, 2 * total));
  EXPECT_NE(make_memory(), 0u);
}

STATEMENT(C081, Memory, OnlyAllocationsAreFreed, "Driver API, Memory Management, cuMemFree",
          "What is freed must have been returned by an allocation: an address inside one, or one freed before, is "
          "`CUDA_ERROR_INVALID_VALUE`.") {
  CUdeviceptr memory = 0;
  ASSERT_OK(api.mem_alloc(&memory, 4096));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free(memory + 256));
  EXPECT_OK(api.mem_free(memory));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free(memory));
}

STATEMENT(C082, Memory, FreeMemoryFalls, "Driver API, Memory Management, cuMemGetInfo",
          "Free memory is at most the total and falls by what is allocated.") {
  constexpr std::size_t bytes = 64 * kMiB;
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_OK(api.mem_get_info(&before, &total));
  EXPECT_LE(before, total);
  CUdeviceptr memory = 0;
  ASSERT_OK(api.mem_alloc(&memory, bytes));
  EXPECT_OK(api.mem_get_info(&after, &total));
  EXPECT_LE(after + bytes, before);
  EXPECT_OK(api.mem_free(memory));
}

STATEMENT(C083, Memory, FillsWriteTheirRangeOnly, "Driver API, Memory Management, cuMemsetD8Async",
          "A fill sets the range named and nothing beside it.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  fill(memory + 100, 7, 50, stream);
  finish(stream);
  EXPECT_TRUE(holds(memory, 100, 0));
  EXPECT_TRUE(holds(memory + 100, 50, 7));
  EXPECT_TRUE(holds(memory + 150, 4096 - 150, 0));
}

STATEMENT(C084, Memory, WideFillsWriteWholeValues, "Driver API, Memory Management, cuMemsetD32Async",
          "Fills of 16 and 32 bits set that many values, not bytes.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  EXPECT_OK(api.memset_d16_async(memory, 0x0102, 3, stream));
  EXPECT_OK(api.memset_d32_async(memory + 8, 0x0a0b0c0d, 2, stream));
  finish(stream);
  const std::vector<unsigned char> expected = {2, 1, 2, 1, 2, 1, 0, 0, 13, 12, 11, 10, 13, 12, 11, 10, 0};
  EXPECT_EQ(read(memory, expected.size()), expected);
}

STATEMENT(C085, Memory, WideFillsNeedAlignment, "Driver API, Memory Management, cuMemsetD32Async",
          "A fill of 16 bits needs an address aligned to two bytes, one of 32 bits to four.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.memset_d16_async(memory + 1, 1, 1, stream));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.memset_d32_async(memory + 2, 1, 1, stream));
  EXPECT_OK(api.memset_d32_async(memory + 4, 1, 1, stream));
}

STATEMENT(C086, Memory, SynchronousCopiesToTheHostAreDone,
          "Driver API, API synchronization behavior, Memcpy, Synchronous",
          "cuMemcpy from the device to pageable host memory returns when the copy has completed.") {
  const CUdeviceptr memory = make_memory();
  std::vector<unsigned char> bytes(4096);
  fill(memory, 4, 4096, nullptr);
  EXPECT_OK(api.memcpy(address(bytes), memory, bytes.size()));
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 4), 4096);
}

STATEMENT(C087, Memory, ThePageableSourceOfACopyMayChangeAfterIt,
          "Driver API, API synchronization behavior, Memcpy, Synchronous",
          "cuMemcpy from pageable host memory returns when the source has been read: it may change afterwards.") {
  const CUdeviceptr memory = make_memory();
  std::vector<unsigned char> bytes(4096, 5);
  EXPECT_OK(api.memcpy(memory, address(bytes), bytes.size()));
  std::fill(bytes.begin(), bytes.end(), 6);
  finish(nullptr);
  EXPECT_TRUE(holds(memory, 4096, 5));
}

STATEMENT(C088, Memory, CopiesBetweenHostMemoryAreSynchronous,
          "Driver API, API synchronization behavior, Memcpy, Asynchronous",
          "A copy from host memory to host memory is done when the call returns, the asynchronous one too.") {
  std::vector<unsigned char> from(64, 3), to(64), again(64);
  EXPECT_OK(api.memcpy(address(to), address(from), to.size()));
  EXPECT_EQ(to, from);
  const CUstream stream = make_stream();
  EXPECT_OK(api.memcpy_async(address(again), address(from), again.size(), stream));
  EXPECT_EQ(again, from);
  finish(stream);  // a driver that copies later must not find the memory gone
}

STATEMENT(C089, Memory, ASynchronousCopyComesAfterBlockingStreams,
          "Driver API, Stream synchronization behavior, Default stream",
          "cuMemcpy works in the default stream: what blocking streams were given before is done first.") {
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  const CUdeviceptr memory = make_memory();
  std::vector<unsigned char> bytes(4096);
  fill(memory, 9, 4096, blocking);
  EXPECT_OK(api.memcpy(address(bytes), memory, bytes.size()));
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 9), 4096);
}

STATEMENT(C090, Memory, AnAddressTellsItsAllocation, "Driver API, Memory Management, cuMemGetAddressRange",
          "Any address inside an allocation gives its base and size; either may be left out.") {
  const CUdeviceptr memory = make_memory(10000);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_OK(api.mem_get_address_range(&base, &bytes, memory + 777));
  EXPECT_EQ(base, memory);
  EXPECT_EQ(bytes, 10000u);
  EXPECT_OK(api.mem_get_address_range(nullptr, &bytes, memory));
  EXPECT_OK(api.mem_get_address_range(&base, nullptr, memory));
}

STATEMENT(C091, Memory, AnAddressThatIsNoMemoryIsNotFound, "Driver API, Memory Management, cuMemGetAddressRange",
          "An address in no allocation is `CUDA_ERROR_NOT_FOUND`.") {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_RESULT(CUDA_ERROR_NOT_FOUND, api.mem_get_address_range(&base, &bytes, 4096));
}

STATEMENT(C092, Memory, CopiesMoveEveryByte, "Driver API, Memory Management, cuMemcpyAsync",
          "Bytes come back as they went in, through device memory.") {
  const CUstream stream = make_stream();
  const CUdeviceptr a = make_memory(kMiB + 13), b = make_memory(kMiB + 13);
  std::vector<unsigned char> sent(kMiB + 13);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<unsigned char>(i * 7 + i / 251);
  copy(a, address(sent), sent.size(), stream);
  copy(b, a, sent.size(), stream);
  finish(stream);
  EXPECT_EQ(read(b, sent.size()), sent);
}

}  // namespace
}  // namespace cistern::conformance
