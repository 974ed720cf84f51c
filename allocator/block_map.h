#pragma once

// BlockMap: from the address of a live block to its Block, for all heaps of one allocator.
//
// Sharded open-addressing tables: one probe run a look-up, no allocation once grown.
// Thread safety: any member may be called from any thread; each shard has its lock, which
// comes after the heap's in the lock order and is held for a few instructions.

#include "allocator/block.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace cistern {

class BlockMap {
 public:
  // Requires: `address` is not 0 and not in the map. Throws std::bad_alloc, unchanged.
  void insert(std::uint64_t address, Block* block);
  // Removes and returns the block at exactly `address`; nullptr if there is none. Of two
  // callers at once one gets it.
  [[nodiscard]] Block* take(std::uint64_t address) noexcept;
  [[nodiscard]] Block* find(std::uint64_t address) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  struct Entry {
    std::uint64_t address = 0;  // 0: empty
    Block* block = nullptr;
  };
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::unique_ptr<Entry[]> entries;
    std::size_t capacity = 0;  // a power of two, or 0
    std::size_t size = 0;

    [[nodiscard]] std::size_t slot_of(std::uint64_t address) const;
    void grow();
    void erase_at(std::size_t slot);
  };
  static constexpr std::size_t kShards = 64;

  static std::uint64_t hash(std::uint64_t address);
  Shard& shard(std::uint64_t address) { return shards_[hash(address) >> 58]; }
  const Shard& shard(std::uint64_t address) const { return shards_[hash(address) >> 58]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace cistern
