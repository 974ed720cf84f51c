#pragma once

// Heaps whose locks a fork takes first: its child finds none held by a thread that it does not have.
//
// Thread-safe. A fork takes the locks of all allocators of the process: O(devices and heaps).

namespace cistern {

class DeviceHeaps;

// From its construction to `end`. Its heaps are whole as long.
class ForkLocks {
 public:
  // Throws std::bad_alloc.
  explicit ForkLocks(DeviceHeaps& heaps);
  ~ForkLocks() { end(); }
  ForkLocks(const ForkLocks&) = delete;
  ForkLocks& operator=(const ForkLocks&) = delete;
  void end() noexcept;

 private:
  DeviceHeaps& heaps_;
};

}  // namespace cistern
