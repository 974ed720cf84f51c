// The free functions: one process-wide DeviceHeaps over the process's driver.
//
// It is made by the first call that needs it and never destroyed, so that code which runs
// at exit may still free. Options come from CISTERN_ALLOC_CONF.

#include "allocator/process_heap.h"

#include "allocator/checked_free.h"
#include "allocator/device_heaps.h"
#include "runtime/process_driver.h"
#include "runtime/stream_access.h"
#include "runtime/stream_ends.h"
#include "stats/tags.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <set>

namespace cistern {
namespace {

std::atomic<DeviceHeaps*> made_heaps{nullptr};
// In a forked child the driver's contexts are not usable: statistics can be read, the rest
// is refused, and frees are ignored.
std::atomic<bool> forked{false};

void after_fork_in_child() {
  DeviceHeaps* heaps = made_heaps.load(std::memory_order_acquire);
  if (heaps == nullptr) return;
  forked.store(true, std::memory_order_relaxed);
  heaps->link()->heaps = nullptr;  // MemPools must not reach the driver either
}

// A known option without effect is said once a process, not once a text.
void warn_of(const AllocatorOptions& options) {
  static std::mutex mutex;
  static std::set<std::string>& said = *new std::set<std::string>();
  const std::lock_guard lock(mutex);
  for (const std::string& line : options.without_effect)
    if (said.insert(line).second) std::fprintf(stderr, "cistern: option without effect: %s\n", line.c_str());
}

AllocatorOptions options_from_environment() {
  const char* text = std::getenv("CISTERN_ALLOC_CONF");
  if (text == nullptr) return {};
  try {
    return AllocatorOptions::parse(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("CISTERN_ALLOC_CONF: {}", error.what()));
  } catch (const NotSupported& error) {
    throw NotSupported(fmt::format("CISTERN_ALLOC_CONF: {}", error.what()));
  }
}

// A stream of Stream::create has lost its last copy.
void stream_ends(const StreamIdentity& stream, int device) noexcept {
  DeviceHeaps* heaps = made_heaps.load(std::memory_order_acquire);
  if (heaps != nullptr && !forked.load(std::memory_order_relaxed)) heaps->end_stream({stream, device, nullptr});
}

DeviceHeaps& make_heaps() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (DeviceHeaps* heaps = made_heaps.load(std::memory_order_acquire)) return *heaps;
  const AllocatorOptions options = options_from_environment();
  auto heaps = std::make_unique<DeviceHeaps>(process_contexts(), options);
  warn_of(options);
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  made_heaps.store(heaps.get(), std::memory_order_release);
  observe_stream_ends(stream_ends);
  return *heaps.release();
}

DeviceHeaps& heaps() {
  if (forked.load(std::memory_order_relaxed)) refuse_after_fork();
  if (DeviceHeaps* existing = made_heaps.load(std::memory_order_acquire)) return *existing;
  return make_heaps();
}

// For what can be asked of a forked child too: null before the first use.
DeviceHeaps* heaps_if_made() { return made_heaps.load(std::memory_order_acquire); }

// The heaps where the device layer is initialised, else null: statistics initialise nothing.
DeviceHeaps* heaps_for_reading() {
  if (DeviceHeaps* existing = heaps_if_made()) return existing;
  return process_driver_loaded() ? &heaps() : nullptr;
}

int index_for_reading(Device device) {
  if (!device.is_current()) return device.index();
  return current_device().index();
}

}  // namespace

DeviceHeaps& process_heaps() { return heaps(); }

DeviceHeaps* process_heaps_if_made() { return heaps_if_made() == nullptr ? nullptr : &heaps(); }

DeviceHeaps* process_heaps_for_reading() { return heaps_for_reading(); }

void refuse_after_fork() {
  throw NotSupported(
      "this process was forked after cistern was used: the driver does not work in a forked child; "
      "start the child with exec, or fork before the first use");
}

bool in_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

void* allocate(std::size_t bytes) {
  // A copy: what is called back on a miss may set another, and this be its last.
  if (const Stream* const current = StreamAccess::current()) return allocate(bytes, Stream(*current));
  return bytes == 0 ? nullptr : heaps().allocate(bytes, {}, current_device_index());
}

void* allocate(std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return nullptr;
  DeviceHeaps& all = heaps();
  const auto [identity, device] = all.request_of(stream);
  return all.allocate(bytes, identity, device);
}

