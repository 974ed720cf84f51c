#pragma once

// DeviceHeaps: the heaps of all devices of one driver, and what they share. The free
// functions use one for the process, each CachingAllocator has its own.
//
// Thread safety: any member may be called from any thread.

#include <cistern/allocator.h>

#include "allocator/device_allocator.h"
#include "allocator/event_pools.h"
#include "allocator/fork_locks.h"
#include "allocator/heaps_link.h"
#include "allocator/host_heap.h"
#include "allocator/observers.h"
#include "allocator/out_of_memory_dump.h"
#include "allocator/own_streams.h"
#include "allocator/scopes.h"
#include "runtime/context.h"
#include "runtime/peer_access.h"
#include "stats/annotation_ring.h"

#include <atomic>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace cistern {

class DeviceHeaps final : private PeerListener, private SnapshotSource {
 public:
  // `contexts` must outlive the heaps. Throws InvalidArgument for options out of range.
  DeviceHeaps(Contexts& contexts, const AllocatorOptions& options);
  ~DeviceHeaps();
  DeviceHeaps(const DeviceHeaps&) = delete;
  DeviceHeaps& operator=(const DeviceHeaps&) = delete;

  [[nodiscard, gnu::always_inline]] void* allocate(std::size_t bytes, StreamIdentity stream, int device) {
    if (bytes == 0) return nullptr;
    if (DeviceAllocator* const heap = made_heap(device)) return heap->allocate(bytes, stream);
    void* const pointer = allocate_first(bytes, stream, device);
    keep_frame();
    return pointer;
  }
  // The same where a hit suffices; else null, with nothing done. Requires: bytes > 0.
  [[nodiscard]] void* allocate_at_hand(std::size_t bytes, StreamIdentity stream, int device) {
    DeviceAllocator* const heap = made_heap(device);
    return heap == nullptr ? nullptr : heap->allocate_at_hand(bytes, stream);
  }
  [[gnu::always_inline]] void deallocate(void* pointer) noexcept {
    if (pointer != nullptr && !try_deallocate(pointer)) [[unlikely]]
      say_nothing_was_freed(reinterpret_cast<std::uintptr_t>(pointer));
  }
  // The same, for who tells by itself that nothing was freed: false.
  [[nodiscard, gnu::always_inline]] bool try_deallocate(void* pointer) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    for (const auto& slot : heaps_) {
      DeviceAllocator* const heap = slot.load(std::memory_order_acquire);
      if (heap == nullptr || !heap->may_own(address)) continue;
      StreamHeap* const of_stream = heap->find_recent_by_page(address);
      if (of_stream == nullptr) continue;
      if (heap->let_stand(*of_stream, address)) return true;
      const bool is_freed = heap->free_beside_pairs(*of_stream, address);
      keep_frame();
      return is_freed;
    }
    const bool is_freed = deallocate_anywhere(address);
    keep_frame();
    return is_freed;
  }
  // Both with `last_use`, if that is not null, a stream that used the block too.
  void deallocate(void* pointer, const StreamUse* last_use) noexcept;
  [[nodiscard]] bool try_deallocate(void* pointer, const StreamUse* last_use) noexcept;
  // False: no live block begins there. The second throws as use_of does.
  bool record_stream(void* pointer, StreamUse use);
  bool record_stream(void* pointer, const Stream& stream);
  // The same for the block that the byte belongs to: see DeviceAllocator::record_use_around.
  void record_stream_around(const void* pointer, StreamUse use);
  // What a Stream means: its identity, device and owner. Throws InvalidArgument if it belongs
  // to another driver than these heaps, DriverError.
  [[nodiscard]] StreamUse use_of(const Stream& stream) const;
  // The same without the owner, for as long as the Stream lives.
  struct StreamOfDevice {
    StreamIdentity stream;
    int device = 0;
  };
  void require_ours(const Stream& stream) const {
    const DriverApi* driver = StreamAccess::driver(stream);
    // The legacy default stream needs no driver to be known: it is that of any.
    const bool is_ours =
        driver == nullptr ? is_of_process_ || stream.native_handle() == nullptr : driver == &contexts_.api();
    if (!is_ours) [[unlikely]]
      refuse(stream);
  }
  [[nodiscard]] StreamOfDevice request_of(const Stream& stream) const {
    require_ours(stream);
    StreamOfDevice request;
    const bool is_known = StreamAccess::identify_if_known(stream, &request.stream);
    request.device = StreamAccess::device(stream);
    if (!is_known) [[unlikely]]
      request.stream = own_stream(request.device);
    return request;
  }
  // What a driver's handle means: a default stream is that of `device` (and, if it is the
  // per-thread one, of the calling thread), another has a device of its own. Throws DriverError, and InvalidArgument
  // for a device that there is not.
  [[nodiscard]] StreamUse use_of(StreamHandle stream, int device);
  // See cistern::register_stream.
  void register_stream(const StreamUse& use) noexcept {
    const CUstream handle = use.stream.handle;
    if (!is_legacy(handle) && handle != per_thread_handle()) contexts_.known_streams().add(use.stream, use.device);
  }
  // The stream is about to be destroyed: see cistern::release_stream.
  void end_stream(const StreamUse& use) noexcept {
    if (DeviceAllocator* heap = heaps_[static_cast<std::size_t>(use.device)].load(std::memory_order_acquire))
      heap->end_stream(use);
    contexts_.known_streams().remove(use.stream.handle);
  }
  // What is live at `pointer`; nothing if no live block begins there.
  using LiveBlock = StreamHits::LiveBlock;
  [[nodiscard]] std::optional<LiveBlock> look_at(void* pointer) const noexcept;
  // The last resort of a free whose stream cannot be identified: waits for every device, then
  // frees. If that fails too, the block stays allocated, and standard error says so.
  void deallocate_after_waiting(void* pointer) noexcept;

  // Calls try_heap(heap) for each heap that may own `address`, until one returns true. False
  // if none did.
  template <class TryHeap>
  bool find_owner(std::uint64_t address, TryHeap&& try_heap) const {
    for (const auto& slot : heaps_) {
      DeviceAllocator* heap = slot.load(std::memory_order_acquire);
      if (heap != nullptr && heap->may_own(address) && try_heap(*heap)) return true;
    }
    return false;
  }

  // The heap of a device, made at first use. Throws InvalidArgument, DriverError. On the path of every request, where
  // a call costs as much as what it does.
  [[nodiscard, gnu::always_inline]] DeviceAllocator& heap(int device) {
    DeviceAllocator* const heap = made_heap(device);
    return heap != nullptr ? *heap : make_heap(device);
  }
  // The same, or nullptr where nothing was allocated yet.
  [[nodiscard]] DeviceAllocator* existing(int device) const;
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& slot : heaps_)
      if (DeviceAllocator* heap = slot.load(std::memory_order_acquire)) visit(*heap);
  }

  // What a filter means on a device for the calling thread. Throws as use_of does.
  [[nodiscard]] RecordingFilter resolve(const PoolFilter& filter, int device);
  // A MemPool's last copy, and a guard's end. Never throw: what cannot be done any more was the driver's.
  void end_pool(int device, PoolId id) noexcept {
    if (DeviceAllocator* heap = heaps_[static_cast<std::size_t>(device)].load(std::memory_order_acquire))
      heap->end_pool(id);
  }
  void leave_pool(int device, PoolId id, std::uint64_t guard) noexcept {
    if (DeviceAllocator* heap = heaps_[static_cast<std::size_t>(device)].load(std::memory_order_acquire))
      heap->leave_pool(id, guard);
  }
  // The calling thread's current device, if these are over the process's driver; else the first.
  [[nodiscard]] const DriverApi& api() const noexcept { return contexts_.api(); }
  [[nodiscard]] int current_device() const { return is_of_process_ ? cistern::current_device().index() : 0; }
  using Link = HeapsLink;
  [[nodiscard]] const std::shared_ptr<Link>& link() const noexcept { return link_; }

  // Throws NotSupported if the text changes the policy after something was allocated; DriverError,
  // std::bad_alloc. Then nothing is changed, on any device.
  void set_options(std::string_view text);
  [[nodiscard]] AllocatorOptions options() const;
  // The options in force as text, and each device's memory fraction where it was set.
  [[nodiscard]] std::string describe_options() const;
  [[nodiscard]] Observers& observers() { return observers_; }
  // Page-locked host memory, and managed: of all devices, which share it.
  [[nodiscard]] HostHeap& host() noexcept { return host_; }
  [[nodiscard]] const HostHeap& host() const noexcept { return host_; }
  [[nodiscard]] HostHeap& managed() noexcept { return managed_; }
  [[nodiscard]] const HostHeap& managed() const noexcept { return managed_; }

  // `pools`: see DeviceAllocator::stats.
  [[nodiscard]] MemoryStats stats(int device, ReservedByPrivatePool* pools = nullptr) const;
  [[nodiscard]] std::string summary(int device, bool abbreviated) const;
  [[nodiscard]] std::string report(int device);
  [[nodiscard]] Snapshot snapshot() const;
  // See stats.h; of a device without a heap, what such a device has. Throw InvalidArgument.
  [[nodiscard]] std::vector<TagStats> tag_stats(int device) const;
  [[nodiscard]] std::vector<StreamStats> stream_stats(int device) const;
  [[nodiscard]] std::vector<HandOverStats> hand_over_stats(int device) const;
  [[nodiscard]] std::optional<PendingFree> oldest_pending_free(int device) const;
  [[nodiscard]] FragmentationStats fragmentation(std::size_t request_bytes, int device) const;

  // Opens a scope of one device, which gets a heap, or of all with -1: those that have none get
  // the scope with their heap. Throws as heap() does. It must not move before it is closed, by
  // this or by the end of these heaps.
  void open(HeapScopes& scopes, int device);
  void close(HeapScopes& scopes) noexcept;
  [[nodiscard]] bool is_open(const HeapScopes& scopes) const noexcept;
  [[nodiscard]] MemoryStats scope_stats(const HeapScopes& scopes, int device) const noexcept;
  [[nodiscard]] int device_count() const { return static_cast<int>(heaps_.size()); }
  // Of a device without a heap.
  [[nodiscard]] MemoryStats unused_stats() const;
  // Throws InvalidArgument, std::bad_alloc: then nothing is changed.
  void record_history(const HistoryOptions& options);
  [[nodiscard]] HistoryOptions history_options() const;
  [[nodiscard]] HistoryInfo history_info(int device) const;
  // Throws std::bad_alloc: then nothing is changed, on any device.
  void set_user_metadata(std::string_view text);
  [[nodiscard]] std::string user_metadata() const;
  void annotate(void* pointer, std::string_view text);
  void mark_range(std::string_view name, bool is_start, int device);

  // Around fork: no heap's lock may be held by a thread that the child does not have.
  void lock_for_fork();
  void unlock_after_fork();

 private:
  // The calling thread's own default stream. Throws DriverError.
  [[nodiscard, gnu::noinline]] StreamIdentity own_stream(int device) const;
  // Tells of the use that a free names. False: its stream cannot be told without the heap's lock.
  [[nodiscard]] bool note_last_use(std::uint64_t address, const StreamUse& use) noexcept;
  [[nodiscard, gnu::always_inline]] DeviceAllocator* made_heap(int device) const noexcept {
    const auto place = static_cast<std::size_t>(device);
    return place < heaps_.size() ? heaps_[place].load(std::memory_order_acquire) : nullptr;
  }
  [[nodiscard, gnu::noinline]] void* allocate_first(std::size_t bytes, StreamIdentity stream, int device);
  [[gnu::noinline]] bool deallocate_anywhere(std::uint64_t address) noexcept;
  [[nodiscard]] DeviceAllocator& make_heap(int device);
  [[noreturn, gnu::cold]] static void refuse(const Stream& stream);
  // A capture of any thread that a pool of any device is begun for.
  [[nodiscard]] bool knows_capture() const;
  void warn_of_fixed_segments(Policy policy, int device);
  // In two steps, of which only the first may fail. Require: mutex_.
  struct HistoryChange {
    DeviceAllocator* heap = nullptr;
    HistoryOptions options;
    HistoryRing ring;
  };
  [[nodiscard]] std::vector<HistoryChange> prepare_history(const HistoryOptions& options);
  void apply(std::vector<HistoryChange>& changes, HistoryOptions&& options) noexcept;
  void peer_enabled(int from, int to) override;
  [[nodiscard]] static HostSourceOptions host_source_of(const AllocatorOptions& options);
  [[nodiscard]] static AllocatorSettings settings_of(const AllocatorOptions& options);
  void tell_policy_in_force(AllocatorSettings& settings, bool heaps_are_locked) const;
  [[nodiscard]] static MemoryStats unused_stats_of(const AllocatorOptions& options);
  // streamed_snapshot.cpp
  [[nodiscard]] Written write_snapshot(int descriptor, int* error) noexcept override;
  void stream_snapshot(std::ostream& out) noexcept;
  void stream_heaps(JsonWriter& json);

  Contexts& contexts_;
  const bool is_of_process_;  // over the process's own driver, whose streams name none
  EventPools event_pools_;
  HostHeap host_;
  HostHeap managed_;
  Observers observers_;
  mutable std::mutex mutex_;  // guards the options, the making of heaps and the open scopes
  AllocatorOptions options_;
  AllocatorSettings settings_;  // the options as a snapshot has them, with those of the history
  HistoryOptions history_options_ = HistoryOptions::always_on();
  SharedText user_metadata_;
  AnnotationRing annotations_{kDefaultHistoryEntries};
  std::vector<HeapScopes*> scopes_;
  bool warned_of_fixed_segments_ = false;
  std::vector<std::atomic<DeviceAllocator*>> heaps_;
  std::shared_ptr<Link> link_ = std::make_shared<Link>();
  ForkLocks fork_locks_{*this};  // once all the rest is there
};

}  // namespace cistern
