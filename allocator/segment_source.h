#pragma once

// SegmentSource: where a heap's memory comes from, and goes back to.
//
// Thread safety: any member may be called from any thread; the device's context must be
// current. Results are the driver's, unchecked: a refusal is a value.

#include "runtime/driver_api.h"
#include "runtime/stream_access.h"

#include <cstddef>
#include <cstdint>

namespace cistern {

class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  // A new piece of device memory of `bytes` bytes, for work on `stream` from now on. May block the host.
  [[nodiscard]] virtual CUresult allocate(std::size_t bytes, const StreamIdentity& stream, std::uint64_t* address) = 0;
  // Gives back a piece as it came, which `stream` used, and no other since it was waited for. `may_wait`: the device
  // may be waited for, which invalidates captures; a piece that cannot go without is refused
  // (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED).
  [[nodiscard]] virtual CUresult release(std::uint64_t address, const StreamIdentity& stream, bool may_wait) = 0;
  // The driver entries behind the two, for error texts.
  [[nodiscard]] virtual DriverEntryId allocate_entry() const = 0;
  [[nodiscard]] virtual DriverEntryId release_entry() const = 0;
};

// Device memory by cuMemAlloc and cuMemFree, which waits for the work that uses it.
class DeviceSegmentSource final : public SegmentSource {
 public:
  explicit DeviceSegmentSource(const DriverApi& api) : api_(api) {}
  CUresult allocate(std::size_t bytes, const StreamIdentity& /*stream*/, std::uint64_t* address) override {
    CUdeviceptr pointer = 0;
    const CUresult result = api_.mem_alloc(&pointer, bytes);
    *address = pointer;
    return result;
  }
  CUresult release(std::uint64_t address, const StreamIdentity& /*stream*/, bool /*may_wait*/) override {
    return api_.mem_free(address);
  }
  [[nodiscard]] DriverEntryId allocate_entry() const override { return DriverEntryId::mem_alloc; }
  [[nodiscard]] DriverEntryId release_entry() const override { return DriverEntryId::mem_free; }

 private:
  const DriverApi& api_;
};

}  // namespace cistern
