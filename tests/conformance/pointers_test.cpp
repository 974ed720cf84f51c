// What the driver says of a pointer.

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Unified Addressing, cuPointerGetAttribute"

class Pointers : public DriverCase {};

STATEMENT(
    C093, Pointers, DeviceMemoryKnowsItsTypeAndDevice, SECTION,
    "A pointer to device memory has the type device, the device's ordinal and the context that it was allocated in.") {
  const CUdeviceptr memory = make_memory();
  unsigned type = 0;
  int ordinal = -1;
  CUcontext owner = nullptr;
  EXPECT_OK(api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 100));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_OK(api.pointer_get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  EXPECT_EQ(ordinal, 0);
  EXPECT_OK(api.pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  EXPECT_EQ(owner, context);
}

STATEMENT(C094, Pointers, AnUnknownPointerHasNoAttributes, SECTION,
          "The type or context of a pointer that the driver does not know is `CUDA_ERROR_INVALID_VALUE`.") {
  int local = 0;
  unsigned type = 0;
  CUcontext owner = nullptr;
  const auto pointer = reinterpret_cast<CUdeviceptr>(&local);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
}

STATEMENT(C095, Pointers, APointerKnowsItsRange, SECTION,
          "The start and the size of the allocation are attributes of every pointer into it.") {
  const CUdeviceptr memory = make_memory(10000);
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  EXPECT_OK(api.pointer_get_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 5000));
  EXPECT_EQ(start, memory);
  EXPECT_OK(api.pointer_get_attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 5000));
  EXPECT_EQ(bytes, 10000u);
}

STATEMENT(C096, Pointers, BufferIdsAreUnique, SECTION,
          "An allocation's buffer id is unique in the process, also after its address is used again.") {
  unsigned long long first_id = 0, second_id = 0;
  CUdeviceptr memory = 0;
  ASSERT_OK(api.mem_alloc(&memory, 4 * kMiB));
  EXPECT_OK(api.pointer_get_attribute(&first_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  EXPECT_OK(api.mem_free(memory));
  ASSERT_OK(api.mem_alloc(&memory, 4 * kMiB));
  EXPECT_OK(api.pointer_get_attribute(&second_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  EXPECT_OK(api.mem_free(memory));
  EXPECT_NE(first_id, second_id);
}

STATEMENT(C097, Pointers, DeviceMemoryIsItsOwnDevicePointer, SECTION,
          "The device pointer of device memory is the pointer itself, and device memory is not managed.") {
  const CUdeviceptr memory = make_memory();
  CUdeviceptr came = 0;
  unsigned managed = 1;
  EXPECT_OK(api.pointer_get_attribute(&came, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 8));
  EXPECT_EQ(came, memory + 8);
  EXPECT_OK(api.pointer_get_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
  EXPECT_EQ(managed & 1U, 0u);
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
