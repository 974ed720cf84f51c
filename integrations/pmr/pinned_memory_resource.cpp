#include <cistern/error.h>
#include <cistern/integrations/pmr.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace cistern {

namespace {

struct PinnedBlock {
  PinnedMemory memory;
  std::size_t bytes = 0;  // as it was asked for
};

}  // namespace

struct PinnedMemoryResource::State {
  PinnedMemoryOptions options;
  Device device;
  mutable std::mutex mutex;
  std::unordered_map<void*, PinnedBlock> blocks;
  std::size_t bytes = 0;
  State* left_before = nullptr;  // of those that ended with live blocks
};

PinnedMemoryResource::PinnedMemoryResource(PinnedMemoryOptions options, Device device)
    : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->device = device.is_current() ? current_device() : device;
}

// The memory may still be in use, by the device too: to unlock it under their hands would be worse than to leave it.
PinnedMemoryResource::~PinnedMemoryResource() {
  if (state_->blocks.empty()) return;
  std::fprintf(stderr, "cistern: a PinnedMemoryResource ends with %zu live blocks of %zu bytes; they stay allocated\n",
               state_->blocks.size(), state_->bytes);
  static std::atomic<State*> left{nullptr};  // reachable: who looks for leaks finds what was said, and no more
  state_->left_before = left.load(std::memory_order_relaxed);
  while (!left.compare_exchange_weak(state_->left_before, state_.get(), std::memory_order_relaxed)) {
  }
  static_cast<void>(state_.release());
}

std::size_t PinnedMemoryResource::live_blocks() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->blocks.size();
}

std::size_t PinnedMemoryResource::live_bytes() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

void* PinnedMemoryResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > page)
    throw InvalidArgument(fmt::format("alignment {}: expected a power of two, at most {}", alignment, page));
  // The standard's resources give no null pointers, whatever is asked for. The driver's call: without the lock.
  PinnedMemory memory(std::max<std::size_t>(bytes, 1), state_->options, state_->device);
  void* const pointer = memory.data();
  const std::lock_guard lock(state_->mutex);
  state_->blocks.emplace(pointer, PinnedBlock{std::move(memory), bytes});
  state_->bytes += bytes;
  return pointer;
}

void PinnedMemoryResource::do_deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/) {
  PinnedBlock freed;  // ends, by a driver call, when the lock is given up
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->blocks.find(pointer);
  if (found == state_->blocks.end()) {
    std::fprintf(stderr,
                 "cistern: deallocate(%p) of pinned memory: not a live block of this resource; nothing was freed\n",
                 pointer);
    return;
  }
  if (found->second.bytes != bytes) {
    std::fprintf(stderr,
                 "cistern: deallocate(%p) of pinned memory: %zu bytes, but the block was asked for with %zu; nothing "
                 "was freed\n",
                 pointer, bytes, found->second.bytes);
    return;
  }
  freed = std::move(found->second);
  state_->blocks.erase(found);
  state_->bytes -= bytes;
}

bool PinnedMemoryResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept { return this == &other; }

}  // namespace cistern
