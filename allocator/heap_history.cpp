// What the history of a heap keeps: its options, and the texts that entries carry.

#include "allocator/device_allocator.h"

#include <cstdint>
#include <thread>
#include <utility>

namespace cistern {

HistoryRing DeviceAllocator::prepare_history(const HistoryOptions& options) const {
  Lock lock(mutex_);
  const DeviceHistory::RingSize size = history_.ring_for(options);
  lock.unlock();
  return HistoryRing(size.capacity, size.prepared);
}

void DeviceAllocator::record_history(HistoryOptions&& options, HistoryRing&& ring) noexcept {
  Lock lock(mutex_);
  const bool turns_off = options.enabled == HistoryEnabled::none;
  // A C++ program has native frames alone.
  const bool gathers = !turns_off && options.stacks == HistoryStacks::all;
  gathering_.store(
      gathers ? static_cast<std::uint32_t>(options.context) | static_cast<std::uint32_t>(options.max_frames) << 8 : 0,
      std::memory_order_relaxed);
  DeviceHistory::Retired retired = history_.set_options(options, std::move(ring));
  if (turns_off) {
    // Off is off: nothing shows a stack that was gathered before.
    for (Segment* segment = segments_; segment != nullptr; segment = segment->next) {
      history_.let_go(segment->stack);
      for (Block* block = segment->first; block != nullptr; block = block->next) history_.let_go(block->stack);
    }
  }
  // Nobody waits for all that the old entries refer to.
  while (history_.let_go_some(retired)) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  if (turns_off) history_.drop_unused_stacks();
  lock.unlock();  // before the old ring is freed
}

TextId DeviceAllocator::prepare_history_text(const SharedText& text) {
  const Lock lock(mutex_);
  return history_.prepare_text(text);
}

void DeviceAllocator::use_history_text(TextId text) noexcept {
  const Lock lock(mutex_);
  history_.use_text(text);
}

void DeviceAllocator::drop_history_text(TextId text) noexcept {
  const Lock lock(mutex_);
  history_.drop_text(text);
}

bool DeviceAllocator::annotate(std::uint64_t address, const SharedText& text) {
  const Lock lock(mutex_);
  const Block* block = find_live(address);
  if (block == nullptr) return false;
  history_.annotate(point_of(*block, lock), text);
  return true;
}

}  // namespace cistern
