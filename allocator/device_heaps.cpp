#include "allocator/device_heaps.h"

#include "allocator/options_keys.h"
#include "allocator/pool_filter.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "stats/tags.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace cistern {

DeviceHeaps::DeviceHeaps(Contexts& contexts, const AllocatorOptions& options)
    : contexts_(contexts),
      is_of_process_(process_driver_loaded() && &contexts.api() == &process_driver()),
      event_pools_(contexts.api(), contexts.device_count()),
      host_(contexts, event_pools_, HostMemoryKind::pinned, [this] { return knows_capture(); }),
      managed_(contexts, event_pools_, HostMemoryKind::managed, [this] { return knows_capture(); }),
      options_(options),
      settings_(settings_of(options)),
      heaps_(static_cast<std::size_t>(contexts.device_count())) {
  require_valid(options_);
  record_history(options_.history);
  host_.set_source(host_source_of(options_));
  static_cast<void>(tag_registry());  // made while there is host memory: a dump asks for it when there may be none
  link_->heaps = this;
  if (is_of_process_) add_peer_listener(*this);
}

DeviceHeaps::~DeviceHeaps() {
  fork_locks_.end();
  if (is_of_process_) remove_peer_listener(*this);
  {
    const std::lock_guard lock(link_->end);
    link_->heaps = nullptr;
  }
  for (HeapScopes* scopes : scopes_) scopes->close();
  for (auto& slot : heaps_) delete slot.load(std::memory_order_acquire);
}

bool DeviceHeaps::knows_capture() const {
  bool known = false;
  for_each([&](const DeviceAllocator& heap) { known = known || heap.knows_capture(); });
  return known;
}

DeviceAllocator* DeviceHeaps::existing(int device) const {
  contexts_.require(device);
  return heaps_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
}

DeviceAllocator& DeviceHeaps::make_heap(int device) {
  contexts_.require(device);
  const std::lock_guard lock(mutex_);
  auto& slot = heaps_[static_cast<std::size_t>(device)];
  if (slot.load(std::memory_order_acquire) == nullptr) {
    const HeapSurroundings surroundings{contexts_, event_pools_, observers_, *this};
    auto made = std::make_unique<DeviceAllocator>(surroundings, device, options_, history_options_);
    made->use_history_text(made->prepare_history_text(user_metadata_));
    for (HeapScopes* scopes : scopes_)
      if (scopes->is_of(device)) scopes->open(*made);
    if (!made->can_serve(options_)) warn_of_fixed_segments(options_.policy, device);
    if (is_of_process_)
      for (const int peer : peers_of(device)) made->allow_peer(contexts_.driver_device(peer));
    slot.store(made.release(), std::memory_order_release);
  }
  return *slot.load(std::memory_order_acquire);
}

void* DeviceHeaps::allocate_first(std::size_t bytes, StreamIdentity stream, int device) {
  return make_heap(device).allocate(bytes, stream);
}

bool DeviceHeaps::deallocate_anywhere(std::uint64_t address) noexcept {
  bool is_freed = false;
  const bool is_known = find_owner(address, [&](DeviceAllocator& heap) {
    StreamHeap* const of_stream = heap.find_by_page(address);
    if (of_stream != nullptr)
      is_freed = heap.let_stand(*of_stream, address) || heap.free_beside_pairs(*of_stream, address);
    return of_stream != nullptr;
  });
  return is_known ? is_freed : try_deallocate(reinterpret_cast<void*>(address), nullptr);
}

void DeviceHeaps::deallocate(void* pointer, const StreamUse* last_use) noexcept {
  if (pointer != nullptr && !try_deallocate(pointer, last_use))
    say_nothing_was_freed(reinterpret_cast<std::uintptr_t>(pointer));
}

bool DeviceHeaps::note_last_use(std::uint64_t address, const StreamUse& use) noexcept {
  try {
    StreamUse noted = use;
    return find_owner(address, [&](DeviceAllocator& heap) { return heap.record_use_by_stream(address, noted); });
  } catch (...) {  // no host memory: the free waits for the stream, if need be
    return false;
  }
}

bool DeviceHeaps::try_deallocate(void* pointer, const StreamUse* last_use) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  // Both with no more than the lock of the block's stream. The event is recorded in this call, and not by the thread
  // that allocates there, as where nothing is named: the stream may be this thread's own, or be over after this.
  if (last_use != nullptr && note_last_use(address, *last_use)) {
    const bool is_freed = find_owner(address, [&](DeviceAllocator& heap) { return heap.free_of_another(address); });
    return is_freed || deallocate_anywhere(address);
  }
  if (find_owner(address, [&](DeviceAllocator& heap) { return heap.free(address, last_use); })) return true;
  contexts_.api().note_free(address, 0, nullptr);
  return false;
}

bool DeviceHeaps::record_stream(void* pointer, StreamUse use) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return find_owner(address, [&](DeviceAllocator& heap) { return heap.record_use(address, use); });
}

