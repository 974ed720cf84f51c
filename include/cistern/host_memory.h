#pragma once

// Owners of page-locked ("pinned") host memory: of host_allocator.h, or one's own, registered.
//
// Copies between it and the device run in stream order without a staging buffer, and without
// holding up the host. Work that is queued reads and writes it when it runs: it must be done
// before the memory is written again or ends.
// Thread safety: values like std::unique_ptr: different threads may use different objects. One
// that was moved from is empty, and has its options still.
// Units: bytes. Errors: InvalidArgument, NotSupported where the device cannot, DriverError.

#include <cistern/device.h>
#include <cistern/export.h>

#include <cstddef>

namespace cistern {

struct PinnedMemoryOptions {
  bool portable = true;         // page-locked for every device's context: all of it is
  bool mapped = false;          // the device may reach it: see device_pointer
  bool write_combined = false;  // faster to the device, slow for the host to read; a driver call each, in whole pages
};

// A block of allocate_host, uninitialised.
class CISTERN_EXPORT PinnedMemory {
 public:
  PinnedMemory() noexcept = default;
  // 0 bytes: an empty object, without a driver call. `device`: next to which it is. Throws as allocate_host does.
  explicit PinnedMemory(std::size_t bytes, PinnedMemoryOptions options = {}, Device device = {});
  // Frees it; never throws. The block is used again once the streams that record_host_stream told of are done; the
  // caller sees to it that no other queued work uses it any more.
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
  [[nodiscard]] PinnedMemoryOptions options() const noexcept { return options_; }
  // The address by which the device's work reaches the same bytes.
  // Throws InvalidArgument if it is empty, or not mapped.
  [[nodiscard]] void* device_pointer(Device device = {}) const;
  // Frees it now; the object is empty.
  void reset() noexcept;

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  PinnedMemoryOptions options_;
  int device_ = -1;
};

struct RegistrationOptions {
  bool portable = true;
  bool mapped = false;
  bool read_only = false;  // the device only reads it; needs a device that supports it
};

// One's own host memory, page-locked while this object lives.
class CISTERN_EXPORT HostRegistration {
 public:
  HostRegistration() noexcept = default;
  // Locks the pages of [pointer, pointer + bytes); the memory itself stays the caller's.
  // Throws InvalidArgument for a null pointer or 0 bytes, NotSupported where the device cannot
  // register memory; DriverError if part of it is registered already.
  HostRegistration(void* pointer, std::size_t bytes, RegistrationOptions options = {}, Device device = {});
  // Unlocks the pages; never throws. The caller sees to it that no queued work uses them any more.
  ~HostRegistration();
  HostRegistration(HostRegistration&& other) noexcept;
  HostRegistration& operator=(HostRegistration&& other) noexcept;
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
  [[nodiscard]] RegistrationOptions options() const noexcept { return options_; }
  // As PinnedMemory::device_pointer.
  [[nodiscard]] void* device_pointer(Device device = {}) const;
  // Unlocks the pages now; the object is empty.
  void reset() noexcept;

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  RegistrationOptions options_;
  int device_ = -1;
};

// Whether `pointer` lies in page-locked host memory that the driver knows of. False for null,
// and where there is no device.
[[nodiscard]] CISTERN_EXPORT bool is_pinned(const void* pointer);

}  // namespace cistern
