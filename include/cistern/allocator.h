#pragma once

// The allocator: device memory in stream order, kept when it is given back.
//
// A block belongs to the stream it was allocated for. Freed, it may serve that stream
// again at once, since later work there is ordered behind earlier. If other streams used
// it (record_stream), it waits until the work queued on them before the free is done. Under
// policy `paged` its bytes may serve another stream, whose later work the device orders behind
// the work that used them: see the option stream_hand_over.
// The free functions act on one process-wide heap for each device; a CachingAllocator is
// the same as an object of one's own.
//
// Thread safety: everything here may be called from any thread at any time. Observers and
// callbacks run with no lock held and may call back.
// Units: bytes. Pointers are device addresses, aligned to 512 bytes.

#include <cistern/device.h>
#include <cistern/error.h>
#include <cistern/export.h>
#include <cistern/host_allocator.h>
#include <cistern/mem_pool.h>
#include <cistern/options.h>
#include <cistern/snapshot.h>
#include <cistern/stats.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

// Memory on the current device for work on the current stream, or on `stream` (and its
// device) from now on. 0 bytes: nullptr, and nothing is counted. Does not touch the stream, but
// under policy `paged`, where it may queue waits for other streams on it.
// Cost: no driver call on a hit, but one event query for each stream that a pending free still
// waits for; on a miss one driver allocation, under `paged` some handles and mappings, or the
// retry ladder.
// Throws OutOfMemoryError after everything idle was released; DriverError if the driver
// fails in another way. Either way the heap is as usable as before.
[[nodiscard]] CISTERN_EXPORT void* allocate(std::size_t bytes);
[[nodiscard]] CISTERN_EXPORT void* allocate(std::size_t bytes, const Stream& stream);

// Gives a block back, in order on its own stream; nullptr is nothing. With `stream`, also
// tells that the block was last used there, as record_stream before the free would.
// Never throws. Never waits for the device but where no event can guard the free: after a use
// on another thread's per-thread default stream, on a stream that is destroyed, or without host
// memory. If not even waiting works the block stays allocated, and standard error says so. An
// address that is not a live block's start
// (a second free, say) changes nothing and is reported on standard error.
CISTERN_EXPORT void deallocate(void* pointer) noexcept;
CISTERN_EXPORT void deallocate(void* pointer, const Stream& stream) noexcept;

// For interfaces whose requests have an alignment and whose frees have a size.
//
// As allocate. Throws InvalidArgument, too, for an alignment that is no power of two or above 512.
[[nodiscard]] CISTERN_EXPORT void* allocate_aligned(std::size_t bytes, std::size_t alignment, const Stream& stream);
// As deallocate, of a block that was asked for with exactly `bytes`. With another size, with a stream of another
// driver, or with a handle that is no stream of the driver (`device`: whose default stream is meant), nothing is
// freed, and standard error says so. Costs one look-up more, under the device's lock.
CISTERN_EXPORT void deallocate_sized(void* pointer, std::size_t bytes) noexcept;
CISTERN_EXPORT void deallocate_sized(void* pointer, std::size_t bytes, const Stream& stream) noexcept;
CISTERN_EXPORT void deallocate_sized(void* pointer, std::size_t bytes, StreamHandle stream, Device device) noexcept;

// Tells that work on `stream` uses the block: after its free it is not reused before the
// work queued there by then is done. The block's own stream, nullptr and addresses that
// are not a live block's start are ignored. Orders nothing by itself. A Stream that somebody
// owns is kept alive until the block is freed; a raw handle should live as long by itself. One that uses a block
// which comes and goes again and again is kept until another one does so twice in a row, or until a call takes the
// heap's lock to change something: empty_cache, or a request that misses.
// Throws InvalidArgument for a stream of another driver.
CISTERN_EXPORT void record_stream(void* pointer, const Stream& stream);

// Promises that `stream` is not destroyed before release_stream names it, or ever. Requests by its handle then
// ask the driver nothing; otherwise it is asked at each for the stream's id, because it may give the handle of a
// destroyed stream to a new one. Streams of Stream::create and Stream::from_pool need no promise. Nothing is
// done for default streams. Makes one driver call. Throws InvalidArgument for a stream of another driver.
CISTERN_EXPORT void register_stream(const Stream& stream);

