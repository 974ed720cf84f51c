#pragma once

// Memory and events of one process in the hands of others.
//
// Two forms of memory. A MemoryHandle is bytes, sent in any way, and names memory of cuMemAlloc;
// the process that exports it must live when it is opened, and must not free the memory while it
// is open elsewhere (send_memory sees to that for blocks of the allocator). A file descriptor
// names physical memory of the virtual-memory calls, travels over a Unix socket, and keeps the
// memory alive by itself. Both are for processes of one machine and one user; see docs/ipc.md.
// The processes must be started separately: no driver works in a forked child.
//
// Thread safety: the functions may be called from any thread at any time; the objects are values.
// Units: bytes. Errors: InvalidArgument names what was given and what was expected; NotSupported
// where the driver or the memory cannot be shared; DriverError. A call that throws changed nothing.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace cistern {

using DeviceUuid = std::array<std::uint8_t, 16>;
// CUipcMemHandle and CUipcEventHandle: the driver's own bytes, which nobody else reads.
using DriverIpcHandle = std::array<std::uint8_t, 64>;

// Names an address in another process's device memory. Bytes that can be copied and sent.
class CISTERN_EXPORT MemoryHandle {
 public:
  static constexpr std::size_t kSize = 148;
  using Bytes = std::array<std::uint8_t, kSize>;

  // Where a receiver of a block that was sent (send_memory) finds the sender's count of receivers.
  struct Sender {
    std::uint32_t process = 0;  // 0: the memory was not sent, only named
    std::uint32_t slot = 0;
    std::uint32_t descriptor = 0;  // of the shared memory, and its inode
    std::uint64_t inode = 0;
    std::uint64_t started = 0;
    std::uint64_t serial = 0;
    [[nodiscard]] bool operator==(const Sender& other) const noexcept;
  };
  struct Parts {
    DriverIpcHandle driver{};      // of the whole allocation that the address is in
    DeviceUuid device{};           // whose memory it is
    std::uint64_t allocation = 0;  // the bytes of that allocation
    std::uint64_t offset = 0;      // of the address in it
    std::uint64_t bytes = 0;       // from the address on
    Sender sender{};
  };

  // Throws InvalidArgument if the offset and the bytes do not lie in the allocation.
  explicit MemoryHandle(const Parts& parts);
  // Throws InvalidArgument unless `data` holds kSize bytes that to_bytes gave.
  [[nodiscard]] static MemoryHandle from_bytes(const void* data, std::size_t size);
  // The same on every machine: numbers are little-endian, after a mark and a version.
  [[nodiscard]] Bytes to_bytes() const noexcept;

  [[nodiscard]] const Parts& parts() const noexcept { return parts_; }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(parts_.bytes); }
  [[nodiscard]] bool operator==(const MemoryHandle& other) const noexcept;
  [[nodiscard]] bool operator!=(const MemoryHandle& other) const noexcept { return !(*this == other); }

 private:
  Parts parts_;
};

// Names an event of another process: see Event::ipc_handle and Event::from_ipc_handle.
class CISTERN_EXPORT EventHandle {
 public:
  static constexpr std::size_t kSize = 88;
  using Bytes = std::array<std::uint8_t, kSize>;

  EventHandle(const DriverIpcHandle& driver, const DeviceUuid& device) noexcept : driver_(driver), device_(device) {}
  // Throws InvalidArgument unless `data` holds kSize bytes that to_bytes gave.
  [[nodiscard]] static EventHandle from_bytes(const void* data, std::size_t size);
  [[nodiscard]] Bytes to_bytes() const noexcept;

  [[nodiscard]] const DriverIpcHandle& driver() const noexcept { return driver_; }
  [[nodiscard]] const DeviceUuid& device() const noexcept { return device_; }
  [[nodiscard]] bool operator==(const EventHandle& other) const noexcept {
    return driver_ == other.driver_ && device_ == other.device_;
  }
  [[nodiscard]] bool operator!=(const EventHandle& other) const noexcept { return !(*this == other); }

 private:
  DriverIpcHandle driver_;
  DeviceUuid device_;
};

// A handle to the device memory at `pointer`, from there to the end of its allocation. Names the
// memory and does not keep it: the caller keeps the allocation until all receivers are done.
// Throws InvalidArgument for null and for what is no device memory; NotSupported for memory that
// the driver cannot name so (mapped physical memory, say: see export_fd).
[[nodiscard]] CISTERN_EXPORT MemoryHandle ipc_handle(const void* pointer);

// Memory of another process, mapped here: a share of a mapping that ends with its last share.
// A process opens an allocation once for each device, however many handles name parts of it.
class CISTERN_EXPORT IpcMemory {
 public:
  IpcMemory() noexcept = default;
  // Lets go as release() does; never throws, an error is ignored. Inside a host function, where
  // no driver call is allowed, the last share lets go later: at the next call outside of one that opens
  // memory, makes a stream or an event, or synchronises.
  ~IpcMemory();
  IpcMemory(const IpcMemory&) = default;
  // One that was moved from is empty.
  IpcMemory(IpcMemory&& other) noexcept;
  IpcMemory& operator=(const IpcMemory& other);
  IpcMemory& operator=(IpcMemory&& other) noexcept;

  [[nodiscard]] void* data() const noexcept { return data_; }  // null: empty
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
  // Where it is mapped; "the current device" if it is empty.
  [[nodiscard]] Device device() const noexcept;
  // Gives this share back; the object is empty. The last share of what was sent to this process
  // first waits, blocking the host, until all work of `stream` is done (of the device's current
  // stream without one), then tells the sender; the last share of all unmaps the memory.
  void release();
  void release(const Stream& stream);

