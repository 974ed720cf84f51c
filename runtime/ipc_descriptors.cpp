// Physical memory as file descriptors, and their way through a Unix socket.

#include <cistern/error.h>
#include <cistern/ipc.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/ipc_mapping.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void require_entries(const DriverApi& api, const char* what) {
  if (api.mem_retain_allocation_handle && api.mem_export_to_shareable_handle && api.mem_import_from_shareable_handle &&
      api.mem_address_reserve && api.mem_map && api.mem_set_access)
    return;
  throw NotSupported(fmt::format("{}: the driver has no virtual memory calls that share memory", what));
}

// Physical memory that is held until the end of a scope; mappings keep it beyond that.
class HeldHandle {
 public:
  HeldHandle(const DriverApi& api, CUmemGenericAllocationHandle handle) noexcept : api_(api), handle_(handle) {}
  ~HeldHandle() { static_cast<void>(api_.mem_release(handle_)); }
  HeldHandle(const HeldHandle&) = delete;
  HeldHandle& operator=(const HeldHandle&) = delete;
  [[nodiscard]] CUmemGenericAllocationHandle get() const noexcept { return handle_; }

 private:
  const DriverApi& api_;
  CUmemGenericAllocationHandle handle_;
};

// Address space, and what is mapped there. Never throws when it ends, see IpcMapping.
class DescriptorMapping final : public IpcMapping {
 public:
  DescriptorMapping(const DriverApi& api, CUdeviceptr address, std::size_t bytes, int device) noexcept
      : IpcMapping(address, device), api_(api), bytes_(bytes) {}
  ~DescriptorMapping() override {
    if (mapped_) static_cast<void>(api_.mem_unmap(address(), bytes_));
    static_cast<void>(api_.mem_address_free(address(), bytes_));
  }
  DescriptorMapping(const DescriptorMapping&) = delete;
  DescriptorMapping& operator=(const DescriptorMapping&) = delete;

  void map(const HeldHandle& handle) {
    const auto object = [this] { return fmt::format("import_fd of {} bytes", bytes_); };
    check_size(api_, api_.mem_map(address(), bytes_, 0, handle.get(), 0), DriverEntryId::mem_map, object);
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = process_contexts().driver_device(device());
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check_driver(api_, api_.mem_set_access(address(), bytes_, &access, 1), DriverEntryId::mem_set_access, object);
  }

 private:
  const DriverApi& api_;
  std::size_t bytes_;
  bool mapped_ = false;
};

[[noreturn]] void refuse(const char* call, int socket) {
  throw InvalidArgument(fmt::format("{} on socket {}: {}; expected a connected Unix socket", call, socket,
                                    errno == 0 ? "no descriptor came with the message" : std::strerror(errno)));
}

// A message of one byte with room for one descriptor.
struct DescriptorMessage {
  DescriptorMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    descriptor_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() noexcept { return std::exchange(descriptor_, -1); }

void FileDescriptor::reset() noexcept {
  if (descriptor_ >= 0) ::close(release());
}

FileDescriptor export_fd(const void* pointer) {
  const DriverApi& api = process_driver();
  require_entries(api, "export_fd");
  CUmemGenericAllocationHandle retained = 0;
  const CUresult found = api.mem_retain_allocation_handle(&retained, const_cast<void*>(pointer));
  if (found == CUDA_ERROR_INVALID_VALUE || found == CUDA_ERROR_NOT_FOUND)
    throw InvalidArgument(fmt::format("export_fd of {}: expected an address of mapped physical memory", pointer));
  const auto object = [pointer] { return fmt::format("memory at {}", pointer); };
  check_driver(api, found, DriverEntryId::mem_retain_allocation_handle, object);
  const HeldHandle handle(api, retained);
  CUmemAllocationProp properties{};
  check_driver(api, api.mem_get_allocation_properties(&properties, handle.get()),
               DriverEntryId::mem_get_allocation_properties, object);
  if ((properties.requestedHandleTypes & kDescriptor) == 0)
    throw NotSupported(
        fmt::format("export_fd of {}: the memory was not created to be shared as a file descriptor", pointer));
  int descriptor = -1;
  check_driver(api, api.mem_export_to_shareable_handle(&descriptor, handle.get(), kDescriptor, 0),
               DriverEntryId::mem_export_to_shareable_handle, object);
  return FileDescriptor(descriptor);
}

IpcMemory import_fd(int descriptor, std::size_t bytes, Device device) {
  destroy_deferred();
  const int index = resolve_device(device);
  const DeviceScope scope(nullptr, index);
  const DriverApi& api = process_driver();
  require_entries(api, "import_fd");
  if (bytes == 0) throw InvalidArgument("import_fd of 0 bytes: expected the whole size of the memory");
  CUmemGenericAllocationHandle imported = 0;
  const CUresult result = api.mem_import_from_shareable_handle(
      &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)), kDescriptor);
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE)
    throw InvalidArgument(fmt::format("import_fd of descriptor {}: expected one that export_fd made ({})", descriptor,
                                      driver_words(api, result)));
  const auto object = [&] { return fmt::format("import_fd of descriptor {} of {} bytes", descriptor, bytes); };
  check_driver(api, result, DriverEntryId::mem_import_from_shareable_handle, object);
  const HeldHandle handle(api, imported);
  CUdeviceptr address = 0;
  check_size(api, api.mem_address_reserve(&address, bytes, 0, 0, 0), DriverEntryId::mem_address_reserve, object);
  const auto mapping = std::make_shared<DescriptorMapping>(api, address, bytes, index);
  mapping->map(handle);
  return IpcMemoryAccess::make(address, bytes, mapping, nullptr);
}

void send_fd(int socket, int descriptor) {
  DescriptorMessage message;
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message.header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != 1) refuse("sendmsg", socket);
}

FileDescriptor receive_fd(int socket) {
  DescriptorMessage message;
  ssize_t received = 0;
  do {
    errno = 0;
    received = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  const cmsghdr* control = received < 0 ? nullptr : CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
      control->cmsg_len != CMSG_LEN(sizeof(int)))
    refuse("recvmsg", socket);
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
  return FileDescriptor(descriptor);
}

}  // namespace cistern