bool DeviceHeaps::record_stream(void* pointer, const Stream& stream) {
  const StreamOfDevice user = request_of(stream);
  const bool is_owned = StreamAccess::is_owned(stream);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const bool is_known = find_owner(address, [&](DeviceAllocator& heap) {
    StreamHeap* const of_page = heap.find_recent_by_page(address);
    return of_page != nullptr && heap.use_again(*of_page, address, user.stream, user.device, is_owned);
  });
  return is_known || record_stream(pointer, use_of(stream));
}

void DeviceHeaps::record_stream_around(const void* pointer, StreamUse use) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  find_owner(address, [&](DeviceAllocator& heap) { return heap.record_use_around(address, use); });
}

StreamUse DeviceHeaps::use_of(const Stream& stream) const {
  StreamUse use;
  const auto [identity, device] = request_of(stream);
  use.stream = identity;
  use.device = device;
  use.owner = StreamAccess::owner(stream);
  return use;
}

StreamIdentity DeviceHeaps::own_stream(int device) const {
  if (const StreamIdentity* const known = OwnStreams::find(*link_, device)) return *known;
  const DriverApi& api = contexts_.api();
  const ContextGuard guard(api, contexts_.primary(device));
  StreamIdentity stream;
  check_driver(api, identify_stream(api, per_thread_handle(), &stream), DriverEntryId::stream_get_id,
               [device] { return fmt::format("the thread's default stream on device {}", device); });
  OwnStreams::keep(link_, device, stream);
  return stream;
}

void DeviceHeaps::refuse(const Stream& stream) {
  throw InvalidArgument(fmt::format("{}: it belongs to another driver than the allocator", stream.to_string()));
}

StreamUse DeviceHeaps::use_of(StreamHandle stream, int device) {
  StreamUse use;
  use.device = device;
  if (stream == nullptr) {
    contexts_.require(device);
    return use;
  }
  if (stream == per_thread_handle()) {
    use.stream = own_stream(device);
    return use;
  }
  if (KnownStream known; contexts_.known_streams().find(stream, &known)) {
    use.stream = {stream, known.id};
    use.device = known.device;
    return use;
  }
  const DriverApi& api = contexts_.api();
  const auto identify = [&] { return fmt::format("stream {} on device {}", static_cast<void*>(stream), device); };
  const ContextGuard guard(api, contexts_.primary(device));
  check_driver(api, identify_stream(api, stream, &use.stream), DriverEntryId::stream_get_id, identify);
  if (use.stream.id == kLegacyStreamId) return use;
  CUcontext context = nullptr;
  check_driver(api, api.stream_get_ctx(stream, &context), DriverEntryId::stream_get_ctx, identify);
  use.device = contexts_.device_of(context);
  return use;
}

std::optional<DeviceHeaps::LiveBlock> DeviceHeaps::look_at(void* pointer) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::optional<LiveBlock> found;
  find_owner(address, [&](DeviceAllocator& heap) { return (found = heap.look_at(address)).has_value(); });
  return found;
}

void DeviceHeaps::deallocate_after_waiting(void* pointer) noexcept {
  try {
    for (int device = 0; device < contexts_.device_count(); ++device) {
      const ContextGuard guard(contexts_.api(), contexts_.primary(device));
      check_driver(contexts_.api(), contexts_.api().ctx_synchronize(), DriverEntryId::ctx_synchronize,
                   [&] { return fmt::format("device {}", device); });
    }
  } catch (...) {
    std::fprintf(stderr,
                 "cistern: deallocate(%p): its last stream is unknown and the devices cannot be waited for; "
                 "the block stays allocated\n",
                 pointer);
    return;
  }
  deallocate(pointer);
}

RecordingFilter DeviceHeaps::resolve(const PoolFilter& filter, int device) {
  return PoolFilterAccess::resolve(filter, *this, device);
}

// The pair is in the list by now: a heap that is not there yet finds it when it is made.
void DeviceHeaps::peer_enabled(int from, int to) {
  DeviceAllocator* heap = nullptr;
  {
    const std::lock_guard lock(mutex_);
    heap = heaps_[static_cast<std::size_t>(to)].load(std::memory_order_acquire);
  }
  if (heap != nullptr) heap->allow_peer(contexts_.driver_device(from));
}

void DeviceHeaps::lock_for_fork() {
  mutex_.lock();
  for_each([](DeviceAllocator& heap) { heap.lock_for_fork(); });
  host_.lock_for_fork();
  managed_.lock_for_fork();
  annotations_.lock_for_fork();
}

void DeviceHeaps::unlock_after_fork() {
  annotations_.unlock_after_fork();
  managed_.unlock_after_fork();
  host_.unlock_after_fork();
  for_each([](DeviceAllocator& heap) { heap.unlock_after_fork(); });
  mutex_.unlock();
}

}  // namespace cistern
