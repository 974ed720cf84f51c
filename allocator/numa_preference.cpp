#include "allocator/numa_preference.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace cistern {
namespace {

// Of linux/mempolicy.h.
constexpr int kPreferred = 1;
// CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, which the headers of CUDA 12.0 and 12.1 do not have.
constexpr auto kHostNumaId = static_cast<CUdevice_attribute>(134);

std::optional<int> attribute_of(const DriverApi& api, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return api.device_get_attribute(&value, attribute, device) == CUDA_SUCCESS ? std::optional(value) : std::nullopt;
}

// What the kernel says of the device's place on the bus.
std::optional<int> node_by_bus(const DriverApi& api, CUdevice device) {
  const auto domain = attribute_of(api, device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  const auto bus = attribute_of(api, device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  const auto slot = attribute_of(api, device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  if (!domain || !bus || !slot) return std::nullopt;
  std::ifstream file(fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0/numa_node", *domain, *bus, *slot));
  int node = -1;
  return file >> node && node >= 0 ? std::optional(node) : std::nullopt;
}

}  // namespace

std::optional<int> numa_node_of(const DriverApi& api, CUdevice device) {
  if (const auto node = attribute_of(api, device, kHostNumaId)) return *node >= 0 ? node : std::nullopt;
  return node_by_bus(api, device);
}

NumaPreference::NumaPreference(std::optional<int> node) noexcept {
  if (!node || static_cast<unsigned long>(*node) >= kMostNodes) return;
  if (::syscall(SYS_get_mempolicy, &mode_before_, nodes_before_.data(), kMostNodes, nullptr, 0) != 0) return;
  Nodes nodes{};
  constexpr std::size_t bits = 8 * sizeof(unsigned long);
  nodes[static_cast<std::size_t>(*node) / bits] = 1UL << (static_cast<std::size_t>(*node) % bits);
  is_set_ = ::syscall(SYS_set_mempolicy, kPreferred, nodes.data(), kMostNodes) == 0;
}

NumaPreference::~NumaPreference() {
  if (is_set_) static_cast<void>(::syscall(SYS_set_mempolicy, mode_before_, nodes_before_.data(), kMostNodes));
}

}  // namespace cistern
