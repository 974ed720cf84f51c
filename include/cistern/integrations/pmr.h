#pragma once

// PinnedMemoryResource: page-locked host memory for the containers of std::pmr.
//
//   cistern::PinnedMemoryResource pinned;
//   std::pmr::synchronized_pool_resource pool(&pinned);   // keeps what is given back
//   std::pmr::vector<float> batch(count, &pool);          // copies from it to the device run in stream order
//
// It caches nothing: each allocation is a driver call and takes whole pages, each free another one. Under a pool of
// the standard library, as above, most requests reach neither.
// A resource frees what it allocated and no other; those that it still has when it ends stay allocated, and standard
// error says how many. Thread safety: any member may be called from any thread.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/host_memory.h>

#include <cstddef>
#include <memory>
#include <memory_resource>

namespace cistern {

class CISTERN_EXPORT PinnedMemoryResource final : public std::pmr::memory_resource {
 public:
  // `device`: whose context allocates; "the current device" is the one that is current now.
  explicit PinnedMemoryResource(PinnedMemoryOptions options = {}, Device device = {});
  ~PinnedMemoryResource() override;
  PinnedMemoryResource(const PinnedMemoryResource&) = delete;
  PinnedMemoryResource& operator=(const PinnedMemoryResource&) = delete;

  // Blocks that are allocated now, and their bytes as they were asked for.
  [[nodiscard]] std::size_t live_blocks() const noexcept;
  [[nodiscard]] std::size_t live_bytes() const noexcept;

 private:
  // 0 bytes take a page, too. Throws InvalidArgument for an alignment that is no power of two or above a page,
  // DriverError.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  // Never throws. What this resource did not allocate, or not with so many bytes, stays as it is, and standard error
  // says so. The caller sees to it that no queued work uses the memory any more.
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) override;
  // Only itself.
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cistern
