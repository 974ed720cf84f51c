// MemPool and its guard: a private pool as an object.

#include <cistern/mem_pool.h>

#include "allocator/caching_allocator_state.h"
#include "allocator/process_heap.h"
#include "runtime/deferred_destruction.h"
#include "runtime/process_driver.h"

#include <fmt/format.h>

#include <new>

namespace cistern {

// The pool's one use that belongs to the object goes with the last copy.
struct MemPool::State {
  State(const std::shared_ptr<DeviceHeaps::Link>& its_link, int its_device, const MemPoolOptions& options)
      : link(its_link),
        device(its_device),
        name(options.name),
        owner(options.owner),
        parent(options.parent == nullptr ? nullptr : options.parent->shared_state()),
        use_on_oom(options.use_on_oom),
        no_split(options.no_split) {
    require_fitting_parent();
    const PoolId above = parent == nullptr ? PoolId{} : parent->id;
    heap().add_pool(id, {use_on_oom, no_split, true, owner}, above);
  }
  ~State() {
    // Without heaps there is nothing left of the pool.
    const DeviceHeaps* heaps = link->heaps;
    if (heaps == nullptr) return;
    try {
      end_now_or_later(heaps->api(), [link = link, device = device, id = id] {
        if (DeviceHeaps* left = link->heaps) left->end_pool(device, id);
      });
    } catch (const std::bad_alloc&) {
      // No host memory for the end: the pool keeps its memory, as if it were used.
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] DeviceHeaps& heaps() const {
    DeviceHeaps* heaps = link->heaps;
    if (heaps == nullptr)
      throw NotSupported(fmt::format(
          "pool {}: its allocator has ended, or this process was forked after the pool was made", to_string(id)));
    return *heaps;
  }
  [[nodiscard]] DeviceAllocator& heap() const { return heaps().heap(device); }

  void require_fitting_parent() const {
    if (parent == nullptr) return;
    if (parent->link != link)
      throw InvalidArgument(
          fmt::format("a pool under pool {}: expected a parent of the same allocator", to_string(parent->id)));
    if (parent->device != device)
      throw InvalidArgument(fmt::format("a pool of device {} under pool {} of device {}: expected the same device",
                                        device, to_string(parent->id), parent->device));
  }

  const std::shared_ptr<DeviceHeaps::Link> link;
  const PoolId id = graph_pool_handle();
  const int device;
  const std::string name;
  const std::shared_ptr<void> owner;
  const std::shared_ptr<State> parent;
  const bool use_on_oom;
  const bool no_split;
};

// A moved-from pool is none.
const std::shared_ptr<MemPool::State>& MemPool::shared_state() const {
  if (state_ == nullptr) throw InvalidArgument("a MemPool that was moved from: expected a pool");
  return state_;
}

MemPool::State& MemPool::state() const { return *shared_state(); }

MemPool::MemPool(const MemPoolOptions& options) {
  destroy_deferred();
  state_ = std::make_shared<State>(process_heaps().link(), resolve_device(options.device), options);
}

// The allocator's devices are its driver's: "the current one" is the process's, where that is the
// driver, and the first otherwise.
MemPool::MemPool(CachingAllocator& allocator, const MemPoolOptions& options) {
  destroy_deferred();
  const DeviceHeaps& heaps = allocator.state_->heaps;
  const int device = options.device.is_current() ? heaps.current_device() : options.device.index();
  state_ = std::make_shared<State>(heaps.link(), device, options);
}

void* MemPool::allocate(std::size_t bytes, const Stream& stream) const {
  const StreamUse use = state().heaps().use_of(stream);
  return allocate_for(use, bytes);
}

void* MemPool::allocate(std::size_t bytes, StreamHandle stream) const {
  const StreamUse use = state().heaps().use_of(stream, state().device);
  return allocate_for(use, bytes);
}

void* MemPool::allocate_for(const StreamUse& use, std::size_t bytes) const {
  if (use.device != state().device)
    throw InvalidArgument(fmt::format("pool {} of device {}: the stream is of device {}, expected one of the same",
                                      to_string(state().id), state().device, use.device));
  return bytes == 0 ? nullptr : state().heap().allocate_in(state().id, bytes, use.stream);
}

PoolId MemPool::id() const { return state().id; }
Device MemPool::device() const { return Device(state().device); }
const std::string& MemPool::name() const { return state().name; }
const std::shared_ptr<void>& MemPool::owner() const { return state().owner; }
bool MemPool::use_on_oom() const { return state().use_on_oom; }
bool MemPool::no_split() const { return state().no_split; }

std::optional<MemPool> MemPool::parent() const {
  if (state().parent == nullptr) return std::nullopt;
  return MemPool(state().parent);
}

std::size_t MemPool::use_count() const { return state().heap().pool_use_count(state().id); }
MemoryStats MemPool::stats() const { return state().heap().pool_stats(state().id); }
void MemPool::reset_peak_stats() const { state().heap().reset_pool_peaks(state().id); }
std::vector<SegmentInfo> MemPool::snapshot() const { return state().heap().segments_of(state().id); }
std::size_t MemPool::trim() const { return state().heap().trim_pool(state().id); }

MemPoolGuard::MemPoolGuard(const MemPool& pool)
    : pool_(pool.shared_state()), use_(pool_->heap().enter_pool(pool_->id)) {}

MemPoolGuard::~MemPoolGuard() {
  if (DeviceHeaps* heaps = pool_->link->heaps) heaps->leave_pool(pool_->device, pool_->id, use_);
}

}  // namespace cistern
