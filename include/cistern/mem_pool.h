#pragma once

// Private pools: memory set apart from the rest of a device's heap, for graph capture and for
// users (torch.cuda.MemPool).
//
// Requests that a pool takes are served from its own segments, or from new ones of the driver;
// a block of a pool goes back to that pool only, and nobody else gets its memory while the pool
// is used. Statistics count pools in the ordinary figures; snapshots name the pool of a segment.
//
// Two doors: begin_allocate_to_pool and its kin, the primitives that graph capture is built on
// (torch's _cuda_beginAllocateToPool); and MemPool, an object. The functions here act on the
// process-wide heaps, and CachingAllocator has members of the same names.
// Thread safety: everything may be called from any thread, a MemPoolGuard only by its own.
// Units: bytes. Errors: InvalidArgument naming the pool, and nothing is changed.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/snapshot.h>
#include <cistern/stats.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cistern {

class CachingAllocator;
struct StreamUse;

// A pool's name: a pair of which one is 0. The first counts pools that captures made, the
// second those that a handle or a MemPool made; (0, 0) is the default pool.
struct PoolId {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  [[nodiscard]] bool is_default() const noexcept { return first == 0 && second == 0; }
  friend bool operator==(PoolId a, PoolId b) noexcept { return a.first == b.first && a.second == b.second; }
  friend bool operator!=(PoolId a, PoolId b) noexcept { return !(a == b); }
  friend bool operator<(PoolId a, PoolId b) noexcept {
    return a.first != b.first ? a.first < b.first : a.second < b.second;
  }
};
// "(0, 3)".
[[nodiscard]] CISTERN_EXPORT std::string to_string(PoolId id);
// An id that this process has not given out before: (n, 0) for a capture, (0, n) for a pool that
// several captures share (torch.cuda.graph_pool_handle).
[[nodiscard]] CISTERN_EXPORT PoolId capture_pool_id() noexcept;
[[nodiscard]] CISTERN_EXPORT PoolId graph_pool_handle() noexcept;

// Which requests a pool takes while it is recorded to.
class CISTERN_EXPORT PoolFilter {
 public:
  // Requests for this stream, capturing or not.
  [[nodiscard]] static PoolFilter stream(const Stream& stream);
  [[nodiscard]] static PoolFilter stream(StreamHandle stream);
  // Requests for streams that take part in the capture of this id (cuStreamGetCaptureInfo), so
  // also for those that joined it by an event.
  [[nodiscard]] static PoolFilter capture(std::uint64_t capture_id);
  // Requests of the thread that begins.
  [[nodiscard]] static PoolFilter this_thread();
  [[nodiscard]] static PoolFilter every_stream();

 private:
  friend struct PoolFilterAccess;
  enum class Kind { stream, handle, capture, thread, every };
  Kind kind_ = Kind::every;
  Stream stream_;
  StreamHandle handle_ = nullptr;
  std::uint64_t capture_id_ = 0;
};

// From now on requests that pass the filter are served by the pool `id`, which is made with a
// use count of 1, or gets one more. If several pools take a request, the one begun last serves
// it (under pytorch_rules:2.4 the one begun first).
// Between begin and end a capture counts as under way if the id is a capture's or the filter asks
// for one; under pytorch_rules:2.4 in every case. While one is, for the thread that began it
// (under pytorch_rules:2.4 for all threads): no event is queried, nothing is flushed, so that
// memory runs out earlier, and frees of blocks that other streams used are put off until after
// it. Begin and end on the thread that captures, around the capture. A capture that no pool was begun
// for is nothing the heap knows: a free that has to wait for the device, because the handle of a stream
// that used the block is no stream any more, is a call that such a capture does not survive.
// Throws InvalidArgument if the id is (0, 0) or has two parts, if it is recorded to already, or
// if its pool was released.
CISTERN_EXPORT void begin_allocate_to_pool(Device device, PoolId id, const PoolFilter& filter);
// Ends that; the use count stays. Throws InvalidArgument if the id is not recorded to.
CISTERN_EXPORT void end_allocate_to_pool(Device device, PoolId id);
// Takes one use away: call it when the graph is destroyed. At 0 the next full flush gives the
// pool's free segments back; live blocks keep theirs. Throws InvalidArgument if there is no such
// pool, or it has no use left.
CISTERN_EXPORT void release_pool(Device device, PoolId id);
// How many uses a pool has; 0 if there is none of that id.
[[nodiscard]] CISTERN_EXPORT std::size_t pool_use_count(Device device, PoolId id);
// The segments of one pool, by address; (0, 0): of the default pool.
[[nodiscard]] CISTERN_EXPORT std::vector<SegmentInfo> memory_snapshot(Device device, PoolId id);

