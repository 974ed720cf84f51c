// Legacy handles of memory: made, opened once a process, and let go of.

#include <cistern/error.h>
#include <cistern/ipc.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/device_uuid.h"
#include "runtime/driver_error.h"
#include "runtime/ipc_mapping.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

class LegacyMapping final : public IpcMapping {
 public:
  LegacyMapping(CUdeviceptr address, int device) noexcept : IpcMapping(address, device) {}
  ~LegacyMapping() override {
    try {
      const DeviceScope scope(nullptr, device());
      static_cast<void>(scope.api().ipc_close_mem_handle(address()));
    } catch (...) {
      // The context cannot be entered: it is gone, and the mapping with it.
    }
  }
  LegacyMapping(const LegacyMapping&) = delete;
  LegacyMapping& operator=(const LegacyMapping&) = delete;
};

// What this process has open, so that it opens each once. Never destroyed: objects may end late.
struct Opened {
  std::mutex mutex;
  std::map<std::pair<DriverIpcHandle, int>, std::weak_ptr<IpcMapping>> mappings;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<Receiver>> receivers;  // by inode and serial
};
Opened& opened() {
  static auto* all = new Opened;
  return *all;
}

template <class Map>
void forget_expired(Map& map) {
  for (auto entry = map.begin(); entry != map.end();) entry = entry->second.expired() ? map.erase(entry) : ++entry;
}

int device_for(const MemoryHandle& handle, Device asked) {
  if (!asked.is_current()) return resolve_device(asked);
  const auto device = device_with_uuid(handle.parts().device);
  if (!device)
    throw InvalidArgument(fmt::format("open_ipc of memory on device {}: no device of this process has that UUID",
                                      uuid_text(handle.parts().device)));
  return *device;
}

std::string describe(const MemoryHandle& handle) {
  return fmt::format("{} bytes of another process on device {}", handle.size(), uuid_text(handle.parts().device));
}

std::shared_ptr<IpcMapping> open_mapping(const MemoryHandle& handle, int device) {
  const auto key = std::pair(handle.parts().driver, device);
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.mappings.find(key); found != all.mappings.end())
    if (auto mapping = found->second.lock()) return mapping;
  CUipcMemHandle bytes{};
  static_assert(sizeof bytes.reserved == sizeof(DriverIpcHandle));
  std::memcpy(bytes.reserved, handle.parts().driver.data(), sizeof bytes.reserved);
  const DeviceScope scope(nullptr, device);
  if (!scope.api().ipc_open_mem_handle) throw NotSupported("open_ipc: the driver has no cuIpcOpenMemHandle");
  CUdeviceptr base = 0;
  const CUresult result = scope.api().ipc_open_mem_handle(&base, bytes, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result == CUDA_ERROR_INVALID_CONTEXT)
    throw InvalidArgument(fmt::format("open_ipc of {}: the memory is this very process's; expected a handle of another",
                                      describe(handle)));
  check_driver(scope.api(), result, DriverEntryId::ipc_open_mem_handle, [&] { return describe(handle); });
  auto mapping = std::make_shared<LegacyMapping>(base, device);
  forget_expired(all.mappings);
  all.mappings[key] = mapping;
  return mapping;
}

// The place of this process among those that the sender counts on; null if it does not count.
std::shared_ptr<Receiver> take_place(const MemoryHandle& handle) {
  const MemoryHandle::Sender& sender = handle.parts().sender;
  if (sender.process == 0) return nullptr;
  const std::pair key(sender.inode, sender.serial);
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.receivers.find(key); found != all.receivers.end())
    if (auto receiver = found->second.lock()) return receiver;
  auto table = ReceiverTable::open(sender);
  if (table == nullptr)
    throw InvalidArgument(
        fmt::format("open_ipc of {}: its sender, process {}, is gone, or this process must not look "
                    "at its files in /proc",
                    describe(handle), sender.process));
  const int place = table->take_place(sender);
  if (place < 0)
    throw InvalidArgument(
        fmt::format("open_ipc of {}: all receivers that its sender counts on have opened it, or it "
                    "was recalled",
                    describe(handle)));
  auto receiver = std::make_shared<Receiver>(std::move(table), sender, place);
  forget_expired(all.receivers);
  all.receivers[key] = receiver;
  return receiver;
}

}  // namespace

