#pragma once

// SharedDevices: the memory of simulated devices that several processes share (shared=NAME).
//
// A file in /dev/shm, one for each name and user: which processes are attached, and how much of
// each device every one of them holds. A process writes its own entry only, and holds a lock of
// the kernel's on it while it lives (fcntl, "Open file description locks"): what a killed process
// held is free again with the lock, whatever its id is. The last one to leave removes the file.
// Not thread-safe: the driver holds its lock around every call. Between processes, another lock.

#include <cistern/processes.h>

#include "runtime/simulated/owned_file.h"

#include <cstddef>
#include <string>
#include <vector>

namespace cistern::simulated {

class SharedDevices {
 public:
  // Attaches, and makes the file if this is the first. Throws InvalidArgument for a name that is
  // none, if the system refuses, or if the processes attached have other devices or capacities.
  SharedDevices(std::string name, int devices, std::size_t capacity_bytes);
  ~SharedDevices();
  SharedDevices(const SharedDevices&) = delete;
  SharedDevices& operator=(const SharedDevices&) = delete;

  // `device` is its number before CUDA_VISIBLE_DEVICES. False, unchanged, if the processes together
  // hold too much for it.
  [[nodiscard]] bool take(int device, std::size_t bytes) noexcept;
  void give_back(int device, std::size_t bytes) noexcept;
  // By all living processes.
  [[nodiscard]] std::size_t used(int device) const noexcept;
  [[nodiscard]] std::vector<GpuProcess> processes(int device) const;

 private:
  struct Layout;
  class Section;  // holds the lock between processes
  bool open_file();
  void attach(int devices, std::size_t capacity_bytes);
  [[nodiscard]] bool is_attached(std::size_t entry) const noexcept;
  [[nodiscard]] bool is_alone() const noexcept;

  const std::string name_;
  const std::string path_;
  OwnedFile file_;
  Layout* layout_ = nullptr;
  std::size_t entry_ = 0;
};

}  // namespace cistern::simulated
