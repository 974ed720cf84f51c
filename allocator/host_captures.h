#pragma once

// Blocks of the host that a captured graph uses: none is reused before the graph, what was instantiated of it and their
// launches have all ended, however often it is launched.
//
// The graph owns a user object, which the driver destroys then; no driver call is allowed there, so the end is put in a
// list, which the heap empties. The list outlives the heap, for a graph may.
// Thread safety: any function may be called from any thread.

#include "allocator/block.h"
#include "runtime/driver_api.h"

#include <atomic>
#include <memory>
#include <mutex>

namespace cistern {

class HostCaptures {
 public:
  HostCaptures() : ended_(std::make_shared<Ended>()) {}
  // Graphs that end later tell nobody.
  ~HostCaptures();
  HostCaptures(const HostCaptures&) = delete;
  HostCaptures& operator=(const HostCaptures&) = delete;

  // A share of a block, made before it is given to a graph. Throws std::bad_alloc.
  class Share;
  [[nodiscard]] std::unique_ptr<Share> make(Block* block) const;
  // Gives it to the graph that the stream's capture records into. Refused, it is the caller's still; `failed` is the
  // entry that refused. The context of the stream's device must be current.
  [[nodiscard]] static CUresult give(const DriverApi& api, const StreamIdentity& stream, std::unique_ptr<Share>& share,
                                     DriverEntryId* failed) noexcept;

  // Whether any share has ended since the last take. O(1), without a lock.
  [[nodiscard]] bool any_ended() const noexcept { return ended_->any.load(std::memory_order_relaxed); }
  // Calls ended(Block*) for each share that has ended. Without host memory.
  template <class OnEnd>
  void take_ended(OnEnd&& on_end);

 private:
  struct Ended {
    std::mutex mutex;
    Share* first = nullptr;
    bool is_watched = true;        // by a heap
    std::atomic<bool> any{false};  // stored with the mutex, which orders the shares
  };
  [[nodiscard]] Share* take_all() noexcept;

  std::shared_ptr<Ended> ended_;
};

class HostCaptures::Share {
 public:
  Share(Block* block, std::shared_ptr<Ended> ended) : block_(block), ended_(std::move(ended)) {}

 private:
  friend class HostCaptures;
  static void CUDA_CB end(void* share) noexcept;

  Block* block_;
  std::shared_ptr<Ended> ended_;
  Share* next_ = nullptr;
};

template <class OnEnd>
void HostCaptures::take_ended(OnEnd&& on_end) {
  for (Share* share = take_all(); share != nullptr;) {
    const std::unique_ptr<Share> ended(share);
    share = share->next_;
    on_end(ended->block_);
  }
}

}  // namespace cistern
