// Page-locked host memory.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Memory Management, "

constexpr std::size_t kPage = 4096;

class HostMemory : public DriverCase {
 protected:
  void give_back() override {
    for (void* pointer : pinned_) EXPECT_OK(api.mem_free_host(pointer));
  }

  unsigned char* make_pinned(std::size_t bytes, unsigned flags = 0) {
    void* pointer = nullptr;
    EXPECT_OK(api.mem_host_alloc(&pointer, bytes, flags));
    if (pointer != nullptr) pinned_.push_back(pointer);
    return static_cast<unsigned char*>(pointer);
  }
  static CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

 private:
  std::vector<void*> pinned_;
};

// Whole pages of ordinary memory.
struct Pages {
  explicit Pages(std::size_t count) : bytes(count * kPage) {
    if (posix_memalign(&data, kPage, bytes) != 0) data = nullptr;
  }
  ~Pages() { std::free(data); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void* data = nullptr;
  std::size_t bytes;
};

STATEMENT(C098, HostMemory, TheHostUsesIt, SECTION "cuMemHostAlloc",
          "Page-locked memory is host memory that the device can copy from and to.") {
  unsigned char* sent = make_pinned(4096);
  unsigned char* received = make_pinned(4096);
  ASSERT_NE(sent, nullptr);
  ASSERT_NE(received, nullptr);
  std::memset(sent, 7, 4096);
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  copy(memory, address(sent), 4096, stream);
  copy(address(received), memory, 4096, stream);
  finish(stream);
  EXPECT_EQ(std::count(received, received + 4096, 7), 4096);
}

STATEMENT(C099, HostMemory, ItsSourceIsReadWhenTheCopyRuns,
          "Driver API, API synchronization behavior, Memcpy, Asynchronous",
          "An asynchronous copy from page-locked memory returns at once and reads the source when its turn comes.") {
  unsigned char* source = make_pinned(4096);
  ASSERT_NE(source, nullptr);
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  std::memset(source, 1, 4096);
  Gate& gate = hold(stream);
  copy(memory, address(source), 4096, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  std::memset(source, 2, 4096);
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 2));
}

STATEMENT(C100, HostMemory, ACopyToItReturnsAtOnce, "Driver API, API synchronization behavior, Memcpy, Asynchronous",
          "An asynchronous copy from the device to page-locked memory returns before the bytes are there.") {
  unsigned char* target = make_pinned(4096);
  ASSERT_NE(target, nullptr);
  const CUstream stream = make_stream();
  const CUdeviceptr memory = make_memory();
  std::memset(target, 1, 4096);
  Gate& gate = hold(stream);
  copy(address(target), memory, 4096, stream);
  EXPECT_EQ(std::count(target, target + 4096, 1), 4096);
  gate.open();
  finish(stream);
  EXPECT_EQ(std::count(target, target + 4096, 0), 4096);
}

STATEMENT(C101, HostMemory, ItsFlagsAreKept, SECTION "cuMemHostGetFlags",
          "cuMemHostGetFlags passes back the flags that the memory was allocated with.") {
  unsigned flags = 0;
  void* pointer = make_pinned(4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED);
  EXPECT_OK(api.mem_host_get_flags(&flags, pointer));
  EXPECT_EQ(flags & (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED),
            unsigned{CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED});
}

STATEMENT(C102, HostMemory, OrdinaryMemoryHasNoFlags, SECTION "cuMemHostGetFlags",
          "Memory that was not allocated as page-locked has no flags: the call fails.") {
  int local = 0;
  unsigned flags = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_host_get_flags(&flags, &local));
}

STATEMENT(C103, HostMemory, UnknownFlagsAreRefused, SECTION "cuMemHostAlloc",
          "Flags other than the documented ones are `CUDA_ERROR_INVALID_VALUE`.") {
  void* pointer = nullptr;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_host_alloc(&pointer, 4096, 0x100));
}

STATEMENT(C104, HostMemory, OnlyItsOwnIsFreed, SECTION "cuMemFreeHost",
          "What is freed must have been allocated as page-locked: another pointer, or the same one twice, is "
          "`CUDA_ERROR_INVALID_VALUE`.") {
  int local = 0;
  void* pointer = nullptr;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free_host(&local));
  ASSERT_OK(api.mem_host_alloc(&pointer, 4096, 0));
  EXPECT_OK(api.mem_free_host(pointer));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free_host(pointer));
}

STATEMENT(C105, HostMemory, ItHasADevicePointer, SECTION "cuMemHostGetDevicePointer",
          "Mapped page-locked memory has a device pointer; the flags of the question must be 0.") {
  void* pointer = make_pinned(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  CUdeviceptr mapped = 0;
  EXPECT_OK(api.mem_host_get_device_pointer(&mapped, pointer, 0));
  EXPECT_NE(mapped, 0u);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_host_get_device_pointer(&mapped, pointer, 1));
}

STATEMENT(C106, HostMemory, ItsPointersAreOfTheHost, "Driver API, Unified Addressing, cuPointerGetAttribute",
          "A pointer into page-locked memory has the type host and is its own host pointer.") {
  unsigned char* pointer = make_pinned(4096);
  unsigned type = 0;
  void* host = nullptr;
  EXPECT_OK(api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pointer)));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_OK(api.pointer_get_attribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address(pointer + 10)));
  EXPECT_EQ(host, pointer + 10);
}

STATEMENT(C107, HostMemory, OrdinaryMemoryMayBeRegistered, SECTION "cuMemHostRegister",
          "Registered memory is page-locked until it is unregistered: the driver knows its pointers in between.") {
  const Pages pages(2);
  unsigned type = 0;
  EXPECT_OK(api.mem_host_register(pages.data, pages.bytes, CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_OK(api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pages.data)));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_OK(api.mem_host_unregister(pages.data));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE,
                api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pages.data)));
}

STATEMENT(C108, HostMemory, AThingIsRegisteredOnce, SECTION "cuMemHostRegister",
          "A range that is registered, in part or whole, is `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.") {
  const Pages pages(4);
  auto* middle = static_cast<unsigned char*>(pages.data) + kPage;
  ASSERT_OK(api.mem_host_register(middle, 2 * kPage, 0));
  EXPECT_RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, api.mem_host_register(middle, 2 * kPage, 0));
  EXPECT_RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, api.mem_host_register(pages.data, 2 * kPage, 0));
  EXPECT_OK(api.mem_host_unregister(middle));
}

STATEMENT(C109, HostMemory, OnlyWhatIsRegisteredIsUnregistered, SECTION "cuMemHostUnregister",
          "Unregistering what is not registered is `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.") {
  const Pages pages(1);
  EXPECT_RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, api.mem_host_unregister(pages.data));
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
