#include <cistern/error.h>
#include <cistern/ipc.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "integrations/c_api/status.h"
#include "integrations/c_api/versioned.h"

using cistern::IpcMemory;
using cistern::MemoryHandle;
using cistern::SharedRange;
using cistern::c_api::guarded;
using cistern::c_api::read_struct;
using cistern::c_api::require;
using cistern::c_api::require_count;
using cistern::c_api::require_given;
using cistern::c_api::require_struct;
using cistern::c_api::stream_of;
using cistern::c_api::write_struct;

struct cistern_ipc_memory {
  IpcMemory memory;
};

namespace {

static_assert(MemoryHandle::kSize == CISTERN_MEMORY_HANDLE_BYTES);

void require_room_for_handle(const void* handle, std::size_t bytes) {
  require(handle, "handle");
  if (bytes != MemoryHandle::kSize)
    throw cistern::InvalidArgument("room for a handle of " + std::to_string(bytes) + " bytes: expected " +
                                   std::to_string(MemoryHandle::kSize));
}

void write_handle(const MemoryHandle& made, void* handle) {
  const MemoryHandle::Bytes bytes = made.to_bytes();
  std::memcpy(handle, bytes.data(), bytes.size());
}

// Opens before the place for it is written.
template <class Open>
cistern_status give(cistern_ipc_memory** memory, Open&& open) {
  return guarded([&] {
    require(memory, "memory");
    *memory = std::make_unique<cistern_ipc_memory>(cistern_ipc_memory{open()}).release();
  });
}

// Descriptors that stay their caller's.
struct BorrowedRange {
  BorrowedRange() = default;
  ~BorrowedRange() {
    for (cistern::FileDescriptor& descriptor : range.descriptors) static_cast<void>(descriptor.release());
  }
  BorrowedRange(const BorrowedRange&) = delete;
  BorrowedRange& operator=(const BorrowedRange&) = delete;
  SharedRange range;
};

}  // namespace

cistern_status cistern_ipc_handle(const void* pointer, void* handle, size_t bytes) {
  return guarded([&] {
    require_room_for_handle(handle, bytes);
    write_handle(cistern::ipc_handle(pointer), handle);
  });
}
cistern_status cistern_send_memory(void* block, int receivers, void* handle, size_t bytes) {
  return guarded([&] {
    require_room_for_handle(handle, bytes);
    write_handle(cistern::send_memory(block, receivers), handle);
  });
}
cistern_status cistern_recall_memory(const void* handle, size_t bytes) {
  return guarded([&] { cistern::recall_memory(MemoryHandle::from_bytes(handle, bytes)); });
}
cistern_status cistern_get_ipc_counts(cistern_ipc_counts* counts) {
  return guarded([&] {
    require_struct(counts, "counts");
    const cistern::IpcCounts made = cistern::ipc_counts();
    write_struct(counts, {sizeof(cistern_ipc_counts), made.handles, made.receivers, made.blocks, made.waiting,
                          made.bytes, made.has_file ? 1 : 0});
  });
}

cistern_status cistern_open_ipc(const void* handle, size_t bytes, int device, cistern_ipc_memory** memory) {
  return give(memory, [&] { return cistern::open_ipc(MemoryHandle::from_bytes(handle, bytes), device); });
}
void* cistern_ipc_memory_data(const cistern_ipc_memory* memory) { return memory->memory.data(); }
size_t cistern_ipc_memory_size(const cistern_ipc_memory* memory) { return memory->memory.size(); }
cistern_status cistern_ipc_memory_release(cistern_ipc_memory* memory, int device, cistern_stream stream) {
  return guarded([&] {
    require_given(memory, "memory");
    memory->memory.release(stream_of(device, stream));
    delete memory;
  });
}
void cistern_ipc_memory_destroy(cistern_ipc_memory* memory) { delete memory; }

cistern_status cistern_export_fd(const void* pointer, int* descriptor) {
  return guarded([&] {
    require(descriptor, "descriptor");
    *descriptor = cistern::export_fd(pointer).release();
  });
}
cistern_status cistern_import_fd(int descriptor, size_t bytes, int device, cistern_ipc_memory** memory) {
  return give(memory, [&] { return cistern::import_fd(descriptor, bytes, device); });
}

cistern_status cistern_export_range(void* block, int* descriptors, size_t room, cistern_shared_range* range) {
  return guarded([&] {
    require_struct(range, "range");
    if (room != 0) require(descriptors, "descriptors");
    SharedRange made = cistern::export_range(block);
    const std::size_t pieces = made.descriptors.size();
    if (pieces <= room)
      for (std::size_t i = 0; i < pieces; ++i) descriptors[i] = made.descriptors[i].release();
    write_struct(range, {sizeof(cistern_shared_range), pieces, made.piece_bytes, made.offset, made.bytes});
  });
}
cistern_status cistern_import_range(const int* descriptors, const cistern_shared_range* range, int device,
                                    cistern_ipc_memory** memory) {
  return give(memory, [&] {
    require_given(range, "range");
    const cistern_shared_range read = read_struct(range, "range");
    require_count(read.pieces, "pieces");
    if (read.pieces != 0) require_given(descriptors, "descriptors");
    BorrowedRange borrowed;
    borrowed.range.piece_bytes = read.piece_bytes;
    borrowed.range.offset = read.offset;
    borrowed.range.bytes = read.bytes;
    borrowed.range.descriptors.reserve(read.pieces);
    for (std::size_t i = 0; i < read.pieces; ++i) borrowed.range.descriptors.emplace_back(descriptors[i]);
    return cistern::import_range(borrowed.range, device);
  });
}