// Tells that `stream` is about to be destroyed by its owner: what it has cached serves other
// streams from then on, ordered behind the work that is queued on it now. Without this such memory
// goes back with the next full flush. Streams of Stream::create tell by themselves, and a thread of its own default
// stream when it ends. Nothing may be allocated for the stream, or queued on it, afterwards.
CISTERN_EXPORT void release_stream(const Stream& stream);

// Waits for pending frees, then gives every wholly free segment of every device back to
// the driver, but not those of private pools that are used (see mem_pool.h). Blocks the host.
// On a thread that captures a graph into a pool it waits for nothing, and gives back only what
// pools without a use have free.
CISTERN_EXPORT void empty_cache();
// Gives wholly free segments back, largest first, until at most `target_bytes` are held on
// the device or none is left; does not wait for pending frees. Returns the bytes given back.
CISTERN_EXPORT std::size_t trim(std::size_t target_bytes, Device device = {});

// Limits what this process holds on a device to a share of its memory, from now on;
// nothing is released. Throws InvalidArgument unless 0 <= fraction <= 1.
CISTERN_EXPORT void set_memory_fraction(double fraction, Device device = {});
[[nodiscard]] CISTERN_EXPORT double memory_fraction(Device device = {});

// Changes the options of the process-wide heaps: PyTorch's grammar, see options.h. The
// policy is fixed by the first allocation: a text that changes it later is refused.
CISTERN_EXPORT void set_options(std::string_view text);
// The options in force, one a line, with what has no effect and why.
[[nodiscard]] CISTERN_EXPORT std::string effective_config();

enum class ObserverId : std::uint64_t {};
// Called before an OutOfMemoryError is thrown. What it throws is ignored.
using OutOfMemoryObserver = std::function<void(const OutOfMemoryReport&)>;
// Asked for memory on a device before the driver is: true if it gave some back. It may allocate, but for what it
// asks itself no callback is called.
using FreeMemoryCallback = std::function<bool(int device, std::size_t bytes)>;
CISTERN_EXPORT ObserverId add_out_of_memory_observer(OutOfMemoryObserver observer);
CISTERN_EXPORT ObserverId add_free_memory_callback(FreeMemoryCallback callback);
// Returns whether it was there. A call that is already running may still end after this.
CISTERN_EXPORT bool remove_observer(ObserverId id);

struct CachingAllocatorOptions {
  // The driver to use; null: the process's own (see device.h). Must outlive the allocator.
  const DriverApi* driver = nullptr;
  AllocatorOptions options = {};
};

// A heap of one's own over any driver, for all of that driver's devices. Streams are the
// driver's handles; nullptr is the legacy default stream.
class CISTERN_EXPORT CachingAllocator {
 public:
  // Throws InvalidArgument naming an option out of range, NotSupported where the driver has no device.
  explicit CachingAllocator(const CachingAllocatorOptions& options = {});
  // Waits for pending frees and gives all memory back, blocks that are still live included.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // As the free functions of these names. `device` is an index, not "the current one"; it tells
  // whose default stream is meant, while any other stream belongs to its own device.
  [[nodiscard]] void* allocate(std::size_t bytes, StreamHandle stream = nullptr, int device = 0);
  [[nodiscard]] void* allocate(std::size_t bytes, const Stream& stream);
  void deallocate(void* pointer) noexcept;
  void deallocate(void* pointer, StreamHandle last_used_on) noexcept;
  void record_stream(void* pointer, StreamHandle stream);
  void record_stream(void* pointer, const Stream& stream);
  void register_stream(StreamHandle stream, int device = 0);
  void release_stream(StreamHandle stream, int device = 0);
  void empty_cache();
  std::size_t trim(std::size_t target_bytes, int device = 0);
  void set_memory_fraction(double fraction, int device = 0);
  [[nodiscard]] double memory_fraction(int device = 0) const;
  void set_options(std::string_view text);
  [[nodiscard]] AllocatorOptions options() const;
  ObserverId add_out_of_memory_observer(OutOfMemoryObserver observer);
  ObserverId add_free_memory_callback(FreeMemoryCallback callback);
  bool remove_observer(ObserverId id);

