#pragma once

// Devices: which there are, which one is current, and what they are.
//
// The device layer is initialised by the first call that needs it, from the
// environment variable CISTERN_DEVICE: `cuda` (default), `simulated[:settings]` or
// `auto` (CUDA where there is a device, else simulated; said once on standard error).
// The current device is a thread's own; a new thread starts on device 0.
// Thread safety: any function may be called from any thread at any time.

#include <cistern/export.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace cistern {

// A device by its index. The default value means "the current device".
class CISTERN_EXPORT Device {
 public:
  constexpr Device() noexcept = default;
  // -1 means the current device. Throws InvalidArgument below -1.
  Device(int index);  // NOLINT(google-explicit-constructor): an index is a device
  // "cuda" (the current one), "cuda:N", "simulated", "simulated:N".
  // Throws InvalidArgument, naming the text, for anything else.
  Device(std::string_view text);                                // NOLINT(google-explicit-constructor)
  Device(const char* text) : Device(std::string_view(text)) {}  // NOLINT(google-explicit-constructor)
  // The index as given; -1 for "the current device".
  [[nodiscard]] constexpr int index() const noexcept { return index_; }
  [[nodiscard]] constexpr bool is_current() const noexcept { return index_ < 0; }
  friend constexpr bool operator==(Device a, Device b) noexcept { return a.index_ == b.index_; }
  friend constexpr bool operator!=(Device a, Device b) noexcept { return a.index_ != b.index_; }

 private:
  int index_ = -1;
};

struct MemoryInfo {
  std::size_t free = 0;   // bytes that the driver could still hand out on the device
  std::size_t total = 0;  // bytes of device memory
};

struct DeviceProperties {
  std::string name;
  std::array<unsigned char, 16> uuid{};
  int compute_capability_major = 0;
  int compute_capability_minor = 0;
  std::size_t total_memory = 0;  // bytes
  int multiprocessor_count = 0;
  int warp_size = 0;
  std::size_t l2_cache_size = 0;  // bytes
  int pci_domain_id = 0;
  int pci_bus_id = 0;
  int pci_device_id = 0;
  bool virtual_memory_management = false;  // cuMemCreate and its kin work
};

// The number of devices; 0 where there is none or no driver. Creates no context.
[[nodiscard]] CISTERN_EXPORT int device_count();
// Whether there is at least one device. Never throws, creates no context, prints nothing.
[[nodiscard]] CISTERN_EXPORT bool is_available() noexcept;
// Loads the driver and makes the current device's context. Doing it twice is nothing.
// Throws NotSupported where there is no driver or no device.
CISTERN_EXPORT void initialize();
[[nodiscard]] CISTERN_EXPORT bool is_initialized() noexcept;

// This thread's current device. Initialises nothing.
[[nodiscard]] CISTERN_EXPORT Device current_device();
// Makes `device` this thread's current one; "the current device" is a no-op. The driver's own
// current context stays as it is: each call of cistern enters its device's and leaves it again.
// Throws InvalidArgument, naming the index, if there is no such device.
CISTERN_EXPORT void set_device(Device device);
// Waits until all work queued on `device` is done. Blocks the host.
CISTERN_EXPORT void synchronize(Device device = {});

// Throws InvalidArgument if there is no such device, DriverError if the driver fails.
[[nodiscard]] CISTERN_EXPORT DeviceProperties device_properties(Device device = {});
// Free and total memory of the whole device, as the driver says: all processes counted.
[[nodiscard]] CISTERN_EXPORT MemoryInfo memory_info(Device device = {});
// Whether `from` can reach memory of `to` directly. A device can reach itself.
[[nodiscard]] CISTERN_EXPORT bool can_access_peer(Device from, Device to);

// Makes `device` current and restores the previous one when it ends.
// "The current device" changes nothing. Not copyable; for use on one thread.
class CISTERN_EXPORT DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_;
};

}  // namespace cistern