void* allocate_at_hand(std::size_t bytes, const Stream& stream) {
  DeviceHeaps* const existing = heaps_if_made();
  if (bytes == 0 || existing == nullptr || forked.load(std::memory_order_relaxed)) return nullptr;
  const auto [identity, device] = existing->request_of(stream);
  return existing->allocate_at_hand(bytes, identity, device);
}

void deallocate(void* pointer) noexcept {
  if (pointer == nullptr || forked.load(std::memory_order_relaxed)) return;
  if (DeviceHeaps* existing = heaps_if_made())
    existing->deallocate(pointer);
  else
    std::fprintf(stderr, "cistern: deallocate(%p): nothing was ever allocated; nothing was freed\n", pointer);
}

void deallocate(void* pointer, const Stream& stream) noexcept {
  DeviceHeaps* existing = heaps_if_made();
  if (pointer == nullptr || existing == nullptr || forked.load(std::memory_order_relaxed)) {
    deallocate(pointer);
    return;
  }
  try {
    const OwnFree done = deallocate_on_own_stream(pointer, {}, stream);
    if (done == OwnFree::freed) return;
    if (done == OwnFree::no_block) return say_nothing_was_freed(reinterpret_cast<std::uintptr_t>(pointer));
    const StreamUse use = existing->use_of(stream);
    existing->deallocate(pointer, &use);
  } catch (...) {  // no event can guard the free
    existing->deallocate_after_waiting(pointer);
  }
}

void record_stream(void* pointer, const Stream& stream) {
  if (pointer != nullptr && heaps_if_made() != nullptr) heaps().record_stream(pointer, stream);
}

void record_stream_around(const void* address, const Stream& stream) {
  if (address != nullptr && heaps_if_made() != nullptr) heaps().record_stream_around(address, heaps().use_of(stream));
}

void register_stream(const Stream& stream) {
  heaps().require_ours(stream);
  heaps().register_stream(heaps().use_of(stream.native_handle(), StreamAccess::device(stream)));
}

void release_stream(const Stream& stream) {
  if (heaps_if_made() != nullptr) heaps().end_stream(heaps().use_of(stream));
}

void empty_cache() {
  if (heaps_if_made() != nullptr) heaps().for_each([](DeviceAllocator& heap) { heap.empty_cache(); });
}

std::size_t trim(std::size_t target_bytes, Device device) {
  return heaps_if_made() == nullptr ? 0 : heaps().heap(resolve_device(device)).trim(target_bytes);
}

void set_memory_fraction(double fraction, Device device) {
  heaps().heap(resolve_device(device)).set_memory_fraction(fraction);
}

double memory_fraction(Device device) { return heaps().heap(resolve_device(device)).memory_fraction(); }

void set_options(std::string_view text) {
  heaps().set_options(text);
  warn_of(heaps().options());
}

std::string effective_config() {
  DeviceHeaps* existing = heaps_if_made();
  return existing == nullptr ? options_from_environment().describe() : existing->describe_options();
}

ObserverId add_out_of_memory_observer(OutOfMemoryObserver observer) {
  return heaps().observers().add(std::move(observer));
}

ObserverId add_free_memory_callback(FreeMemoryCallback callback) {
  return heaps().observers().add(std::move(callback));
}

bool remove_observer(ObserverId id) { return heaps_if_made() != nullptr && heaps().observers().remove(id); }

MemoryStats memory_stats(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? MemoryStats{} : existing->stats(index_for_reading(device));
}

std::map<std::string, std::int64_t> memory_stats_flat(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  if (existing == nullptr) return {};
  ReservedByPrivatePool pools;
  const MemoryStats stats = existing->stats(index_for_reading(device), &pools);
  return stats.flat(pools);
}

NestedStats memory_stats_nested(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  if (existing == nullptr) return {};
  ReservedByPrivatePool pools;
  const MemoryStats stats = existing->stats(index_for_reading(device), &pools);
  return stats.nested(pools);
}

ReservedByPrivatePool reserved_bytes_by_private_pools(Device device) {
  ReservedByPrivatePool pools;
  if (DeviceHeaps* existing = heaps_for_reading())
    static_cast<void>(existing->stats(index_for_reading(device), &pools));
  return pools;
}

std::size_t memory_allocated(Device device) {
  return static_cast<std::size_t>(memory_stats(device).allocated_bytes.all.current);
}

