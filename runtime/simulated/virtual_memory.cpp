#include "runtime/simulated/virtual_memory.h"

#include "runtime/simulated/shareable_memory.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace cistern::simulated {
namespace {

bool is_whole_granules(std::uint64_t value) { return value % kGranule == 0; }

}  // namespace

VirtualMemory::VirtualMemory(AddressWindow window, std::vector<DeviceCapacity*> capacities, HostPages& pages,
                             std::uint16_t driver, std::size_t host_mappings)
    : window_(window),
      capacities_(std::move(capacities)),
      pages_(pages),
      shown_(pages, host_mappings),
      handles_(HandleKind::memory, driver, HandleReuse::never) {
  if (window.end == window.begin) return;
  free_addresses_.give_back(window.begin, window.end - window.begin);
  // As roomy as the addresses: holes in the file cost nothing, and a handle is one piece of it.
  file_ = pages_.reserve_file(window.end - window.begin);
  free_offsets_.give_back(0, window.end - window.begin);
}

bool VirtualMemory::is_valid(const CUmemAllocationProp* properties) const {
  return properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties->location.id >= 0 &&
         static_cast<std::size_t>(properties->location.id) < capacities_.size();
}

bool VirtualMemory::is_valid(const CUmemAccessDesc& access) const {
  const bool flags_known = access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                           access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                           access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return flags_known && access.location.type == CU_MEM_LOCATION_TYPE_DEVICE && access.location.id >= 0 &&
         static_cast<std::size_t>(access.location.id) < capacities_.size();
}

