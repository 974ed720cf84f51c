// What a program asks of a device beside its attributes. "CUDA Driver API", "Device Management" and "Peer
// Context Memory Access".

#include <cstdio>
#include <string>

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {
namespace {

struct BusId {
  int domain = 0;
  int bus = 0;
  int device = 0;
  friend bool operator==(const BusId& a, const BusId& b) {
    return a.domain == b.domain && a.bus == b.bus && a.device == b.device;
  }
};

CUresult find_bus_id(const Call& call, CUdevice device, BusId* id) {
  const DriverApi& api = call.api;
  CUresult result = api.device_get_attribute(&id->domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device);
  if (result == CUDA_SUCCESS) result = api.device_get_attribute(&id->bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
  if (result == CUDA_SUCCESS) result = api.device_get_attribute(&id->device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
  return result;
}

// "[domain]:[bus]:[device].[function]", "[domain]:[bus]:[device]" or "[bus]:[device].[function]", in
// hexadecimal.
bool parse(const char* text, BusId* id) {
  unsigned a = 0, b = 0, c = 0, function = 0;
  int used = 0;
  const std::string whole(text);
  const auto is_all = [&] { return used > 0 && static_cast<std::size_t>(used) == whole.size(); };
  if (std::sscanf(text, "%4x:%2x:%2x.%1x%n", &a, &b, &c, &function, &used) == 4 && is_all()) {
    *id = {static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)};
    return true;
  }
  used = 0;
  if (std::sscanf(text, "%4x:%2x:%2x%n", &a, &b, &c, &used) == 3 && is_all()) {
    *id = {static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)};
    return true;
  }
  used = 0;
  if (std::sscanf(text, "%2x:%2x.%1x%n", &b, &c, &function, &used) == 3 && is_all()) {
    *id = {0, static_cast<int>(b), static_cast<int>(c)};
    return true;
  }
  return false;
}

}  // namespace

CUresult device_get_pci_bus_id(const Call& call, char* text, int length, CUdevice device) {
  if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  BusId id;
  if (const CUresult refused = find_bus_id(call, device, &id); refused != CUDA_SUCCESS) return refused;
  std::snprintf(text, static_cast<std::size_t>(length), "%04X:%02X:%02X.0", static_cast<unsigned>(id.domain),
                static_cast<unsigned>(id.bus), static_cast<unsigned>(id.device));
  return CUDA_SUCCESS;
}

CUresult device_get_by_pci_bus_id(const Call& call, CUdevice* device, const char* text) {
  BusId asked;
  if (device == nullptr || text == nullptr || !parse(text, &asked)) return CUDA_ERROR_INVALID_VALUE;
  int count = 0;
  if (const CUresult refused = call.api.device_get_count(&count); refused != CUDA_SUCCESS) return refused;
  for (int index = 0; index < count; ++index) {
    BusId id;
    if (const CUresult refused = find_bus_id(call, index, &id); refused != CUDA_SUCCESS) return refused;
    if (!(id == asked)) continue;
    *device = index;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult device_compute_capability(const Call& call, int* major, int* minor, CUdevice device) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult refused = call.api.device_get_attribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (refused != CUDA_SUCCESS) return refused;
  return call.api.device_get_attribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}

CUresult device_get_p2p_attribute(const Call& call, int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                  CUdevice to) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  int can_access = 0;
  if (const CUresult refused = call.api.device_can_access_peer(&can_access, from, to); refused != CUDA_SUCCESS)
    return refused;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      *value = can_access;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:             // all links are alike
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:      // there is no device code
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:  // and there are no arrays
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace cistern::simulated