std::size_t max_memory_allocated(Device device) {
  return static_cast<std::size_t>(memory_stats(device).allocated_bytes.all.peak);
}

std::size_t memory_reserved(Device device) {
  return static_cast<std::size_t>(memory_stats(device).reserved_bytes.all.current);
}

std::size_t max_memory_reserved(Device device) {
  return static_cast<std::size_t>(memory_stats(device).reserved_bytes.all.peak);
}

std::vector<TagStats> tag_stats(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? std::vector<TagStats>{TagStats{}} : existing->tag_stats(index_for_reading(device));
}

std::vector<HandOverStats> hand_over_stats(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? std::vector<HandOverStats>{} : existing->hand_over_stats(index_for_reading(device));
}

std::vector<StreamStats> stream_stats(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? std::vector<StreamStats>{} : existing->stream_stats(index_for_reading(device));
}

std::optional<PendingFree> oldest_pending_free(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? std::nullopt : existing->oldest_pending_free(index_for_reading(device));
}

FragmentationStats fragmentation_stats(std::size_t request_bytes, Device device) {
  FragmentationStats none;
  none.request_bytes = request_bytes;
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? none : existing->fragmentation(request_bytes, index_for_reading(device));
}

DeviceMemoryStats device_memory_stats(Device device) {
  return heaps().heap(resolve_device(device)).device_memory_stats();
}

void reset_peak_memory_stats(Device device) { heaps().heap(resolve_device(device)).reset_peak_stats(); }

void reset_accumulated_memory_stats(Device device) { heaps().heap(resolve_device(device)).reset_accumulated_stats(); }

std::string memory_summary(Device device, bool abbreviated) {
  // With the heaps made it needs no driver: a forked child may ask too.
  if (DeviceHeaps* existing = heaps_if_made()) return existing->summary(index_for_reading(device), abbreviated);
  return heaps().summary(resolve_device(device), abbreviated);
}

std::string memory_report(Device device) { return heaps().report(resolve_device(device)); }

Snapshot memory_snapshot() {
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? Snapshot{} : existing->snapshot();
}

void record_history(const HistoryOptions& options) { heaps().record_history(options); }

HistoryOptions history_options() {
  DeviceHeaps* existing = heaps_if_made();
  return existing == nullptr ? HistoryOptions::always_on() : existing->history_options();
}

void set_user_metadata(std::string_view text) { heaps().set_user_metadata(text); }

std::string user_metadata() {
  DeviceHeaps* existing = heaps_if_made();
  return existing == nullptr ? std::string() : existing->user_metadata();
}

void annotate(void* pointer, std::string_view text) { heaps().annotate(pointer, text); }

AnnotatedRange::AnnotatedRange(std::string_view name, Device device) : name_(name), device_(resolve_device(device)) {
  heaps().mark_range(name_, true, device_);
}

AnnotatedRange::~AnnotatedRange() {
  try {
    if (DeviceHeaps* existing = heaps_if_made()) existing->mark_range(name_, false, device_);
  } catch (...) {  // no memory to note the end: readers see a range without one
  }
}

HistoryInfo history_info(Device device) {
  DeviceHeaps* existing = heaps_for_reading();
  return existing == nullptr ? HistoryInfo{} : existing->history_info(index_for_reading(device));
}

void begin_allocate_to_pool(Device device, PoolId id, const PoolFilter& filter) {
  const int index = resolve_device(device);
  heaps().heap(index).begin_allocate_to_pool(id, heaps().resolve(filter, index));
}

void end_allocate_to_pool(Device device, PoolId id) { heaps().heap(resolve_device(device)).end_allocate_to_pool(id); }

void release_pool(Device device, PoolId id) { heaps().heap(resolve_device(device)).release_pool(id); }

std::size_t pool_use_count(Device device, PoolId id) { return heaps().heap(resolve_device(device)).pool_use_count(id); }

std::vector<SegmentInfo> memory_snapshot(Device device, PoolId id) {
  return heaps().heap(resolve_device(device)).segments_of(id);
}

PoolCheckpoint checkpoint_pool(Device device, PoolId id) {
  return PoolCheckpoint(heaps().heap(resolve_device(device)).checkpoint_pool(id));
}

PoolRestored restore_pool(Device device, const PoolCheckpoint& checkpoint) {
  return heaps().heap(resolve_device(device)).restore_pool(checkpoint.state());
}

}  // namespace cistern
