#pragma once

// What the layers above need to know of a Stream beyond its public face.

#include <cistern/stream.h>

#include "runtime/driver_api.h"

#include <cstdint>

namespace cistern {

// The legacy default stream's id here: above every id that a driver hands out.
inline constexpr std::uint64_t kLegacyStreamId = ~std::uint64_t{0};

// A stream as the allocator keys it: handles are reused after destruction, ids are not.
struct StreamIdentity {
  CUstream handle = nullptr;
  std::uint64_t id = kLegacyStreamId;
};

// Finds the identity of a driver's handle. Handles 0 and 1 are the legacy default stream;
// handle 2 is the calling thread's own. The device's context must be current.
[[nodiscard]] CUresult identify_stream(const DriverApi& api, CUstream handle, StreamIdentity* identity);

struct StreamAccess {
  // The identity, without a driver call where the Stream knows it. Throws DriverError.
  static StreamIdentity identity(const Stream& stream);
  // The device the stream belongs to, or the calling thread's current one for default streams.
  static int device(const Stream& stream);
  // Keeps the driver's stream alive as long as it is held; null for streams nobody owns.
  static std::shared_ptr<void> owner(const Stream& stream) { return stream.owner_; }
  // A Stream over any driver, for tools and tests that bring their own.
  static Stream wrap(const DriverApi& api, StreamIdentity identity, int device, std::shared_ptr<void> owner = {});
};

}  // namespace cistern
