#include "allocator/own_streams.h"

#include "allocator/device_heaps.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace cistern {
namespace {

struct OwnStream {
  std::shared_ptr<HeapsLink> link;
  int device = 0;
  StreamIdentity stream;
};
using Kept = std::vector<OwnStream>;

// Behind a plain pointer: destructors of other objects of the thread, which may run later, still find a valid state.
[[gnu::tls_model("initial-exec")]] constinit thread_local Kept* kept = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool has_ended = false;

void end(const OwnStream& own) noexcept {
  const std::shared_lock lock(own.link->end);
  if (DeviceHeaps* const heaps = own.link->heaps.load(std::memory_order_acquire))
    heaps->end_stream({own.stream, own.device, nullptr});
}

struct EndsWithThread {
  ~EndsWithThread() {
    has_ended = true;
    const std::unique_ptr<Kept> all(std::exchange(kept, nullptr));
    // The process's first thread; in a forked child the only one that has what its parent kept.
    if (all == nullptr || ::getpid() == ::gettid()) return;
    for (const OwnStream& own : *all) end(own);
  }
};
thread_local EndsWithThread ends_with_thread;

}  // namespace

const StreamIdentity* OwnStreams::find(const HeapsLink& link, int device) noexcept {
  if (kept == nullptr) return nullptr;
  for (const OwnStream& own : *kept)
    if (own.link.get() == &link && own.device == device) return &own.stream;
  return nullptr;
}

void OwnStreams::keep(const std::shared_ptr<HeapsLink>& link, int device, const StreamIdentity& stream) noexcept {
  if (has_ended) return;
  static_cast<void>(&ends_with_thread);  // its first use on a thread registers its destructor
  try {
    if (kept == nullptr) kept = new Kept;
    std::erase_if(*kept, [](const OwnStream& own) { return own.link->heaps.load() == nullptr; });
    kept->push_back({link, device, stream});
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace cistern
