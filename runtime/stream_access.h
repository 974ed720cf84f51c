#pragma once

// What the layers above need to know of a Stream beyond its public face.

#include <cistern/stream.h>

#include "runtime/driver_api.h"

#include <cstdint>

namespace cistern {

// The legacy default stream's id here: above every id that a driver hands out.
inline constexpr std::uint64_t kLegacyStreamId = ~std::uint64_t{0};

// The driver's reserved handles. Handles 0 and 1 are one stream, the legacy default one;
// handle 2 is the calling thread's own default stream. In functions, not constants: an
// address that is no object's cannot be a constant expression.
inline bool is_legacy(CUstream handle) noexcept { return reinterpret_cast<std::uintptr_t>(handle) <= 1; }
inline CUstream per_thread_handle() noexcept { return reinterpret_cast<CUstream>(std::uintptr_t{2}); }

// A stream as the allocator keys it: handles are reused after destruction, ids are not.
struct StreamIdentity {
  CUstream handle = nullptr;
  std::uint64_t id = kLegacyStreamId;
};

// Finds the identity of a driver's handle. Handles 0 and 1 are the legacy default stream;
// handle 2 is the calling thread's own. The device's context must be current.
[[nodiscard]] CUresult identify_stream(const DriverApi& api, CUstream handle, StreamIdentity* identity);

// current_device().index(), asked with every request: not an exported call, which another library could replace.
[[nodiscard]] int current_device_index() noexcept;

struct StreamAccess {
  // The identity, without a driver call where the Stream knows it. Throws DriverError.
  static StreamIdentity identity(const Stream& stream) {
    StreamIdentity identity;
    return identify_if_known(stream, &identity) ? identity : identity_by_driver(stream);
  }
  // The same, where it is wanted: what is made of single numbers and then copied as a whole stalls the processor. False
  // for the calling thread's own default stream, which the driver has to be asked for.
  static bool identify_if_known(const Stream& stream, StreamIdentity* identity) {
    if (is_legacy(stream.handle_)) {
      *identity = {};
    } else if (stream.id_ != 0) [[likely]] {
      identity->handle = stream.handle_;
      identity->id = stream.id_;
    } else if (stream.handle_ == per_thread_handle()) {
      return false;
    } else {
      *identity = identity_by_driver(stream);
    }
    return true;
  }
  // The device the stream belongs to, or the calling thread's current one for default streams.
  static int device(const Stream& stream) { return stream.device_ >= 0 ? stream.device_ : current_device_index(); }
  // Keeps the driver's stream alive as long as it is held; null for streams nobody owns.
  static std::shared_ptr<void> owner(const Stream& stream) { return stream.owner_; }
  static bool is_owned(const Stream& stream) noexcept { return stream.owner_ != nullptr; }
  // What current_stream() returns a copy of; null where the calling thread has set none: the current device's default
  // stream. Until the thread sets another.
  static const Stream* current() noexcept;
  // The driver the stream belongs to; null: the process's own.
  static const DriverApi* driver(const Stream& stream) noexcept { return stream.driver_; }
  // The same queue, tied to a device: what a default stream means while it is current there.
  static Stream on_device(Stream stream, int device);
  // A Stream over any driver, for tools and tests that bring their own. The driver must
  // outlive it; each call on it that works on the device holds the primary context meanwhile.
  static Stream wrap(const DriverApi& api, StreamIdentity identity, int device, std::shared_ptr<void> owner = {});

 private:
  static StreamIdentity identity_by_driver(const Stream& stream);
};

}  // namespace cistern
