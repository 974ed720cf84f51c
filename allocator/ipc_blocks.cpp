// Blocks that were sent to other processes: kept until all their receivers are done.

#include <cistern/error.h>
#include <cistern/ipc.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "allocator/device_heaps.h"
#include "allocator/process_heap.h"
#include "runtime/receiver_table.h"

namespace cistern {
namespace {

struct Sent {
  std::uint32_t slot = 0;
  DeviceAllocator* heap = nullptr;
  std::uint64_t address = 0;
  std::size_t bytes = 0;
};

// What this process has sent. Heaps are asked without the lock where they may call the driver.
struct Sender {
  std::mutex mutex;
  std::shared_ptr<ReceiverTable> table;   // while anything is sent
  std::map<std::uint64_t, Sent> handles;  // by the serial number of their slots
  IpcCounts counts;
};
// Never destroyed: what is sent may outlive static objects.
Sender& sender() {
  static auto* all = new Sender;
  return *all;
}

// The heap that holds the block; its bytes in `bytes`. Null if it is no live block's start.
DeviceAllocator* hold(std::uint64_t address, std::size_t* bytes) {
  DeviceAllocator* owner = nullptr;
  process_heaps().find_owner(address, [&](DeviceAllocator& heap) {
    const auto held = heap.hold(address);
    if (!held) return false;
    *bytes = *held;
    owner = &heap;
    return true;
  });
  return owner;
}

// The pages of a live block; nothing if it is no live block's start.
std::optional<DeviceAllocator::BlockPages> pages_of(const void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  std::optional<DeviceAllocator::BlockPages> found;
  process_heaps().find_owner(address,
                             [&](DeviceAllocator& heap) { return (found = heap.pages_of(address)).has_value(); });
  return found;
}

// Takes away the handles whose receivers are all done. Requires: the lock.
std::vector<Sent> take_finished(Sender& all) {
  std::vector<Sent> finished;
  finished.reserve(all.handles.size());
  for (auto handle = all.handles.begin(); handle != all.handles.end();) {
    if (all.table->count_open(handle->second.slot) != 0) {
      ++handle;
      continue;
    }
    all.table->remove(handle->second.slot);
    finished.push_back(handle->second);
    handle = all.handles.erase(handle);
  }
  if (all.handles.empty()) all.table = nullptr;
  return finished;
}

// Requires: the lock.
void count(Sender& all) {
  IpcCounts counts;
  std::map<std::uint64_t, const Sent*> blocks;
  for (const auto& [serial, sent] : all.handles) {
    ++counts.handles;
    counts.receivers += static_cast<std::size_t>(all.table->count_open(sent.slot));
    blocks.emplace(sent.address, &sent);
  }
  counts.blocks = blocks.size();
  for (const auto& [address, sent] : blocks) {
    if (!sent->heap->is_freed_while_held(address)) continue;
    ++counts.waiting;
    counts.bytes += sent->bytes;
  }
  counts.has_file = all.table != nullptr;
  all.counts = counts;
}

// What has no handle of either form is shared from a MemPool, whose memory is of cuMemAlloc.
void require_shareable(const DeviceAllocator::BlockPages& pages, const char* call, const void* block) {
  if (pages.is_stream_ordered)
    throw NotSupported(fmt::format(
        "{} of {}: policy async has it from a pool of the driver's, whose memory has no handle here: allocate from a "
        "MemPool what is sent, or choose another policy in the process that sends",
        call, block));
  if (pages.is_paged)
    throw NotSupported(fmt::format(
        "{} of {}: it lies in paged memory, whose handles serve other blocks as well: allocate from a MemPool what is "
        "sent, or choose another policy in the process that sends",
        call, block));
}

}  // namespace

MemoryHandle send_memory(void* block, int receivers) {
  if (receivers < 1 || receivers > ReceiverTable::kReceivers)
    throw InvalidArgument(fmt::format("send_memory to {} receivers: expected 1 to {}; more by several handles",
                                      receivers, ReceiverTable::kReceivers));
  ipc_collect();
  if (const auto found = pages_of(block)) {
    if (found->pages.bytes != 0)
      throw NotSupported(fmt::format(
          "send_memory of {}: it lies in an expandable segment, which no handle names: send the descriptors of "
          "export_range, or set expandable_segments:False in the process that sends",
          block));
    require_shareable(*found, "send_memory", block);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  std::size_t bytes = 0;
  DeviceAllocator* heap = hold(address, &bytes);
  if (heap == nullptr)
    throw InvalidArgument(fmt::format("send_memory of {}: expected the start of a live block", block));
  try {
    MemoryHandle::Parts parts = ipc_handle(block).parts();
    parts.bytes = bytes;
    Sender& all = sender();
    const std::lock_guard lock(all.mutex);
    if (all.table == nullptr) all.table = ReceiverTable::create();
    parts.sender = all.table->add(receivers);
    if (parts.sender.slot == ReceiverTable::kSlots)
      throw NotSupported(fmt::format("send_memory of {}: {} handles wait for their receivers already, as many as can",
                                     block, ReceiverTable::kSlots));
    all.handles[parts.sender.serial] = {parts.sender.slot, heap, address, bytes};
    count(all);
    return MemoryHandle(parts);
  } catch (...) {
    heap->let_go(address);
    throw;
  }
}

SharedRange export_range(void* block) {
  const auto found = pages_of(block);
  if (!found) throw InvalidArgument(fmt::format("export_range of {}: expected the start of a live block", block));
  require_shareable(*found, "export_range", block);
  if (found->pages.bytes == 0)
    throw NotSupported(
        fmt::format("export_range of {}: it lies in no expandable segment: send_memory shares it", block));
  if (!found->shareable)
    throw NotSupported(
        fmt::format("export_range of {}: expandable segments cannot be shared under pytorch_rules:2.4: set "
                    "expandable_segments:False in the process that sends, or pytorch_rules:current",
                    block));
  SharedRange range;
  range.piece_bytes = found->pages.page_bytes;
  range.offset = found->offset;
  range.bytes = found->bytes;
  for (std::size_t at = 0; at < found->pages.bytes; at += range.piece_bytes)
    range.descriptors.push_back(export_fd(reinterpret_cast<const void*>(found->pages.address + at)));
  return range;
}

void recall_memory(const MemoryHandle& handle) {
  Sender& all = sender();
  {
    const std::lock_guard lock(all.mutex);
    const auto sent = all.handles.find(handle.parts().sender.serial);
    const auto self = this_process();
    if (handle.parts().sender.process != self.id || handle.parts().sender.started != self.started ||
        sent == all.handles.end())
      throw InvalidArgument("recall_memory: expected a handle that send_memory gave, with receivers that are not done");
    all.table->recall(sent->second.slot);
  }
  ipc_collect();
}

IpcCounts ipc_counts() {
  Sender& all = sender();
  const std::lock_guard lock(all.mutex);
  return all.counts;
}

IpcCounts ipc_collect() {
  if (in_forked_child()) refuse_after_fork();  // the shared memory that counts is the parent's
  Sender& all = sender();
  std::vector<Sent> finished;
  {
    const std::lock_guard lock(all.mutex);
    finished = take_finished(all);
  }
  for (const Sent& sent : finished) sent.heap->let_go(sent.address);
  const std::lock_guard lock(all.mutex);
  count(all);
  return all.counts;
}

}  // namespace cistern
