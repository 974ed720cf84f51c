// Blocks that stay allocated for others: memory that was sent to other processes.

#include "allocator/device_allocator.h"

namespace cistern {

std::optional<std::size_t> DeviceAllocator::hold(std::uint64_t address) {
  const Lock lock(mutex_);
  Block* block = find_live(address);
  if (block == nullptr || block->freed_while_held) return std::nullopt;
  ++block->holds;
  block->is_held = true;
  return block->requested;
}

void DeviceAllocator::let_go(std::uint64_t address) noexcept {
  {
    const Lock lock(mutex_);
    Block& block = *find_live(address);
    block.is_held = --block.holds != 0;
    if (block.is_held || !block.freed_while_held) return;
    block.freed_while_held = false;
  }
  static_cast<void>(free(address, nullptr));
}

bool HeapReports::is_freed_while_held(std::uint64_t address) const {
  const HeapLook look(mutex_);
  const Block* block = find_live(address);
  return block != nullptr && block->freed_while_held;
}

}  // namespace cistern
