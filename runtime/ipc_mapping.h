#pragma once

// Memory of other processes as this one has mapped it, and the places of receivers that it took.
//
// Thread safety: all functions may be called from any thread.

#include <cistern/error.h>
#include <cistern/ipc.h>
#include <cistern/stream.h>

#include "runtime/driver_api.h"
#include "runtime/driver_error.h"
#include "runtime/receiver_table.h"

#include <cstddef>
#include <memory>

namespace cistern {

// A mapping of the driver's; it ends with its last share. Never throws then: a refusal means that
// the driver or the context is gone.
class IpcMapping {
 public:
  virtual ~IpcMapping() = default;
  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }
  [[nodiscard]] int device() const noexcept { return device_; }

 protected:
  IpcMapping(CUdeviceptr address, int device) noexcept : address_(address), device_(device) {}

 private:
  CUdeviceptr address_;
  int device_;
};

// What the driver says to addresses for memory of another process, and to mapping it: it has no other word for a size
// that is not the memory's. Throws InvalidArgument for that, else as check_driver. `object()` is a text.
template <class Object>
void check_size(const DriverApi& api, CUresult result, DriverEntryId entry, Object&& object) {
  // A part of a handle is not supported, more than it has is invalid.
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED)
    throw InvalidArgument(object() + ": expected the whole size of what was exported (" + driver_words(api, result) +
                          ")");
  check_driver(api, result, entry, object);
}

// One of the receivers that a sender counts; it leaves when it ends.
class Receiver {
 public:
  Receiver(std::shared_ptr<ReceiverTable> table, const MemoryHandle::Sender& sender, int place) noexcept
      : table_(std::move(table)), sender_(sender), place_(place) {}
  ~Receiver() { table_->leave(sender_, place_); }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

 private:
  std::shared_ptr<ReceiverTable> table_;
  MemoryHandle::Sender sender_;
  int place_;
};

// What an IpcMemory is a share of: the members end last first, so the sender hears after the
// memory is unmapped.
struct IpcMemory::Share {
  std::shared_ptr<Receiver> receiver;  // null: nobody counts
  std::shared_ptr<IpcMapping> mapping;
  bool waited = false;  // for the work that used the memory

  ~Share();
};

struct IpcMemoryAccess {
  static IpcMemory make(CUdeviceptr address, std::size_t bytes, std::shared_ptr<IpcMapping> mapping,
                        std::shared_ptr<Receiver> receiver);
};

}  // namespace cistern
