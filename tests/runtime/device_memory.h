#pragma once

// Device memory of the process's driver, for tests below the allocator.

#include <cistern/device.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "runtime/device_scope.h"

namespace cistern {

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes, int device = 0) : device_(device) {
    const DeviceScope scope(nullptr, device_);
    EXPECT_EQ(scope.api().mem_alloc(&address_, bytes), CUDA_SUCCESS);
  }
  ~DeviceMemory() {
    const DeviceScope scope(nullptr, device_);
    EXPECT_EQ(scope.api().mem_free(address_), CUDA_SUCCESS);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] void* get() const noexcept { return reinterpret_cast<void*>(address_); }
  [[nodiscard]] char* at(std::size_t offset) const noexcept { return static_cast<char*>(get()) + offset; }

 private:
  int device_;
  CUdeviceptr address_ = 0;
};

}  // namespace cistern
