#pragma once

// PageSource: where the memory of expandable segments comes from, and goes back to. Address space
// is reserved in one piece; physical memory comes in pages, which are mapped into it one by one.
//
// A page's handle is released as soon as it is mapped: the mapping alone keeps the memory then
// ("CUDA Driver API", cuMemRelease), so that an unmap gives it back by one call, which either
// happened or did not. A handle that the driver refuses to release is kept and tried again.
//
// Thread safety: any member may be called from any thread for pages that no other call is about;
// the device's context must be current. Results are the driver's: a refusal is a value.

#include "allocator/pages.h"
#include "runtime/driver_api.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace cistern {

class PageSource {
 public:
  // Null if the device has no virtual memory management. Throws DriverError, std::bad_alloc.
  [[nodiscard]] static std::unique_ptr<PageSource> make(const DriverApi& api, CUdevice device);
  PageSource(const PageSource&) = delete;
  PageSource& operator=(const PageSource&) = delete;

  // What a call did. `done`: bytes from the first page on that are mapped (after map) or unmapped
  // (after unmap). All of them on success; after a map that failed, what could not be rolled back.
  struct Outcome {
    CUresult result = CUDA_SUCCESS;
    DriverEntryId call = DriverEntryId::mem_map;  // that failed
    std::size_t done = 0;
  };

  [[nodiscard]] CUresult reserve(std::size_t bytes, std::uint64_t* address) const;
  // Requires: nothing is mapped in it.
  [[nodiscard]] CUresult free(std::uint64_t address, std::size_t bytes) const;
  // Host memory for the handles of one map.
  using Handles = std::vector<CUmemGenericAllocationHandle>;
  using Room = std::list<Handles>;
  // Makes room for so many pages. Throws std::bad_alloc, unchanged.
  static void make_room(Room& room, std::size_t pages);
  // Makes new memory at the pages, readable and writable by the device and by `peers`. All or
  // nothing. `shareable`: other processes may import it (export_fd). Takes no host memory if `room`
  // suffices, which can be used again.
  [[nodiscard]] Outcome map(const Pages& pages, const std::vector<CUdevice>& peers, bool shareable, Room& room);
  // Unmaps the pages in order, and stops at the first that the driver refuses. Waits for nothing
  // by itself. Requires: they are mapped.
  [[nodiscard]] Outcome unmap(const Pages& pages) const;
  // Handles that the driver refused to release: whether there are any, and another try.
  [[nodiscard]] bool owes_releases() noexcept;
  void release_owed() noexcept;
  // Lets another device read and write mapped pages; and the device itself and all of `peers`.
  [[nodiscard]] CUresult allow(const Pages& pages, CUdevice peer) const;
  [[nodiscard]] CUresult allow_all(const Pages& pages, const std::vector<CUdevice>& peers) const;
  // What physical memory of the device is made as.
  [[nodiscard]] CUmemAllocationProp properties(bool shareable) const;

 private:
  PageSource(const DriverApi& api, CUdevice device, bool has_descriptors, bool has_rdma)
      : api_(api), device_(device), has_descriptors_(has_descriptors), has_rdma_(has_rdma) {}
  [[nodiscard]] Outcome map_all(const Pages& pages, const std::vector<CUdevice>& peers,
                                const CUmemAllocationProp& properties, Handles& handles);
  // Releases handles; those that are refused join unreleased_, with the room that they are in.
  void release(Room& handles) noexcept;

  const DriverApi& api_;
  const CUdevice device_;
  const bool has_descriptors_;
  const bool has_rdma_;
  std::mutex mutex_;
  Room unreleased_;  // guarded by mutex_
};

}  // namespace cistern
