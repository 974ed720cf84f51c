#pragma once

// What is mapped where, told by the driver's calls, and which bytes of which handle blocks have: by that blocks at
// different addresses are seen to share a byte, and whether a request could have been served that was refused.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/driver_api.h"

namespace cistern::model {

class MappedMemory {
 public:
  // Listens to the table's calls from now on; outlives its use.
  explicit MappedMemory(DriverApi& api);
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  // Blocks that are live or pending, told anew after each operation. `add`: false, if some of it is another's or
  // nothing is mapped there.
  void forget_blocks() { blocks_.clear(); }
  [[nodiscard]] bool add(std::uint64_t address, std::size_t bytes);

  // Of the handles in which a block has a byte, and of all.
  [[nodiscard]] std::size_t bytes_in_use() const;
  [[nodiscard]] std::size_t bytes() const;
  // Whether nobody's bytes, with handles of so many bytes more, could be a block of that size: within a handle; or all
  // free handles side by side, between the longest free end of one and the longest free beginning.
  [[nodiscard]] bool could_serve(std::size_t bytes, std::size_t more_bytes) const;

 private:
  using Handle = CUmemGenericAllocationHandle;
  using Stretches = std::map<std::size_t, std::size_t>;  // begin, end
  struct Mapping {
    Handle handle;
    std::size_t bytes;
  };

  static MappedMemory& of(void* self) { return *static_cast<MappedMemory*>(self); }

  const DriverApi inner_;
  std::map<Handle, std::size_t> handles_;  // and their bytes
  std::map<std::uint64_t, Mapping> mappings_;
  std::map<Handle, Stretches> blocks_;
};

}  // namespace cistern::model
