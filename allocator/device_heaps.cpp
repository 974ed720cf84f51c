#include "allocator/device_heaps.h"

#include "allocator/options_keys.h"
#include "allocator/pool_filter.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "stats/summary.h"
#include "stats/tags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace cistern {
namespace {

HostSourceOptions host_source_of(const AllocatorOptions& options) {
  return {options.pinned_use_cuda_host_register, options.pinned_num_register_threads};
}

constexpr const char* kFixedSegments = "the device or its driver has no virtual memory management";

}  // namespace

DeviceHeaps::DeviceHeaps(Contexts& contexts, const AllocatorOptions& options)
    : contexts_(contexts),
      is_of_process_(process_driver_loaded() && &contexts.api() == &process_driver()),
      event_pools_(contexts.api(), contexts.device_count()),
      host_(contexts, event_pools_, HostMemoryKind::pinned),
      managed_(contexts, event_pools_, HostMemoryKind::managed),
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
  if (is_of_process_) remove_peer_listener(*this);
  link_->heaps = nullptr;
  for (HeapScopes* scopes : scopes_) scopes->close();
  for (auto& slot : heaps_) delete slot.load(std::memory_order_acquire);
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

void DeviceHeaps::deallocate(void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address == 0) return;
  if (find_owner(address, [&](DeviceAllocator& heap) { return heap.free_by_stream(address); })) [[likely]]
    return;
  deallocate(pointer, nullptr);
}

void DeviceHeaps::deallocate(void* pointer, const StreamUse* last_use) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address == 0) return;
  if (find_owner(address, [&](DeviceAllocator& heap) { return heap.free(address, last_use); })) return;
  say_nothing_was_freed(address);
  contexts_.api().note_free(address, 0, nullptr);
}

bool DeviceHeaps::record_stream(void* pointer, StreamUse use) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return find_owner(address, [&](DeviceAllocator& heap) { return heap.record_use(address, use); });
}

void DeviceHeaps::record_stream_around(const void* pointer, StreamUse use) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  find_owner(address, [&](DeviceAllocator& heap) { return heap.record_use_around(address, use); });
}

StreamUse DeviceHeaps::use_of(const Stream& stream) const {
  StreamUse use = request_of(stream);
  use.owner = StreamAccess::owner(stream);
  return use;
}

StreamUse DeviceHeaps::request_of(const Stream& stream) const {
  const DriverApi* driver = StreamAccess::driver(stream);
  // The legacy default stream needs no driver to be known: it is that of any.
  const bool is_ours =
      driver == nullptr ? is_of_process_ || stream.native_handle() == nullptr : driver == &contexts_.api();
  if (!is_ours)
    throw InvalidArgument(fmt::format("{}: it belongs to another driver than the allocator", stream.to_string()));
  return {StreamAccess::identity(stream), StreamAccess::device(stream), nullptr};
}

