#include "mapped_memory.h"

#include <algorithm>
#include <iterator>

namespace cistern::model {

MappedMemory::MappedMemory(DriverApi& api) : inner_(api) {
  api.mem_create = {this, [](void* self, Handle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                             unsigned long long flags) {
                      const CUresult result = of(self).inner_.mem_create(handle, bytes, properties, flags);
                      if (result == CUDA_SUCCESS) of(self).handles_[*handle] = bytes;
                      return result;
                    }};
  api.mem_release = {this, [](void* self, Handle handle) {
                       const CUresult result = of(self).inner_.mem_release(handle);
                       if (result == CUDA_SUCCESS) of(self).handles_.erase(handle);
                       return result;
                     }};
  api.mem_map = {this, [](void* self, CUdeviceptr address, std::size_t bytes, std::size_t offset, Handle handle,
                          unsigned long long flags) {
                   const CUresult result = of(self).inner_.mem_map(address, bytes, offset, handle, flags);
                   if (result == CUDA_SUCCESS) of(self).mappings_[address] = {handle, bytes};
                   return result;
                 }};
  api.mem_unmap = {this, [](void* self, CUdeviceptr address, std::size_t bytes) {
                     const CUresult result = of(self).inner_.mem_unmap(address, bytes);
                     auto& mappings = of(self).mappings_;
                     if (result == CUDA_SUCCESS)
                       mappings.erase(mappings.lower_bound(address), mappings.lower_bound(address + bytes));
                     return result;
                   }};
}

bool MappedMemory::add(std::uint64_t address, std::size_t bytes) {
  for (const std::uint64_t end = address + bytes; address < end;) {
    const auto next = mappings_.upper_bound(address);
    if (next == mappings_.begin()) return false;
    const auto& [begin, mapping] = *std::prev(next);
    if (address >= begin + mapping.bytes) return false;
    const std::uint64_t until = std::min<std::uint64_t>(end, begin + mapping.bytes);
    Stretches& stretches = blocks_[mapping.handle];
    const auto place = stretches.emplace(address - begin, until - begin);
    if (!place.second) return false;
    const auto behind = std::next(place.first);
    if (behind != stretches.end() && behind->first < until - begin) return false;
    if (place.first != stretches.begin() && std::prev(place.first)->second > address - begin) return false;
    address = until;
  }
  return true;
}

std::size_t MappedMemory::bytes_in_use() const {
  std::size_t sum = 0;
  for (const auto& [handle, stretches] : blocks_) sum += handles_.at(handle);
  return sum;
}

std::size_t MappedMemory::bytes() const {
  std::size_t sum = 0;
  for (const auto& [handle, bytes] : handles_) sum += bytes;
  return sum;
}

bool MappedMemory::could_serve(std::size_t bytes, std::size_t more_bytes) const {
  std::size_t whole = more_bytes;
  std::size_t longest = 0;
  std::size_t longest_beginning = 0;
  std::size_t longest_ending = 0;
  for (const auto& [handle, handle_bytes] : handles_) {
    const auto blocks = blocks_.find(handle);
    if (blocks == blocks_.end()) {
      whole += handle_bytes;
      continue;
    }
    std::size_t free_from = 0;
    for (const auto& [begin, end] : blocks->second) {
      longest = std::max(longest, begin - free_from);
      free_from = end;
    }
    longest_beginning = std::max(longest_beginning, blocks->second.begin()->first);
    longest_ending = std::max(longest_ending, handle_bytes - free_from);
  }
  return std::max(longest, whole + longest_ending + longest_beginning) >= bytes;
}

}  // namespace cistern::model