 private:
  friend struct IpcMemoryAccess;
  struct Share;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<Share> share_;
};

// Maps the memory that `handle` names, for work of `device`: by default the device that the
// memory is on, found by its UUID. Another device needs to be able to reach that one; access
// between the two is enabled then. Throws InvalidArgument if the handle is of this very process
// (use the pointer), names a device that this process does not see, or if all receivers that
// the sender counts on have opened it already; DriverError if the exporter is gone.
[[nodiscard]] CISTERN_EXPORT IpcMemory open_ipc(const MemoryHandle& handle, Device device = {});

// An open file descriptor, closed with its object.
class CISTERN_EXPORT FileDescriptor {
 public:
  FileDescriptor() noexcept = default;
  explicit FileDescriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return descriptor_; }  // -1: none
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  // Gives it up unclosed.
  [[nodiscard]] int release() noexcept;
  void reset() noexcept;

 private:
  int descriptor_ = -1;
};

// A descriptor of the physical memory that is mapped at `pointer`. It keeps the memory, also
// after this process has ended. Throws InvalidArgument for what is not mapped physical memory;
// NotSupported if that was not created to be shared as a file descriptor.
[[nodiscard]] CISTERN_EXPORT FileDescriptor export_fd(const void* pointer);
// Maps the memory that `descriptor` names for work of `device`, readable and writable, until the
// last share is released. `bytes` is its whole size, which the sender tells: the driver does not,
// and refuses another (InvalidArgument). The descriptor stays the caller's and is needed no more.
[[nodiscard]] CISTERN_EXPORT IpcMemory import_fd(int descriptor, std::size_t bytes, Device device = {});

// Sends a descriptor, with one byte, over a connected Unix socket; receives one so sent. Blocks
// as the socket does. Throws InvalidArgument naming the system call and its reason.
CISTERN_EXPORT void send_fd(int socket, int descriptor);
[[nodiscard]] CISTERN_EXPORT FileDescriptor receive_fd(int socket);

// --- Blocks of the allocator ------------------------------------------------------------

// A handle to the rest of a live block of the process-wide heap, to be opened by `receivers`
// processes: counted in shared memory, which they find by the handle. From now on the heap keeps
// the block until each of them has let go (IpcMemory::release) or has died, even if it is
// deallocated here meanwhile: then it is freed by ipc_collect, which a later send_memory does too.
// A block can be sent often. What the receivers read must have been written: share an Event, too.
// Throws InvalidArgument for an address that is not a live block's start, or no receivers;
// NotSupported for a block of an expandable segment (see export_range), of policy paged or async.
[[nodiscard]] CISTERN_EXPORT MemoryHandle send_memory(void* block, int receivers = 1);
// No process will open the handle any more: those of its receivers that have not are counted as
// done. For a message that could not be delivered. Throws InvalidArgument if it was not sent here.
CISTERN_EXPORT void recall_memory(const MemoryHandle& handle);

// A block whose memory is physical pieces of one size, mapped side by side. Each descriptor travels
// by itself (send_fd); the numbers travel as the sender likes.
struct SharedRange {
  std::vector<FileDescriptor> descriptors;  // of the pieces, by address
  std::size_t piece_bytes = 0;              // of each
  std::size_t offset = 0;                   // of the block in the first piece
  std::size_t bytes = 0;                    // of the block, as asked for
};
// A live block of the process-wide heap that lies in an expandable segment (expandable_segments:True).
// The descriptors keep the memory, with all that shares its pieces; they do not keep the block: it
// must not be deallocated before the receivers are done. Throws InvalidArgument for an address that
// is not a live block's start; NotSupported for a block that is elsewhere (see send_memory), and
// under pytorch_rules:2.4, whose expandable segments cannot be shared.
[[nodiscard]] CISTERN_EXPORT SharedRange export_range(void* block);
// Maps a block that export_range described, readable and writable, for work of `device`, until the
// last share is released. Takes as many addresses as the pieces have bytes. The descriptors stay the
// caller's and are needed no more. Throws InvalidArgument if numbers or descriptors are not such.
[[nodiscard]] CISTERN_EXPORT IpcMemory import_range(const SharedRange& range, Device device = {});

struct IpcCounts {
  std::size_t handles = 0;    // sent, with receivers that are not done
  std::size_t receivers = 0;  // that are to come, or hold the memory
  std::size_t blocks = 0;     // that are kept for them
  std::size_t waiting = 0;    // of these, blocks that were deallocated here
  std::size_t bytes = 0;      // of the waiting blocks
  bool has_file = false;      // whether the shared memory that counts exists
};
// As of the last ipc_collect, send_memory or recall_memory.
[[nodiscard]] CISTERN_EXPORT IpcCounts ipc_counts();
// Frees the blocks whose receivers are all done, and removes the shared memory that counts them when
// nothing is left. Returns what is left. Asks the system about each receiver; does not block. Not for a forked child.
CISTERN_EXPORT IpcCounts ipc_collect();

}  // namespace cistern

template <>
struct std::hash<cistern::MemoryHandle> {
  CISTERN_EXPORT std::size_t operator()(const cistern::MemoryHandle& handle) const noexcept;
};
template <>
struct std::hash<cistern::EventHandle> {
  CISTERN_EXPORT std::size_t operator()(const cistern::EventHandle& handle) const noexcept;
};
