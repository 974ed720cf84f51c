// Several pieces of physical memory of another process, mapped side by side.

#include <cistern/error.h>
#include <cistern/ipc.h>
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/ipc_mapping.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

// As much address space as the pieces need, and what of them is mapped. Never throws when it ends,
// see IpcMapping.
class RangeMapping final : public IpcMapping {
 public:
  RangeMapping(const DriverApi& api, CUdeviceptr address, std::size_t bytes, std::size_t piece, int device) noexcept
      : IpcMapping(address, device), api_(api), bytes_(bytes), piece_(piece) {}
  ~RangeMapping() override {
    for (std::size_t at = 0; at < mapped_; at += piece_) static_cast<void>(api_.mem_unmap(address() + at, piece_));
    static_cast<void>(api_.mem_address_free(address(), bytes_));
  }
  RangeMapping(const RangeMapping&) = delete;
  RangeMapping& operator=(const RangeMapping&) = delete;

  // Maps the next piece, and lets go of the handle: the mapping keeps the memory.
  void add(int descriptor) {
    const auto object = [&] { return fmt::format("import_range of descriptor {} of {} bytes", descriptor, piece_); };
    CUmemGenericAllocationHandle handle = 0;
    const CUresult imported =
        api_.mem_import_from_shareable_handle(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (imported == CUDA_ERROR_INVALID_VALUE || imported == CUDA_ERROR_INVALID_HANDLE)
      throw InvalidArgument(fmt::format("import_range of descriptor {}: expected one that export_range made ({})",
                                        descriptor, driver_words(api_, imported)));
    check_driver(api_, imported, DriverEntryId::mem_import_from_shareable_handle, object);
    const CUresult mapped = api_.mem_map(address() + mapped_, piece_, 0, handle, 0);
    static_cast<void>(api_.mem_release(handle));
    check_size(api_, mapped, DriverEntryId::mem_map, object);
    mapped_ += piece_;
  }

  void open() const {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = process_contexts().driver_device(device());
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check_driver(api_, api_.mem_set_access(address(), bytes_, &access, 1), DriverEntryId::mem_set_access,
                 [this] { return fmt::format("{} bytes of another process", bytes_); });
  }

 private:
  const DriverApi& api_;
  std::size_t bytes_;
  std::size_t piece_;
  std::size_t mapped_ = 0;
};

}  // namespace

IpcMemory import_range(const SharedRange& range, Device device) {
  const std::size_t pieces = range.descriptors.size();
  const std::size_t all = pieces * range.piece_bytes;
  const bool overflows = pieces == 0 || range.piece_bytes > std::numeric_limits<std::size_t>::max() / pieces;
  if (overflows || range.bytes == 0 || range.offset >= range.piece_bytes || range.bytes > all - range.offset)
    throw InvalidArgument(
        fmt::format("import_range of {} bytes at {} in {} pieces of {} bytes: expected what export_range told",
                    range.bytes, range.offset, pieces, range.piece_bytes));
  const int index = resolve_device(device);
  const DeviceScope scope(nullptr, index);
  const DriverApi& api = scope.api();
  if (!api.mem_import_from_shareable_handle || !api.mem_address_reserve || !api.mem_map || !api.mem_set_access)
    throw NotSupported("import_range: the driver has no virtual memory calls that share memory");
  CUdeviceptr address = 0;
  check_size(api, api.mem_address_reserve(&address, all, 0, 0, 0), DriverEntryId::mem_address_reserve,
             [&] { return fmt::format("import_range of {} pieces of {} bytes", pieces, range.piece_bytes); });
  const auto mapping = std::make_shared<RangeMapping>(api, address, all, range.piece_bytes, index);
  for (const FileDescriptor& descriptor : range.descriptors) mapping->add(descriptor.get());
  mapping->open();
  return IpcMemoryAccess::make(address + range.offset, range.bytes, mapping, nullptr);
}

}  // namespace cistern
