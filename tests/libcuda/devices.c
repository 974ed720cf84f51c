// What a program asks of the devices at its start.

#include "check.h"

void devices(void) {
  char name[64], bus[16];
  CUuuid first, second;
  CUdevice device = -1;
  size_t bytes = 0;
  int major = 0, minor = 0, value = -1;
  OK(cuInit(0));
  for (int i = 0; i < 2; ++i) {
    OK(cuDeviceGet(&device, i));
    OK(cuDeviceGetName(name, sizeof name, device));
    OK(cuDeviceTotalMem(&bytes, device));
    CHECK(bytes == (size_t)1 << 30);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    CHECK(strlen(bus) == 12);
    OK(cuDeviceGetByPCIBusId(&value, bus));
    CHECK(value == device);
    OK(cuDeviceGetByPCIBusId(&value, bus + 5));  // without the domain
    CHECK(value == device);
  }
  OK(cuDeviceGetUuid(&first, 0));
  OK(cuDeviceGetUuid(&second, 1));
  CHECK(memcmp(&first, &second, sizeof first) != 0);
  OK(cuDeviceComputeCapability(&major, &minor, 0));
  CHECK(major == 9 && minor == 0);
  OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  CHECK(value == 1);
  FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)99, 0, 1));
  FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetPCIBusId(bus, sizeof bus, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(bus, 0, 0));
  FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&value, "0000:7F:00.0"));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetByPCIBusId(&value, "the first one"));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetByPCIBusId(&value, "0000:01:00.0 and more"));
}