CUresult VirtualMemory::reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr wish,
                                unsigned long long flags) {
  const bool alignment_valid = (alignment & (alignment - 1)) == 0;
  if (address == nullptr || bytes == 0 || !is_whole_granules(bytes) || !alignment_valid || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::size_t boundary = std::max(alignment, kGranule);
  std::uint64_t begin = wish;
  // A wish that cannot be met is not an error: the driver chooses another place.
  if (wish == 0 || wish % boundary != 0 || !free_addresses_.take(wish, bytes)) {
    const auto place = free_addresses_.take_first_fit(bytes, boundary);
    if (!place) return CUDA_ERROR_OUT_OF_MEMORY;
    begin = *place;
  }
  reservations_.emplace(begin, bytes);
  *address = begin;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::free_reservation(CUdeviceptr address, std::size_t bytes) {
  const auto reservation = reservations_.find(address);
  if (reservation == reservations_.end() || reservation->second != bytes || is_mapped_anywhere(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  free_addresses_.give_back(address, bytes);
  reservations_.erase(reservation);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::granularity(std::size_t* bytes, const CUmemAllocationProp* properties) const {
  if (bytes == nullptr || !is_valid(properties)) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranule;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                               const CUmemAllocationProp* properties, unsigned long long flags) {
  if (handle == nullptr || bytes == 0 || !is_whole_granules(bytes) || !is_valid(properties) || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  collect_leased();
  const int device = properties->location.id;
  DeviceCapacity& capacity = *capacities_[static_cast<std::size_t>(device)];
  if (bytes > capacity.total() - capacity.used()) return CUDA_ERROR_OUT_OF_MEMORY;
  Physical* physical = nullptr;
  const CUmemGenericAllocationHandle created = handles_.insert(&physical);
  const auto offset = free_offsets_.take_first_fit(bytes);
  if (!offset || !capacity.take(bytes)) {
    handles_.erase(created);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *physical = Physical{device,
                       bytes,
                       file_ + *offset,
                       next_id_++,
                       properties->requestedHandleTypes,
                       properties->allocFlags.gpuDirectRDMACapable,
                       {},
                       1,
                       0};
  *handle = created;
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle VirtualMemory::adopt(int device, std::size_t bytes, OwnedFile file, std::uint64_t offset,
                                                  OwnedFile lease) {
  Physical* physical = nullptr;
  const CUmemGenericAllocationHandle adopted = handles_.insert(&physical);
  const FilePlace place{file.get(), offset};
  *physical =
      Physical{device, bytes, place, next_id_++, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0, std::move(file), 1, 0};
  physical->lease = std::move(lease);
  return adopted;
}

std::optional<VirtualMemory::Extent> VirtualMemory::extent_of(CUmemGenericAllocationHandle handle) const {
  const Physical* physical = handles_.find(handle);
  if (physical == nullptr || physical->references == 0) return std::nullopt;
  return Extent{physical->device, physical->bytes, physical->place};
}

CUresult VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  Physical* physical = handles_.find(handle);
  if (physical == nullptr || physical->references == 0) return CUDA_ERROR_INVALID_VALUE;
  --physical->references;
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

// Requires: `handle` is in the table.
void VirtualMemory::drop_if_unused(CUmemGenericAllocationHandle handle) {
  Physical& unused = handles_.at(handle);
  if (unused.references != 0 || unused.mappings != 0) return;
  if (unused.lease_watch) {
    unused.lease = OwnedFile();  // from now on only others hold it
    if (is_leased(unused.lease_watch)) {
      leased_.push_back(handle);  // within its capacity: lease_of reserved it
      return;
    }
    --exported_;
  }
  drop(handle);
}

const OwnedFile* VirtualMemory::lease_of(CUmemGenericAllocationHandle handle) {
  Physical& physical = handles_.at(handle);
  if (physical.lease) return &physical.lease;
  leased_.reserve(exported_ + 1);
  auto made = make_lease();
  if (!made) return nullptr;
  physical.lease = std::move(made->lease);
  physical.lease_watch = std::move(made->watch);
  ++exported_;
  return &physical.lease;
}

void VirtualMemory::collect_leased() {
  for (std::size_t i = 0; i < leased_.size();) {
    if (is_leased(handles_.at(leased_[i]).lease_watch)) {
      ++i;
      continue;
    }
    drop(leased_[i]);
    leased_[i] = leased_.back();
    leased_.pop_back();
    --exported_;
  }
}

// Requires: nobody uses it.
void VirtualMemory::drop(CUmemGenericAllocationHandle handle) {
  const Physical physical = std::move(handles_.at(handle));
  handles_.erase(handle);
  if (physical.adopted) return;  // what counts it is in another process
  capacities_[static_cast<std::size_t>(physical.device)]->give_back(physical.bytes);
  free_offsets_.give_back(physical.place.offset - file_.offset, physical.bytes);
  pages_.discard(physical.place, physical.bytes);
}

bool VirtualMemory::is_reserved(std::uint64_t address, std::size_t bytes) const {
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return false;
  --reservation;
  const std::uint64_t head = address - reservation->first;
  return head < reservation->second && bytes <= reservation->second - head;
}

bool VirtualMemory::is_mapped_anywhere(std::uint64_t address, std::size_t bytes) const {
  const auto after = mappings_.lower_bound(address + bytes);
  if (after == mappings_.begin()) return false;
  const auto last = std::prev(after);
  return last->first + last->second.bytes > address;
}

CUresult VirtualMemory::map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Physical* physical = handles_.find(handle);
  if (physical == nullptr || physical->references == 0) return CUDA_ERROR_INVALID_VALUE;
  // A part of a handle: so an H200's driver (580.159) says.
  if (offset != 0 || (bytes != 0 && bytes < physical->bytes)) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags != 0 || bytes != physical->bytes || !is_whole_granules(address) || !is_reserved(address, bytes) ||
      is_mapped_anywhere(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  mappings_.emplace(address, Mapping{bytes, handle, physical->place, 0, 0});
  ++physical->mappings;
  return CUDA_SUCCESS;
}

bool VirtualMemory::is_row_of_mappings(std::uint64_t address, std::size_t bytes) const {
  if (bytes == 0 || !window_.contains(address) || bytes > window_.end - address) return false;
  const std::uint64_t end = address + bytes;
  std::uint64_t reached = address;
  for (auto mapping = mappings_.find(address); mapping != mappings_.end() && reached < end; ++mapping) {
    if (mapping->first != reached) return false;
    reached += mapping->second.bytes;
  }
  return reached == end;
}

CUresult VirtualMemory::check_unmap(CUdeviceptr address, std::size_t bytes) const {
  return is_row_of_mappings(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult VirtualMemory::unmap(CUdeviceptr address, std::size_t bytes) {
  if (const CUresult invalid = check_unmap(address, bytes); invalid != CUDA_SUCCESS) return invalid;
  if (!shown_.hide(address, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto first = mappings_.find(address);
  const auto last = mappings_.lower_bound(address + bytes);
  for (auto mapping = first; mapping != last; ++mapping) {
    const CUmemGenericAllocationHandle handle = mapping->second.handle;
    --handles_.at(handle).mappings;
    drop_if_unused(handle);
  }
  mappings_.erase(first, last);
  return CUDA_SUCCESS;
}

VirtualMemory::Mappings::const_iterator VirtualMemory::mapping_at(std::uint64_t address) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return mappings_.end();
  const auto at = std::prev(after);
  return address - at->first < at->second.bytes ? at : mappings_.end();
}

bool VirtualMemory::show(Mappings::const_iterator first, Mappings::const_iterator last) {
  while (first != last) {
    const std::uint64_t address = first->first;
    const Mapping& head = first->second;
    std::size_t bytes = head.bytes;
    for (++first; first != last && first->first == address + bytes && head.is_followed_by(bytes, first->second);
         ++first) {
      bytes += first->second.bytes;
    }
    // Nobody may touch what no device may.
    if (head.page_access() == PageAccess::none) continue;
    if (!shown_.show(address, bytes, head.place, head.page_access())) return false;
  }
  return true;
}

bool VirtualMemory::show(std::uint64_t address, std::size_t bytes) {
  if (bytes == 0) return true;
  auto first = mapping_at(address);
  if (first == mappings_.end()) first = mappings_.lower_bound(address);
  // Held as one: showing the end of it must not hide its beginning.
  shown_.hold(address, bytes);
  const bool all = show(first, mappings_.lower_bound(address + bytes));
  shown_.release(address, bytes);
  return all;
}

std::size_t VirtualMemory::count_runs(Mappings::const_iterator first, Mappings::const_iterator last) {
  std::size_t runs = 0;
  const Mapping* previous = nullptr;
  for (; first != last; ++first) {
    if (previous == nullptr || !previous->is_followed_by(previous->bytes, first->second)) ++runs;
    previous = &first->second;
  }
  return runs;
}

bool VirtualMemory::show_changes(Mappings::const_iterator first, Mappings::const_iterator last,
                                 const std::vector<PageAccess>& before) {
  auto was = before.begin();
  for (auto mapping = first; mapping != last; ++mapping, ++was) {
    if (*was == PageAccess::none || *was == mapping->second.page_access()) continue;
    if (!shown_.hide(mapping->first, mapping->second.bytes)) return false;
  }
  // Code that touches an address without a word works while there is room for all: docs/simulated-driver.md.
  return !shown_.has_room_for(count_runs(first, last)) || show(first, last);
}

void VirtualMemory::Mapping::allow(const CUmemAccessDesc& access) {
  const std::uint64_t device = std::uint64_t{1} << access.location.id;
  const bool reads = access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const bool writes = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  readers = reads ? readers | device : readers & ~device;
  writers = writes ? writers | device : writers & ~device;
}

CUresult VirtualMemory::set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                                   std::size_t count) {
  if (access == nullptr || count == 0 || !is_row_of_mappings(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!std::all_of(access, access + count, [&](const CUmemAccessDesc& desc) { return is_valid(desc); })) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto first = mappings_.find(address);
  const auto last = mappings_.lower_bound(address + bytes);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> before;
  std::vector<PageAccess> pages_before;
  for (auto mapping = first; mapping != last; ++mapping) {
    before.emplace_back(mapping->second.readers, mapping->second.writers);
    pages_before.push_back(mapping->second.page_access());
  }
  for (auto mapping = mappings_.find(address); mapping != last; ++mapping) {
    for (const CUmemAccessDesc* desc = access; desc != access + count; ++desc) mapping->second.allow(*desc);
  }
  if (show_changes(first, last, pages_before)) return CUDA_SUCCESS;
  std::vector<PageAccess> pages_after;
  auto saved = before.begin();
  for (auto mapping = first; mapping != last; ++mapping, ++saved) {
    pages_after.push_back(mapping->second.page_access());
    std::tie(mapping->second.readers, mapping->second.writers) = *saved;
  }
  // What the host refuses here it is asked for again when somebody touches the range.
  static_cast<void>(show_changes(first, last, pages_after));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult VirtualMemory::get_access(unsigned long long* flags, const CUmemLocation* location,
                                   CUdeviceptr address) const {
  const auto mapping = mapping_at(address);
  if (flags == nullptr || location == nullptr || mapping == mappings_.end() ||
      !is_valid({*location, CU_MEM_ACCESS_FLAGS_PROT_NONE})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t device = std::uint64_t{1} << location->id;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  if ((mapping->second.readers & device) != 0) *flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  if ((mapping->second.writers & device) != 0) *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::properties(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) const {
  const Physical* physical = handles_.find(handle);
  if (properties == nullptr || physical == nullptr || physical->references == 0) return CUDA_ERROR_INVALID_VALUE;
  *properties = CUmemAllocationProp{};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = physical->device;
  properties->requestedHandleTypes = physical->handle_types;
  properties->allocFlags.gpuDirectRDMACapable = physical->rdma_capable;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::retain(CUmemGenericAllocationHandle* handle, CUdeviceptr address) {
  const auto mapping = mapping_at(address);
  if (handle == nullptr || mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  ++handles_.at(mapping->second.handle).references;
  *handle = mapping->second.handle;
  return CUDA_SUCCESS;
}

std::optional<VirtualMemory::Place> VirtualMemory::place_at(std::uint64_t address) const {
  const auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return std::nullopt;
  const auto reservation = std::prev(after);
  if (address - reservation->first >= reservation->second) return std::nullopt;
  Place place;
  place.reservation = reservation->first;
  place.reservation_bytes = reservation->second;
  const auto mapping = mapping_at(address);
  if (mapping == mappings_.end()) return place;
  const Physical& physical = handles_.at(mapping->second.handle);
  place.mapping = mapping->first;
  place.mapping_bytes = mapping->second.bytes;
  place.device = physical.device;
  place.handle_types = physical.handle_types;
  place.id = physical.id;
  return place;
}

bool VirtualMemory::is_accessible(std::uint64_t address, std::size_t bytes, int device, bool write) const {
  if (!window_.contains(address) || bytes > window_.end - address) return false;
  const std::uint64_t bit = std::uint64_t{1} << device;
  const std::uint64_t end = address + bytes;
  auto mapping = mapping_at(address);
  if (mapping == mappings_.end()) return false;
  for (std::uint64_t reached = mapping->first; reached < end; ++mapping) {
    if (mapping == mappings_.end() || mapping->first != reached) return false;
    if (((write ? mapping->second.writers : mapping->second.readers) & bit) == 0) return false;
    reached += mapping->second.bytes;
  }
  return true;
}

int VirtualMemory::device_at(std::uint64_t address) const {
  auto mapping = mappings_.upper_bound(address);
  if (mapping == mappings_.begin()) return -1;
  --mapping;
  return address < mapping->first + mapping->second.bytes ? handles_.at(mapping->second.handle).device : -1;
}

std::uint64_t VirtualMemory::devices_mapped(std::uint64_t address, std::size_t bytes) const {
  std::uint64_t devices = 0;
  const auto end = mappings_.lower_bound(address + bytes);
  for (auto mapping = mappings_.lower_bound(address); mapping != end; ++mapping) {
    devices |= std::uint64_t{1} << handles_.at(mapping->second.handle).device;
  }
  return devices;
}

}  // namespace cistern::simulated
