#pragma once

// VirtualMemory: address reservations, physical handles and the mappings between them, by
// the driver's rules: a handle is mapped whole or not at all, and unmapped whole.
//
// Reservations lie apart from device allocations. Physical memory counts against its device
// from create until it is released and mapped nowhere. Every member answers with the
// driver's own result, and one that fails changes nothing.
// The host's mappings are made when access is set, while there are few; from then on when
// somebody shows a range, which he does before he touches it.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/driver_api.h"
#include "runtime/simulated/device_capacity.h"
#include "runtime/simulated/free_ranges.h"
#include "runtime/simulated/granule.h"
#include "runtime/simulated/handle_table.h"
#include "runtime/simulated/host_mappings.h"
#include "runtime/simulated/host_pages.h"
#include "runtime/simulated/owned_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

namespace cistern::simulated {

class VirtualMemory {
 public:
  // `capacities` by device ordinal; at most 64 devices. At most `host_mappings` are kept.
  VirtualMemory(AddressWindow window, std::vector<DeviceCapacity*> capacities, HostPages& pages, std::uint16_t driver,
                std::size_t host_mappings = host_mapping_budget());

  CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr wish,
                   unsigned long long flags);
  CUresult free_reservation(CUdeviceptr address, std::size_t bytes);
  CUresult granularity(std::size_t* bytes, const CUmemAllocationProp* properties) const;
  CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                  unsigned long long flags);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
               unsigned long long flags);
  // What unmap would say, without doing it.
  [[nodiscard]] CUresult check_unmap(CUdeviceptr address, std::size_t bytes) const;
  CUresult unmap(CUdeviceptr address, std::size_t bytes);
  CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count);

  CUresult get_access(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) const;
  CUresult properties(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) const;
  CUresult retain(CUmemGenericAllocationHandle* handle, CUdeviceptr address);

  // A handle over bytes in another process's file, which count against their device there, not
  // here. It keeps the file until it is gone. Requires: whole granules at a multiple of the host's
  // page in the file. Throws std::bad_alloc, unchanged.
  [[nodiscard]] CUmemGenericAllocationHandle adopt(int device, std::size_t bytes, OwnedFile file, std::uint64_t offset,
                                                   OwnedFile lease = {});
  // What another process's import of the handle is to hold while it lives (see make_lease): until
  // then the memory counts here, also when it is released. Null if the host has no pipe left.
  // Requires: extent_of(handle). Throws std::bad_alloc, unchanged.
  [[nodiscard]] const OwnedFile* lease_of(CUmemGenericAllocationHandle handle);
  // Gives memory back that was released, and that no other process holds any more.
  void collect_leased();
  // Where a handle's bytes live, how many they are and whose: nothing if there is no such handle.
  struct Extent {
    int device;
    std::size_t bytes;
    FilePlace place;
  };
  [[nodiscard]] std::optional<Extent> extent_of(CUmemGenericAllocationHandle handle) const;

  // Whether all of [address, address + bytes) is mapped and `device` may read (and write) it.
  [[nodiscard]] bool is_accessible(std::uint64_t address, std::size_t bytes, int device, bool write) const;
  // Lets host code touch what of the range is mapped with any access. False if the host refuses.
  [[nodiscard]] bool show(std::uint64_t address, std::size_t bytes);
  // Between the two it stays shown, and unmap must not be called: is_held tells.
  void hold(std::uint64_t address, std::size_t bytes) { shown_.hold(address, bytes); }
  void release_hold(std::uint64_t address, std::size_t bytes) noexcept { shown_.release(address, bytes); }
  [[nodiscard]] bool is_held(std::uint64_t address, std::size_t bytes) const { return shown_.is_held(address, bytes); }
  [[nodiscard]] std::size_t host_mappings() const noexcept { return shown_.size(); }

  // What lies at an address: nothing outside every reservation.
  struct Place {
    std::uint64_t reservation = 0;
    std::size_t reservation_bytes = 0;
    std::uint64_t mapping = 0;  // 0: nothing is mapped there
    std::size_t mapping_bytes = 0;
    int device = 0;
    CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
    std::uint64_t id = 0;  // of the physical memory: never used again
  };
  [[nodiscard]] std::optional<Place> place_at(std::uint64_t address) const;

  // Calls visit(address, bytes, place) for each mapped part of the range: the place of its bytes
  // is the same for all mappings of them.
  template <class Visit>
  void for_each_piece(std::uint64_t address, std::size_t bytes, Visit visit) const;
  // The device whose memory is mapped at an address; -1 if none is.
  [[nodiscard]] int device_at(std::uint64_t address) const;
  // The devices whose memory is mapped in a range: a bit a device.
  [[nodiscard]] std::uint64_t devices_mapped(std::uint64_t address, std::size_t bytes) const;
  [[nodiscard]] const AddressWindow& window() const noexcept { return window_; }

 private:
  struct Physical {
    int device = 0;
    std::size_t bytes = 0;
    FilePlace place;
    std::uint64_t id = 0;
    CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
    unsigned char rdma_capable = 0;
    OwnedFile adopted;           // the file, if the bytes are another process's
    std::size_t references = 0;  // from create and retain, until as many releases
    std::size_t mappings = 0;
    OwnedFile lease = {};        // of an import, and of what was exported until it is released
    OwnedFile lease_watch = {};  // of what was exported
  };
  struct Mapping {
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    FilePlace place;
    std::uint64_t readers = 0;  // a bit a device
    std::uint64_t writers = 0;
    [[nodiscard]] PageAccess page_access() const {
      if (writers != 0) return PageAccess::read_write;
      return readers != 0 ? PageAccess::read : PageAccess::none;
    }
    void allow(const CUmemAccessDesc& access);
    // Whether bytes so many after this one's first are `next`'s, with equal access.
    [[nodiscard]] bool is_followed_by(std::size_t distance, const Mapping& next) const {
      return next.place == place + distance && next.page_access() == page_access();
    }
  };
  using Mappings = std::map<std::uint64_t, Mapping>;

  [[nodiscard]] bool is_valid(const CUmemAllocationProp* properties) const;
  [[nodiscard]] bool is_valid(const CUmemAccessDesc& access) const;
  [[nodiscard]] bool is_reserved(std::uint64_t address, std::size_t bytes) const;
  [[nodiscard]] bool is_mapped_anywhere(std::uint64_t address, std::size_t bytes) const;
  // Whether the range is a row of whole mappings without gaps.
  [[nodiscard]] bool is_row_of_mappings(std::uint64_t address, std::size_t bytes) const;
  // The mapping at an address, or end().
  [[nodiscard]] Mappings::const_iterator mapping_at(std::uint64_t address) const;
  // Shows mappings that follow each other.
  [[nodiscard]] bool show(Mappings::const_iterator first, Mappings::const_iterator last);
  // How many mappings of the host's they take, at most.
  [[nodiscard]] static std::size_t count_runs(Mappings::const_iterator first, Mappings::const_iterator last);
  // Hides those whose access is not what `before` says it was; shows all where there is room.
  [[nodiscard]] bool show_changes(Mappings::const_iterator first, Mappings::const_iterator last,
                                  const std::vector<PageAccess>& before);
  void drop_if_unused(CUmemGenericAllocationHandle handle);
  void drop(CUmemGenericAllocationHandle handle);

  AddressWindow window_;
  std::vector<DeviceCapacity*> capacities_;
  HostPages& pages_;
  HostMappings shown_;
  FreeRanges free_addresses_;
  FilePlace file_;  // where the places of handles begin
  FreeRanges free_offsets_;
  std::map<std::uint64_t, std::size_t> reservations_;
  Mappings mappings_;
  HandleTable<Physical> handles_;
  std::vector<CUmemGenericAllocationHandle> leased_;  // released here, held by other processes
  std::size_t exported_ = 0;                          // handles that may come there
  std::uint64_t next_id_ = 1;
};

template <class Visit>
void VirtualMemory::for_each_piece(std::uint64_t address, std::size_t bytes, Visit visit) const {
  const std::uint64_t end = address + bytes;
  auto mapping = mappings_.upper_bound(address);
  if (mapping != mappings_.begin() && std::prev(mapping)->first + std::prev(mapping)->second.bytes > address) --mapping;
  for (; mapping != mappings_.end() && mapping->first < end; ++mapping) {
    const std::uint64_t from = std::max<std::uint64_t>(mapping->first, address);
    const std::uint64_t to = std::min<std::uint64_t>(mapping->first + mapping->second.bytes, end);
    visit(from, to - from, mapping->second.place + (from - mapping->first));
  }
}

}  // namespace cistern::simulated