  // Page-locked host memory of this allocator's own: see host_allocator.h for these.
  [[nodiscard]] void* allocate_host(std::size_t bytes, int device = 0);
  [[nodiscard]] void* allocate_host_aligned(std::size_t bytes, std::size_t alignment, int device = 0);
  void deallocate_host(void* pointer) noexcept;
  bool record_host_stream(void* pointer, StreamHandle stream, int device = 0);
  bool record_host_stream(void* pointer, const Stream& stream);
  void empty_host_cache();
  [[nodiscard]] HostMemoryStats host_memory_stats() const;
  void reset_peak_host_memory_stats();
  void reset_accumulated_host_memory_stats();
  // Managed memory of its own: see managed_memory.h for these.
  [[nodiscard]] void* allocate_managed(std::size_t bytes, int device = 0);
  void deallocate_managed(void* pointer) noexcept;
  bool record_managed_stream(void* pointer, StreamHandle stream, int device = 0);
  void empty_managed_cache();
  [[nodiscard]] HostMemoryStats managed_memory_stats() const;

  // Private pools: see mem_pool.h for these, and for MemPool, which works on an allocator too.
  void begin_allocate_to_pool(int device, PoolId id, const PoolFilter& filter);
  void end_allocate_to_pool(int device, PoolId id);
  void release_pool(int device, PoolId id);
  [[nodiscard]] std::size_t pool_use_count(int device, PoolId id) const;
  [[nodiscard]] std::vector<SegmentInfo> snapshot(int device, PoolId id) const;
  [[nodiscard]] PoolCheckpoint checkpoint_pool(int device, PoolId id);
  PoolRestored restore_pool(int device, const PoolCheckpoint& checkpoint);

  [[nodiscard]] MemoryStats memory_stats(int device = 0) const;
  // With what private pools have reserved: see reserved_bytes_by_private_pools in stats.h.
  [[nodiscard]] std::map<std::string, std::int64_t> memory_stats_flat(int device = 0) const;
  [[nodiscard]] NestedStats memory_stats_nested(int device = 0) const;
  [[nodiscard]] ReservedByPrivatePool reserved_bytes_by_private_pools(int device = 0) const;
  [[nodiscard]] std::string memory_summary(int device = 0, bool abbreviated = false) const;
  [[nodiscard]] std::string memory_report(int device = 0) const;
  [[nodiscard]] std::vector<TagStats> tag_stats(int device = 0) const;
  [[nodiscard]] std::vector<StreamStats> stream_stats(int device = 0) const;
  [[nodiscard]] std::vector<HandOverStats> hand_over_stats(int device = 0) const;
  [[nodiscard]] std::optional<PendingFree> oldest_pending_free(int device = 0) const;
  [[nodiscard]] FragmentationStats fragmentation_stats(std::size_t request_bytes = 0, int device = 0) const;
  [[nodiscard]] DeviceMemoryStats device_memory_stats(int device = 0) const;
  [[nodiscard]] Snapshot snapshot() const;
  // See history.h for these.
  void record_history(const HistoryOptions& options = {});
  [[nodiscard]] HistoryOptions history_options() const;
  [[nodiscard]] HistoryInfo history_info(int device = 0) const;
  void set_user_metadata(std::string_view text);
  [[nodiscard]] std::string user_metadata() const;
  void annotate(void* pointer, std::string_view text);
  // The start or the end of a range, as AnnotatedRange marks them for the process's heaps.
  void mark_range(std::string_view name, bool is_start, int device = 0);
  void reset_peak_memory_stats(int device = 0);
  void reset_accumulated_memory_stats(int device = 0);

  // Verifies every invariant of the heap, O(blocks): throws std::logic_error naming the first
  // that does not hold. For tests, and for a program that suspects its own memory.
  void check() const;

 private:
  friend class MemPool;
  friend struct CachingAllocatorAccess;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cistern
