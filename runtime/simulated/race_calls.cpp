// What the driver's calls tell the race detector, where it takes more than a line.

#include "runtime/host_block_note.h"
#include "runtime/simulated/driver_state.h"

#include <new>

namespace cistern::simulated {
namespace {

// A note has no way to fail: what the detector cannot remember for want of memory it does
// not find. The stream may be null: destroyed.
template <class Tell>
void hear(void* self, CUdeviceptr address, CUstream handle, const Tell& tell) {
  DriverState& state = *static_cast<DriverState*>(self);
  try {
    const std::lock_guard lock(state.mutex);
    tell(*state.races, state.streams.find(handle, state.device_of_memory(address)), state.captures.is_any());
  } catch (const std::bad_alloc&) {  // see above
  }
}

template <class Tell>
void hear_of_host(void* self, const Tell& tell) {
  DriverState& state = *static_cast<DriverState*>(self);
  try {
    const std::lock_guard lock(state.mutex);
    tell(*state.races);
  } catch (const std::bad_alloc&) {  // see above
  }
}

void hear_allocate(void* self, CUdeviceptr address, std::size_t bytes, CUstream stream, const void* pool) {
  if (is_of_host_block(pool)) {
    hear_of_host(self, [&](RaceDetector& races) { races.host_block_allocated(address, bytes); });
    return;
  }
  hear(self, address, stream, [&](RaceDetector& races, const StreamQueue* queue, bool captures) {
    if (queue != nullptr) races.block_allocated(address, bytes, *queue, {pool != nullptr, captures});
  });
}

void hear_use(void* self, CUdeviceptr address, std::size_t /*bytes*/, CUstream stream, const void* /*pool*/) {
  DriverState& state = *static_cast<DriverState*>(self);
  // A default stream is one on each device; whichever used the block, the note means it.
  const int devices = Streams::is_default(stream) ? state.device_count() : 1;
  try {
    const std::lock_guard lock(state.mutex);
    for (int device = 0; device < devices; ++device) {
      if (const StreamQueue* queue = state.streams.find(stream, device)) state.races->block_used(address, *queue);
    }
  } catch (const std::bad_alloc&) {  // see above
  }
}

void hear_free(void* self, CUdeviceptr address, std::size_t bytes, CUstream stream, const void* pool) {
  if (is_of_host_block(pool)) {
    hear_of_host(self, [&](RaceDetector& races) { races.host_block_freed(address); });
    return;
  }
  hear(self, address, stream, [&](RaceDetector& races, const StreamQueue* queue, bool captures) {
    if (bytes == 0) {
      races.freed_nothing(address, "free of a block");
    } else {
      races.block_freed(address, queue, captures);
    }
  });
}

}  // namespace

void listen_to_block_notes(DriverState& state) {
  state.api.note_allocate = {&state, hear_allocate};
  state.api.note_use = {&state, hear_use};
  state.api.note_free = {&state, hear_free};
}

void DriverState::report_call_inside(DriverEntryId entry) {
  const std::lock_guard lock(mutex);
  races->driver_called_inside(kDriverEntryNames[static_cast<std::size_t>(entry)]);
}

}  // namespace cistern::simulated