// Which blocks of a pool were live, and where: what a tree of graphs goes back to before another
// of its branches runs.
class CISTERN_EXPORT PoolCheckpoint {
 public:
  struct State;
  explicit PoolCheckpoint(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  ~PoolCheckpoint() = default;
  // Moving copies: one that was moved from is the same checkpoint still.
  PoolCheckpoint(const PoolCheckpoint&) noexcept = default;
  PoolCheckpoint& operator=(const PoolCheckpoint&) noexcept = default;
  [[nodiscard]] PoolId pool() const noexcept;
  // The segments as they were, by address.
  [[nodiscard]] std::vector<SegmentInfo> segments() const;
  [[nodiscard]] const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};
struct PoolRestored {
  std::vector<void*> freed;  // blocks that were live before; the caller must forget them
  std::vector<void*> live;   // blocks that are live now; an address may be in both
};
// Notes every block of the pool. Throws InvalidArgument if there is no such pool or it has no use
// left; NotReady if a freed block of it is still awaited by a stream.
[[nodiscard]] CISTERN_EXPORT PoolCheckpoint checkpoint_pool(Device device, PoolId id);
// Frees every live block of the pool, cuts each segment of the checkpoint into the blocks it had
// and makes those live that were. The statistics count it all as allocations and frees. Throws as
// checkpoint_pool does, and InvalidArgument if a segment of the checkpoint is gone; then nothing
// is changed.
CISTERN_EXPORT PoolRestored restore_pool(Device device, const PoolCheckpoint& checkpoint);

class MemPool;

struct MemPoolOptions {
  Device device = {};     // whose memory: "the current device" is resolved when the pool is made
  std::string name = {};  // for people
  // Kept until the pool's last block is gone: whatever must outlive the memory, such as the
  // library that its users' code is in.
  std::shared_ptr<void> owner = {};
  // A pool of the same device, which lives at least as long as this one; when this one is over,
  // its free segments become the parent's instead of the driver's.
  const MemPool* parent = nullptr;
  // Its free blocks serve requests of the default pool that the driver has no memory for.
  bool use_on_oom = false;
  // A block is a whole segment: nothing of it serves another request meanwhile.
  bool no_split = false;
};

// A private pool as an object; copies are the same pool. When the last copy is gone, its cached
// memory goes back (to the parent, or to the driver: that may wait for the device), and each
// segment that still has live blocks follows as soon as these are freed and over. If the last
// copy ends inside a host function, where no driver call is allowed, that happens later: at the
// next call outside of one that makes a pool, a stream or an event, or synchronises.
// Requests come to it by a MemPoolGuard, or by `allocate`; blocks are freed by
// cistern::deallocate (or that of the pool's allocator) like all others. A pool that was moved from
// is none: it may be assigned and destroyed, and its members throw InvalidArgument.
class CISTERN_EXPORT MemPool {
 public:
  // Of the process-wide heap. Throws InvalidArgument if the parent is of another device or heap.
  explicit MemPool(const MemPoolOptions& options = {});
  // Of an allocator of one's own; "the current device" is device 0 where the allocator has a driver
  // of its own. Once the allocator has ended, members that need it throw NotSupported.
  explicit MemPool(CachingAllocator& allocator, const MemPoolOptions& options = {});

  // As cistern::allocate, from this pool, whatever guards are in force.
  [[nodiscard]] void* allocate(std::size_t bytes, const Stream& stream) const;
  [[nodiscard]] void* allocate(std::size_t bytes, StreamHandle stream = nullptr) const;

  [[nodiscard]] PoolId id() const;
  [[nodiscard]] Device device() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] std::optional<MemPool> parent() const;
  [[nodiscard]] const std::shared_ptr<void>& owner() const;
  [[nodiscard]] bool use_on_oom() const;
  [[nodiscard]] bool no_split() const;
  // 1 for the object itself, one more for each guard and for each begin without its release.
  [[nodiscard]] std::size_t use_count() const;

  // This pool's share of the statistics, by the same rules. `num_alloc_retries`, `num_ooms` and
  // `num_sync_all_streams` belong to no pool and are 0.
  [[nodiscard]] MemoryStats stats() const;
  void reset_peak_stats() const;
  // Its segments and their blocks, by address.
  [[nodiscard]] std::vector<SegmentInfo> snapshot() const;
  // Gives its wholly free segments back to the driver; does not wait for pending frees. Returns
  // the bytes.
  std::size_t trim() const;

  friend bool operator==(const MemPool& a, const MemPool& b) noexcept { return a.state_ == b.state_; }
  friend bool operator!=(const MemPool& a, const MemPool& b) noexcept { return !(a == b); }

  struct State;

 private:
  friend class MemPoolGuard;
  [[nodiscard]] const std::shared_ptr<State>& shared_state() const;
  [[nodiscard]] State& state() const;
  [[nodiscard]] void* allocate_for(const StreamUse& use, std::size_t bytes) const;
  explicit MemPool(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// While it lives, requests of this thread on the pool's device come from the pool, those on
// other devices do not. Guards nest: the innermost wins. Several threads may each have one of
// the same pool. Keeps the pool. Not copyable; for use on one thread.
class CISTERN_EXPORT MemPoolGuard {
 public:
  explicit MemPoolGuard(const MemPool& pool);
  ~MemPoolGuard();
  MemPoolGuard(const MemPoolGuard&) = delete;
  MemPoolGuard& operator=(const MemPoolGuard&) = delete;

 private:
  std::shared_ptr<MemPool::State> pool_;
  std::uint64_t use_ = 0;
};

}  // namespace cistern
