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
#include <cstdint>
#include <functional>
#include <optional>
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
  Device(std::string_view text);  // NOLINT(google-explicit-constructor)
  // Null, as getenv gives it, is refused like any other text.
  Device(const char* text)  // NOLINT(google-explicit-constructor)
      : Device(text == nullptr ? std::string_view("(null)") : std::string_view(text)) {}
  // The index as given; -1 for "the current device".
  [[nodiscard]] constexpr int index() const noexcept { return index_; }
  [[nodiscard]] constexpr bool is_current() const noexcept { return index_ < 0; }
  // "cuda:N", or "cuda" for the current one: a text that Device takes.
  [[nodiscard]] std::string to_string() const;
  friend constexpr bool operator==(Device a, Device b) noexcept { return a.index_ == b.index_; }
  friend constexpr bool operator!=(Device a, Device b) noexcept { return a.index_ != b.index_; }
  friend constexpr bool operator<(Device a, Device b) noexcept { return a.index_ < b.index_; }

 private:
  int index_ = -1;
};

struct MemoryInfo {
  std::size_t free = 0;   // bytes that the driver could still hand out on the device
  std::size_t total = 0;  // bytes of device memory
};

struct ComputeCapability {
  int major = 0;
  int minor = 0;
  [[nodiscard]] CISTERN_EXPORT std::string to_string() const;  // "9.0"
  friend constexpr bool operator==(ComputeCapability a, ComputeCapability b) noexcept {
    return a.major == b.major && a.minor == b.minor;
  }
  friend constexpr bool operator!=(ComputeCapability a, ComputeCapability b) noexcept { return !(a == b); }
  friend constexpr bool operator<(ComputeCapability a, ComputeCapability b) noexcept {
    return a.major != b.major ? a.major < b.major : a.minor < b.minor;
  }
};

// Each is what the driver's attribute of that name says (CUDA Driver API, cuDeviceGetAttribute).
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

  [[nodiscard]] CISTERN_EXPORT std::string uuid_text() const;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
};

// What the driver and a device offer together: the entries are there and the device says that
// they work. What is false throws NotSupported when it is used.
struct DeviceCapabilities {
  int driver_version = 0;                // as cuDriverGetVersion: 12040 is 12.4
  bool virtual_memory = false;           // address ranges that memory is mapped into
  bool file_descriptor_handles = false;  // virtual memory is shared through file descriptors
  bool stream_ordered_pools = false;     // cuMemAllocAsync and its kin
  bool ipc_memory = false;               // legacy handles of device memory
  bool ipc_events = false;
  bool graphs = false;
  bool host_registration = false;  // one's own host memory can be page-locked
  bool mapped_host_memory = false;
  bool unified_addressing = false;  // host and device share one space of addresses
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
[[nodiscard]] CISTERN_EXPORT std::string device_name(Device device = {});
[[nodiscard]] CISTERN_EXPORT ComputeCapability device_capability(Device device = {});
// Asked of the driver once for each device.
[[nodiscard]] CISTERN_EXPORT DeviceCapabilities device_capabilities(Device device = {});
// Free and total memory of the whole device, as the driver says: all processes counted.
[[nodiscard]] CISTERN_EXPORT MemoryInfo memory_info(Device device = {});
// Whether `from` can reach memory of `to` directly. A device can reach itself.
[[nodiscard]] CISTERN_EXPORT bool can_access_peer(Device from, Device to);

// Lets work of `from` reach memory of `to`, that which exists and that which comes; the other
// way is a call of its own. Doing it again, or after somebody else did, is nothing. Returns
// whether this call enabled it. A device needs nothing to reach itself.
// Throws NotSupported, naming both, if the devices cannot.
CISTERN_EXPORT bool enable_peer_access(Device from, Device to);
// How many (from, to) pairs enable_peer_access has enabled in this process. Asks no driver.
[[nodiscard]] CISTERN_EXPORT std::size_t peer_access_count() noexcept;

// The device whose memory `pointer` is in; none for null, for host memory, for an address that the
// driver does not know, and where there is no device. Does not throw for any of these.
[[nodiscard]] CISTERN_EXPORT std::optional<Device> device_of(const void* pointer);

// Makes `device` current and restores the previous one when it ends, whatever was made current
// in between. "The current device" changes nothing. Not copyable; for use on one thread.
class CISTERN_EXPORT DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  // Makes another device current; the guard still restores the one before it.
  void set_device(Device device);
  [[nodiscard]] Device original_device() const noexcept { return Device(previous_); }

 private:
  int previous_;
};

// A guard that may guard nothing: OptionalDeviceGuard guard(device_of(pointer)) makes the owner of
// a pointer current (torch.cuda.device_of), and does nothing if no device owns it.
class CISTERN_EXPORT OptionalDeviceGuard {
 public:
  OptionalDeviceGuard() noexcept = default;
  explicit OptionalDeviceGuard(std::optional<Device> device);
  ~OptionalDeviceGuard();
  OptionalDeviceGuard(const OptionalDeviceGuard&) = delete;
  OptionalDeviceGuard& operator=(const OptionalDeviceGuard&) = delete;

  // Makes `device` current, and begins to guard if it did not yet.
  void set_device(Device device);
  // Restores the device before the guard now; it guards nothing after that.
  void reset() noexcept;
  // None while it guards nothing.
  [[nodiscard]] std::optional<Device> original_device() const;

 private:
  std::optional<int> previous_;
};

}  // namespace cistern

template <>
struct std::hash<cistern::Device> {
  std::size_t operator()(cistern::Device device) const noexcept { return std::hash<int>()(device.index()); }
};