MemoryHandle ipc_handle(const void* pointer) {
  const auto device = device_of(pointer);
  if (!device) throw InvalidArgument(fmt::format("ipc_handle of {}: expected an address of device memory", pointer));
  const DeviceScope scope(nullptr, device->index());
  const DriverApi& api = scope.api();
  const auto object = [&] { return fmt::format("memory at {} on device {}", pointer, device->index()); };
  if (!api.ipc_get_mem_handle) throw NotSupported("ipc_handle: the driver has no cuIpcGetMemHandle");
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  check_driver(api, api.mem_get_address_range(&base, &bytes, address_of(pointer)), DriverEntryId::mem_get_address_range,
               object);
  CUipcMemHandle handle{};
  const CUresult result = api.ipc_get_mem_handle(&handle, base);
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED)
    throw NotSupported(
        fmt::format("ipc_handle of {}: the driver names only memory of cuMemAlloc so ({}); mapped "
                    "physical memory is shared by export_fd",
                    object(), driver_words(api, result)));
  check_driver(api, result, DriverEntryId::ipc_get_mem_handle, object);
  MemoryHandle::Parts parts;
  std::memcpy(parts.driver.data(), handle.reserved, sizeof handle.reserved);
  parts.device = uuid_of_device(device->index());
  parts.allocation = bytes;
  parts.offset = address_of(pointer) - base;
  parts.bytes = bytes - parts.offset;
  return MemoryHandle(parts);
}

IpcMemory open_ipc(const MemoryHandle& handle, Device asked) {
  destroy_deferred();
  const int device = device_for(handle, asked);
  // The memory first: a place that is taken and then left counts as a receiver that was there.
  auto mapping = open_mapping(handle, device);
  auto receiver = take_place(handle);
  const CUdeviceptr address = mapping->address() + handle.parts().offset;
  return IpcMemoryAccess::make(address, handle.size(), std::move(mapping), std::move(receiver));
}

namespace {

void wait_for_current_stream(int device) noexcept {
  try {
    current_stream(Device(device)).synchronize();
  } catch (...) {
    // A device that has failed, or a driver that is gone, does no more work either.
  }
}

}  // namespace

// --- IpcMemory --------------------------------------------------------------------------

IpcMemory IpcMemoryAccess::make(CUdeviceptr address, std::size_t bytes, std::shared_ptr<IpcMapping> mapping,
                                std::shared_ptr<Receiver> receiver) {
  IpcMemory memory;
  memory.share_ = std::make_shared<IpcMemory::Share>();
  memory.share_->mapping = std::move(mapping);
  memory.share_->receiver = std::move(receiver);
  memory.data_ = reinterpret_cast<void*>(address);
  memory.size_ = bytes;
  return memory;
}

IpcMemory::Share::~Share() {
  try {
    // What the share has goes to its end, which may come later. The sender hears last.
    const bool waits = receiver != nullptr && !waited;
    std::function<void()> end = [waits, mapping = std::move(mapping), receiver = std::move(receiver)]() mutable {
      if (waits) wait_for_current_stream(mapping->device());
      mapping = nullptr;
      receiver = nullptr;
    };
    end_now_or_later(process_driver(), std::move(end));
  } catch (...) {
    // No driver, as in a forked child, or no host memory: nothing is waited for.
  }
}

IpcMemory::IpcMemory(IpcMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      share_(std::move(other.share_)) {}

IpcMemory::~IpcMemory() = default;

IpcMemory& IpcMemory::operator=(const IpcMemory& other) {
  IpcMemory copy(other);
  return *this = std::move(copy);
}

IpcMemory& IpcMemory::operator=(IpcMemory&& other) noexcept {
  IpcMemory taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  share_.swap(taken.share_);
  return *this;  // what it was ends here
}

Device IpcMemory::device() const noexcept { return share_ == nullptr ? Device() : Device(share_->mapping->device()); }

void IpcMemory::release() {
  if (share_ != nullptr) release(current_stream(device()));
}

void IpcMemory::release(const Stream& stream) {
  if (share_ == nullptr) return;
  if (share_->receiver != nullptr) {
    stream.synchronize();
    if (share_.use_count() == 1) share_->waited = true;
  }
  share_.reset();
  data_ = nullptr;
  size_ = 0;
}

}  // namespace cistern