StreamUse DeviceHeaps::use_of(StreamHandle stream, int device) {
  StreamUse use;
  use.device = device;
  if (stream == nullptr) return use;
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

int DeviceHeaps::device_of(void* pointer) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  int device = -1;
  find_owner(address, [&](const DeviceAllocator& heap) {
    const bool found = heap.owns(address);
    if (found) device = heap.device();
    return found;
  });
  return device;
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

// As PyTorch's, a used heap may turn expandable segments on and off: memory of both kinds stays what
// it is. All that may fail comes first, for all devices.
void DeviceHeaps::set_options(std::string_view text) {
  const std::lock_guard lock(mutex_);
  AllocatorOptions base = options_;
  base.history = history_options_;
  AllocatorOptions options = AllocatorOptions::parse(text, base);
  bool in_use = false;
  for_each([&](const DeviceAllocator& heap) { in_use = in_use || heap.is_used(); });
  const auto caches_segments = [](Policy policy) { return policy == Policy::classic || policy == Policy::expandable; };
  if (in_use && options.policy != options_.policy &&
      !(caches_segments(options.policy) && caches_segments(options_.policy)))
    throw NotSupported(fmt::format("policy {}: the policy is fixed by the first allocation, and is {}",
                                   to_string(options.policy), to_string(options_.policy)));
  for_each([&](DeviceAllocator& heap) { heap.prepare(options); });
  AllocatorSettings settings = settings_of(options);
  std::vector<HistoryChange> history_changes;
  HistoryOptions history = options.history;
  if (options.history_given) history_changes = prepare_history(history);
  std::vector<std::pair<DeviceAllocator*, AllocatorOptions>> changes;
  for_each([&](DeviceAllocator& heap) { changes.emplace_back(&heap, options); });
  for (auto& [heap, of_heap] : changes) heap->set_options(std::move(of_heap));
  for_each([&](DeviceAllocator& heap) {
    if (!heap.can_serve(options)) warn_of_fixed_segments(options.policy, heap.device());
  });
  host_.set_source(host_source_of(options));
  settings.trace_alloc_max_entries = settings_.trace_alloc_max_entries;
  settings_ = std::move(settings);
  // Heaps that are made later take the fraction that any text has named.
  options.fraction_given = options.fraction_given || options_.fraction_given;
  if (options.history_given) apply(history_changes, std::move(history));
  options_ = std::move(options);
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

// Once, whichever device it is: the rest is in describe_options. Requires: mutex_.
void DeviceHeaps::warn_of_fixed_segments(Policy policy, int device) {
  if (std::exchange(warned_of_fixed_segments_, true)) return;
  const bool is_paged = policy == Policy::paged;
  std::fprintf(stderr, "cistern: %s: %s; device %d is served as by %s\n",
               is_paged ? "policy:paged" : "expandable_segments:True", kFixedSegments, device,
               is_paged ? "policy:classic" : "False");
}

std::string DeviceHeaps::describe_options() const {
  AllocatorOptions options = this->options();
  options.history = history_options();
  std::string text = options.describe();
  for_each([&](const DeviceAllocator& heap) {
    if (!heap.can_serve(options))
      text += fmt::format("without effect: {} on device {}: {}\n",
                          options.policy == Policy::paged ? "policy:paged" : "expandable_segments", heap.device(),
                          kFixedSegments);
    const double fraction = heap.memory_fraction();
    if (fraction < 1.0) text += fmt::format("memory fraction of device {}: {:.6g}\n", heap.device(), fraction);
  });
  return text;
}

AllocatorOptions DeviceHeaps::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

MemoryStats DeviceHeaps::stats(int device, ReservedByPrivatePool* pools) const {
  if (const DeviceAllocator* heap = existing(device)) return heap->stats(pools);
  return unused_stats();
}

MemoryStats DeviceHeaps::unused_stats() const { return unused_stats_of(options()); }

MemoryStats DeviceHeaps::unused_stats_of(const AllocatorOptions& options) {
  MemoryStats none;
  none.max_split_size = static_cast<std::int64_t>(options.max_split_size_bytes);
  return none;
}

std::vector<TagStats> DeviceHeaps::tag_stats(int device) const {
  if (const DeviceAllocator* heap = existing(device)) return heap->tag_stats();
  return {TagStats{}};
}

std::vector<StreamStats> DeviceHeaps::stream_stats(int device) const {
  const DeviceAllocator* heap = existing(device);
  return heap == nullptr ? std::vector<StreamStats>{} : heap->stream_stats();
}

std::optional<PendingFree> DeviceHeaps::oldest_pending_free(int device) const {
  const DeviceAllocator* heap = existing(device);
  return heap == nullptr ? std::nullopt : heap->oldest_pending_free();
}

FragmentationStats DeviceHeaps::fragmentation(std::size_t request_bytes, int device) const {
  if (const DeviceAllocator* heap = existing(device)) return heap->fragmentation(request_bytes);
  FragmentationStats none;
  none.request_bytes = request_bytes;
  return none;
}

void DeviceHeaps::open(HeapScopes& scopes, int device) {
  if (device >= 0) static_cast<void>(heap(device));
  const std::lock_guard lock(mutex_);
  scopes_.push_back(&scopes);
  for_each([&](DeviceAllocator& heap) {
    if (scopes.is_of(heap.device())) scopes.open(heap);
  });
}

void DeviceHeaps::close(HeapScopes& scopes) noexcept {
  const std::lock_guard lock(mutex_);
  if (!scopes.is_open()) return;
  scopes.close();
  std::erase(scopes_, &scopes);
}

bool DeviceHeaps::is_open(const HeapScopes& scopes) const noexcept {
  const std::lock_guard lock(mutex_);
  return scopes.is_open();
}

MemoryStats DeviceHeaps::scope_stats(const HeapScopes& scopes, int device) const noexcept {
  const std::lock_guard lock(mutex_);
  return scopes.stats(device);
}

std::string DeviceHeaps::summary(int device, bool abbreviated) const {
  return format_summary(stats(device), device, abbreviated, options().summary_title);
}

Snapshot DeviceHeaps::snapshot() const {
  Snapshot snapshot;
  SnapshotStacks stacks;
  for (int device = 0; device < contexts_.device_count(); ++device) {
    if (DeviceAllocator* heap = existing(device)) {
      heap->add_to(snapshot, stacks);
    } else {
      snapshot.device_stats.push_back(stats(device));
      snapshot.device_traces.emplace_back();
    }
  }
  stacks.describe(snapshot);
  snapshot.external_annotations = annotations_.all();
  snapshot.tags = tag_registry().names();  // after the blocks: every one of theirs is there
  const bool has_overflowed = snapshot.settings.trace_alloc_overflowed;
  {
    const std::lock_guard lock(mutex_);
    snapshot.settings = settings_;
    tell_policy_in_force(snapshot.settings, false);
  }
  snapshot.settings.trace_alloc_overflowed = has_overflowed;
  return snapshot;
}

AllocatorSettings DeviceHeaps::settings_of(const AllocatorOptions& options) {
  AllocatorSettings settings;
  settings.text = options.text;
  settings.max_split_size = static_cast<std::int64_t>(options.max_split_size_bytes);
  settings.garbage_collection_threshold = options.garbage_collection_threshold;
  settings.graph_capture_record_stream_reuse = options.graph_capture_record_stream_reuse;
  settings.expandable_segments = options.policy == Policy::expandable;
  for (std::size_t i = 0; i < options.roundup_power2_divisions.size(); ++i)
    settings.roundup_power2_divisions[std::int64_t{1} << i] = options.roundup_power2_divisions[i];
  settings.policy = to_string(options.policy);
  settings.pytorch_rules = to_string(options.pytorch_rules);
  settings.max_non_split_rounding = static_cast<std::int64_t>(options.max_non_split_rounding_bytes);
  return settings;
}

// That of every heap which cannot do as the options ask is `classic`. Takes no memory. Requires: mutex_.
void DeviceHeaps::tell_policy_in_force(AllocatorSettings& settings, bool heaps_are_locked) const {
  bool has_heap = false;
  bool serves = false;
  for_each([&](const DeviceAllocator& heap) {
    has_heap = true;
    serves = serves || (heaps_are_locked ? heap.can_serve_while_locked(options_) : heap.can_serve(options_));
  });
  const Policy policy = has_heap && !serves ? Policy::classic : options_.policy;
  settings.policy = to_string(policy);
  settings.expandable_segments = policy == Policy::expandable;
}

struct DeviceHeaps::HistoryChange {
  DeviceAllocator* heap = nullptr;
  HistoryOptions options;
  HistoryRing ring;
};

std::vector<DeviceHeaps::HistoryChange> DeviceHeaps::prepare_history(const HistoryOptions& options) {
  std::vector<HistoryChange> changes;
  for_each([&](DeviceAllocator& heap) { changes.push_back({&heap, options, heap.prepare_history(options)}); });
  return changes;
}

void DeviceHeaps::apply(std::vector<HistoryChange>& changes, HistoryOptions&& options) noexcept {
  for (HistoryChange& change : changes) change.heap->record_history(std::move(change.options), std::move(change.ring));
  const bool off = options.enabled == HistoryEnabled::none;
  const std::size_t entries = options.enabled == HistoryEnabled::all ? options.max_entries : 1;
  annotations_.set_capacity(off ? 0 : entries, off || options.clear_history);
  const bool is_unlimited = options.enabled == HistoryEnabled::all && entries == kUnlimitedEntries;
  settings_.trace_alloc_max_entries = is_unlimited ? -1 : static_cast<std::int64_t>(off ? 0 : entries);
  history_options_ = std::move(options);
  history_options_.clear_history = false;
}

void DeviceHeaps::record_history(const HistoryOptions& options) {
  require_valid(options);
  const std::lock_guard lock(mutex_);
  HistoryOptions kept = options;
  std::vector<HistoryChange> changes = prepare_history(options);
  apply(changes, std::move(kept));
}

HistoryOptions DeviceHeaps::history_options() const {
  const std::lock_guard lock(mutex_);
  return history_options_;
}

// All devices have room for it before any uses it.
void DeviceHeaps::set_user_metadata(std::string_view text) {
  SharedText shared = share_text(text);
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<DeviceAllocator*, TextId>> prepared;
  prepared.reserve(heaps_.size());
  try {
    for_each([&](DeviceAllocator& heap) { prepared.emplace_back(&heap, heap.prepare_history_text(shared)); });
  } catch (...) {
    for (const auto& [heap, id] : prepared) heap->drop_history_text(id);
    throw;
  }
  for (const auto& [heap, id] : prepared) heap->use_history_text(id);
  user_metadata_ = std::move(shared);
}

std::string DeviceHeaps::user_metadata() const {
  const std::lock_guard lock(mutex_);
  return user_metadata_ == nullptr ? std::string() : *user_metadata_;
}

void DeviceHeaps::annotate(void* pointer, std::string_view text) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const SharedText shared = share_text(text);
  if (!find_owner(address, [&](DeviceAllocator& heap) { return heap.annotate(address, shared); }))
    throw InvalidArgument(fmt::format("annotate({}): expected the start of a live block", pointer));
}

void DeviceHeaps::mark_range(std::string_view name, bool is_start, int device) {
  contexts_.require(device);
  annotations_.add(name, is_start, device);
}

HistoryInfo DeviceHeaps::history_info(int device) const {
  const DeviceAllocator* heap = existing(device);
  return heap == nullptr ? HistoryInfo{} : heap->history_info();
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
