#include "allocator/host_source.h"

#include "allocator/host_sizes.h"
#include "allocator/numa_preference.h"

#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <thread>

namespace cistern {
namespace {

// Brings in the pages of a part; the kernel hands them out zeroed, so one byte of each is enough.
void touch(std::byte* begin, std::size_t bytes, std::optional<int> node) noexcept {
  const NumaPreference preference(node);
  for (std::size_t offset = 0; offset < bytes; offset += host_sizes::kPage)
    *reinterpret_cast<volatile std::byte*>(begin + offset) = std::byte{0};
}

// By as many threads, each at a part of its own; where the system refuses a thread, by this one.
void touch_all(std::byte* memory, std::size_t bytes, std::size_t threads, std::optional<int> node) {
  const std::size_t part = host_sizes::round_up((bytes + threads - 1) / threads, host_sizes::kPage);
  std::vector<std::thread> others;
  others.reserve(threads);
  std::size_t begin = part;
  try {
    for (; begin < bytes; begin += part)
      others.emplace_back(touch, memory + begin, std::min(part, bytes - begin), node);
  } catch (const std::exception&) {
    touch(memory + begin, bytes - begin, node);
  }
  touch(memory, std::min(part, bytes), node);
  for (std::thread& other : others) other.join();
}

}  // namespace

HostSource::HostSource(const Contexts& contexts, HostMemoryKind kind)
    : api_(contexts.api()),
      kind_(kind),
      nodes_(static_cast<std::size_t>(contexts.device_count())),
      is_node_known_(static_cast<std::size_t>(contexts.device_count())) {
  for (int device = 0; device < contexts.device_count(); ++device) devices_.push_back(contexts.driver_device(device));
}

CUresult HostSource::allocate(std::size_t bytes, int device, const HostSourceOptions& options, std::uint64_t* address,
                              DriverEntryId* failed) {
  if (kind_ == HostMemoryKind::managed) {
    *failed = DriverEntryId::mem_alloc_managed;
    return allocate_managed(bytes, device, address);
  }
  const std::optional<int> node = node_of(device);
  if (options.registers) return allocate_registered(bytes, options.register_threads, node, address, failed);
  void* memory = nullptr;
  *failed = DriverEntryId::mem_host_alloc;
  const NumaPreference preference(node);
  const CUresult result = api_.mem_host_alloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  *address = reinterpret_cast<std::uintptr_t>(memory);
  return result;
}

// Attached to nothing: every stream of every device reaches it, and the host at any time.
CUresult HostSource::allocate_managed(std::size_t bytes, int device, std::uint64_t* address) {
  int has_it = 0;
  const CUresult result = api_.device_get_attribute(&has_it, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
                                                    devices_[static_cast<std::size_t>(device)]);
  if (result != CUDA_SUCCESS) return result;
  if (has_it == 0 || !api_.mem_alloc_managed) return CUDA_ERROR_NOT_SUPPORTED;
  CUdeviceptr pointer = 0;
  const CUresult made = api_.mem_alloc_managed(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
  *address = pointer;
  return made;
}

CUresult HostSource::allocate_registered(std::size_t bytes, std::size_t threads, std::optional<int> node,
                                         std::uint64_t* address, DriverEntryId* failed) {
  *failed = DriverEntryId::mem_host_register;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  // What the device reads and writes must stay this process's pages: a fork would share them until somebody writes.
  static_cast<void>(::madvise(memory, bytes, MADV_DONTFORK));
  const std::uint64_t begin = reinterpret_cast<std::uintptr_t>(memory);
  try {
    touch_all(static_cast<std::byte*>(memory), bytes, std::max<std::size_t>(threads, 1), node);
    const std::lock_guard lock(mutex_);
    registered_.insert(begin);
  } catch (...) {
    static_cast<void>(::munmap(memory, bytes));
    throw;
  }
  const CUresult result =
      api_.mem_host_register(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result == CUDA_SUCCESS) {
    *address = begin;
    return result;
  }
  {
    const std::lock_guard lock(mutex_);
    registered_.erase(begin);
  }
  static_cast<void>(::munmap(memory, bytes));
  return result;
}

CUresult HostSource::release(std::uint64_t address, std::size_t bytes, DriverEntryId* failed) noexcept {
  void* const memory = reinterpret_cast<void*>(address);
  if (kind_ == HostMemoryKind::managed) {
    *failed = DriverEntryId::mem_free;
    return api_.mem_free(address);
  }
  if (!is_registered(address)) {
    *failed = DriverEntryId::mem_free_host;
    return api_.mem_free_host(memory);
  }
  *failed = DriverEntryId::mem_host_unregister;
  const CUresult result = api_.mem_host_unregister(memory);
  if (result != CUDA_SUCCESS) return result;
  {
    const std::lock_guard lock(mutex_);
    registered_.erase(address);
  }
  static_cast<void>(::munmap(memory, bytes));
  return result;
}

bool HostSource::is_registered(std::uint64_t address) noexcept {
  const std::lock_guard lock(mutex_);
  return registered_.contains(address);
}

// Asked once a device, and not under the lock.
std::optional<int> HostSource::node_of(int device) {
  const auto index = static_cast<std::size_t>(device);
  {
    const std::lock_guard lock(mutex_);
    if (is_node_known_[index]) return nodes_[index];
  }
  const std::optional<int> node = numa_node_of(api_, devices_[index]);
  const std::lock_guard lock(mutex_);
  is_node_known_[index] = true;
  return nodes_[index] = node;
}

}  // namespace cistern
