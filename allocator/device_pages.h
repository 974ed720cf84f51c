#pragma once

// DevicePages: the handles and addresses of paged memory as the driver has them.
//
// An arena of the page table is one reservation of addresses, made when something is first mapped there. A handle is
// kept until it is released, since it is mapped again elsewhere. What the driver refuses to undo is kept, too, and
// tried again before the next gather and at each release: a mapping that stays keeps its addresses, so that nothing
// is mapped over it.
// Thread safety: any member may be called from any thread, for handles and addresses that no other call is about; the
// device's context must be current. Results are the driver's: a refusal is a value.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocator/gather.h"
#include "allocator/page_size.h"
#include "allocator/page_source.h"
#include "allocator/page_table.h"
#include "runtime/driver_api.h"

namespace cistern {

class DevicePages {
 public:
  // `source` outlives it. Each reservation is of `arena_bytes`.
  DevicePages(const DriverApi& api, PageSource& source, PageSize page, std::size_t arena_bytes)
      : api_(api), source_(source), page_(page), arena_bytes_(arena_bytes) {}
  DevicePages(const DevicePages&) = delete;
  DevicePages& operator=(const DevicePages&) = delete;

  struct Outcome {
    CUresult result = CUDA_SUCCESS;
    DriverEntryId call = DriverEntryId::mem_map;  // that failed
    std::int64_t created = 0;                     // pages that the driver created before it refused
  };

  // Where the arena begins on the device; 0 if it has no reservation.
  [[nodiscard]] std::uint64_t address_of(PageTable::Arena arena) const;
  [[nodiscard]] std::size_t arena_bytes() const { return arena_bytes_; }

  // The driver's part of a gather, all or nothing, readable and writable by the device and by `peers`.
  [[nodiscard]] Outcome carry_out(const Gather& gather, const std::vector<CUdevice>& peers, bool shareable);
  [[nodiscard]] Outcome unmap(Sectors place, std::int32_t pages);
  // Never refuses: what the driver refuses is tried again later.
  void release(PageTable::Handle handle) noexcept;
  // Lets another device read and write the pages, which are mapped side by side.
  [[nodiscard]] CUresult allow(Sectors place, std::int64_t pages, CUdevice peer) const;
  // Gives the arena's addresses back; what the driver refuses stays reserved for the arena. Requires: nothing is
  // mapped in it.
  [[nodiscard]] Outcome free_arena(PageTable::Arena arena);
  // Tries again what the driver refused to undo. Returns the first refusal.
  [[nodiscard]] Outcome settle_debts() noexcept;
  [[nodiscard]] bool has_debts() const noexcept;

 private:
  class Calls;
  struct Stray {  // a mapping that the driver refused to undo
    std::uint64_t address = 0;
    std::size_t bytes = 0;
  };

  [[nodiscard]] CUresult create(PageTable::Handle handle, std::int32_t pages, bool shareable);
  [[nodiscard]] CUresult reserve(PageTable::Arena arena);
  [[nodiscard]] std::uint64_t address_at(Sectors place) const;
  [[nodiscard]] CUmemGenericAllocationHandle handle_of(PageTable::Handle handle) const;
  void release_now(CUmemGenericAllocationHandle handle) noexcept;
  void keep_stray(std::uint64_t address, std::size_t bytes) noexcept;
  [[nodiscard]] std::size_t bytes_of(std::int64_t pages) const {
    return static_cast<std::size_t>(page_.sectors(pages) * kSectorBytes);
  }

  const DriverApi& api_;
  PageSource& source_;
  const PageSize page_;
  const std::size_t arena_bytes_;
  mutable std::mutex mutex_;                           // of the tables below; never held across a call of the driver's
  std::vector<CUmemGenericAllocationHandle> handles_;  // by the table's number; 0: none
  std::vector<std::uint64_t> arenas_;                  // where each begins; 0: it has no reservation
  std::vector<Stray> strays_;
  std::vector<CUmemGenericAllocationHandle> unreleased_;
  std::size_t steps_under_way_ = 0;  // each may become a stray, for which there is room
};

}  // namespace cistern
