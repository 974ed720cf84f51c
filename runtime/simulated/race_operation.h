#pragma once

// What the detector remembers of a piece of work, or of a call of the host's.

#include "runtime/driver_api.h"
#include "runtime/simulated/race_order.h"
#include "runtime/simulated/race_stack.h"

#include <cstdint>
#include <memory>
#include <string>

namespace cistern::simulated {

// What an operation is to the memory that it names.
enum class RaceRole : std::uint8_t {
  touches,
  begins,  // a stream-ordered allocation: all that touches the memory must be ordered behind it
  ends,    // a stream-ordered free: before it
};

[[nodiscard]] inline RaceRole role_of(OperationKind kind) noexcept {
  if (kind == OperationKind::allocation) return RaceRole::begins;
  return kind == OperationKind::release ? RaceRole::ends : RaceRole::touches;
}

struct RaceOperation {
  const char* kind = "";
  RaceRole role = RaceRole::touches;
  std::string name;
  int device = -1;  // -1: the host
  CUstream stream = nullptr;
  std::uint64_t stream_id = 0;
  RaceStackId stack = 0;
  std::uint64_t sequence = 0;  // ascends in the order of submission
  RaceMoment moment;
  CapturedAt captured;  // of a graph's node

  [[nodiscard]] bool is_host() const { return device < 0; }
};
using RaceOperationPtr = std::shared_ptr<const RaceOperation>;

}  // namespace cistern::simulated
