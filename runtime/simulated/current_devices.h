#pragma once

// CurrentDevices: the device whose primary context is current, thread by thread, for one driver: the
// top of the thread's stack of contexts (CUDA Driver API, "Context Management").
//
// Thread safety: any member may be called from any thread. Works while a process exits: no
// thread-local object here has a destructor.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace cistern::simulated {

// Numbers that are never used again in a process, unlike addresses.
[[nodiscard]] std::uint64_t next_driver_number() noexcept;

class CurrentDevices {
 public:
  explicit CurrentDevices(std::uint64_t driver) : driver_(driver) {}

  // The calling thread's; -1: no context is current.
  [[nodiscard]] int get() const;
  // Replaces the top of the stack; -1 takes it away.
  void set(int device);
  void push(int device);
  // Takes the top away and gives it; -1: the stack was empty.
  int pop();
  // Of a thread that ended, by its number.
  void forget(std::uint64_t thread);
  // Of how many threads a device is kept.
  [[nodiscard]] std::size_t threads() const;

 private:
  std::uint64_t driver_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::vector<int>> by_thread_;  // no stack is empty
};

}  // namespace cistern::simulated
