#pragma once

// BlockMap: from the address of a live block to its Block, for one heap.
//
// A hash table in buckets of one cache line: seven blocks, and in one word a mark of each and how many were passed on
// from there because it was full. A look-up reads one line and the block, and mostly jumps nowhere that could not be
// foreseen; nothing moves when a block goes. Half full, the most by choice, one bucket in forty passes blocks on. The
// first buckets lie in the map itself: most streams have few blocks. O(1) expected, no allocation once grown; to grow
// reads every block. Not thread-safe: guarded by the lock of the stream or heap whose blocks these are.

#include "allocator/block.h"
#include "allocator/prefetch.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace cistern {

class BlockMap {
 public:
  BlockMap() = default;
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  // Room for one more. Throws std::bad_alloc, unchanged.
  void make_room() {
    if (!has_room()) grow_by_choice();
  }
  // Whether one more fits without allocating.
  [[nodiscard]] bool has_room() const noexcept { return size_ < most_by_choice_; }
  // By its address, which stays the same in the map. Requires: make_room, and no block in the map begins there.
  void insert(Block* block) noexcept {
    const Home home = home_of(block->address);
    Bucket& bucket = buckets_[home.bucket];
    ++size_;
    if (bucket.is_full()) [[unlikely]]
      return pass_on(block, home);
    bucket.put(block, home.mark);
  }
  // Has the processor bring the place of an address that is about to be inserted. Requires: room.
  void fetch_place_of(std::uint64_t address) const noexcept { prefetch(&buckets_[home_of(address).bucket]); }
  // Makes the next `blocks` insertions succeed without allocating. Throws std::bad_alloc, unchanged.
  void reserve(std::size_t blocks);
  // Where a block is, until the map changes.
  struct Place {
    Block* block = nullptr;  // null: none begins there
    std::size_t home = 0;
    std::size_t bucket = 0;
    unsigned slot = 0;
  };
  [[nodiscard]] Place place_of(std::uint64_t address) const noexcept {
    const Home home = home_of(address);
    const Bucket& bucket = buckets_[home.bucket];
    if (const Found found = bucket.find(address, home.mark); found.block != nullptr) [[likely]]
      return {found.block, home.bucket, home.bucket, found.slot};
    return bucket.passed_on() == 0 ? Place{} : place_beyond(address, home);
  }
  // Requires: there is a block.
  void erase(const Place& place) noexcept {
    assert(place.block != nullptr);
    buckets_[place.bucket].clear(place.slot);
    --size_;
    for (std::size_t i = place.home; i != place.bucket; i = next(i)) buckets_[i].take_back();
  }
  // Requires: a block in the map begins at `address`.
  void erase(std::uint64_t address) noexcept { erase(place_of(address)); }
  [[nodiscard]] Block* find(std::uint64_t address) const noexcept { return place_of(address).block; }
  // Requires: a block in the map begins at `address`.
  [[nodiscard]] Block& at(std::uint64_t address) const noexcept {
    Block* const block = find(address);
    if (block == nullptr) __builtin_unreachable();
    return *block;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Home {
    std::size_t bucket;
    std::uint8_t mark;
  };
  struct Found {
    Block* block = nullptr;
    unsigned slot = 0;
  };
  struct alignas(64) Bucket {
    static constexpr unsigned kBlocks = 7;
    static constexpr std::uint64_t kOnes = 0x0001'0101'0101'0101;  // the low bit of each mark
    static constexpr std::uint64_t kTaken = kOnes << 7;            // the high one
    static constexpr unsigned kPassedOn = 8 * kBlocks;
    static constexpr std::uint64_t kMostPassedOn = 0xff;  // as many or more, for good

    [[nodiscard]] bool is_full() const noexcept { return (word & kTaken) == kTaken; }
    [[nodiscard]] bool is_taken(unsigned slot) const noexcept { return (word >> (8 * slot) & 0x80) != 0; }
    void put(Block* block, std::uint8_t mark) noexcept {
      const auto slot = static_cast<unsigned>(std::countr_zero(~word & kTaken)) / 8;
      word |= std::uint64_t{mark} << (8 * slot);
      blocks[slot] = block;
    }
    void clear(unsigned slot) noexcept { word &= ~(std::uint64_t{0xff} << (8 * slot)); }
    // A mark above one that is the same but for its low bit may be taken for the same, so the block itself is asked.
    [[nodiscard]] Found find(std::uint64_t address, std::uint8_t mark) const noexcept {
      const std::uint64_t differs = word ^ (kOnes * mark);
      for (std::uint64_t same = (differs - kOnes) & ~differs & kTaken; same != 0; same &= same - 1) {
        const auto slot = static_cast<unsigned>(std::countr_zero(same)) / 8;
        if (blocks[slot]->address == address) [[likely]]
          return {blocks[slot], slot};
      }
      return {};
    }
    [[nodiscard]] std::uint64_t passed_on() const noexcept { return word >> kPassedOn; }
    void pass_on() noexcept {
      if (passed_on() != kMostPassedOn) word += std::uint64_t{1} << kPassedOn;
    }
    void take_back() noexcept {
      if (passed_on() != kMostPassedOn) word -= std::uint64_t{1} << kPassedOn;
    }

    std::uint64_t word = 0;  // from the low byte on, of each block: 0, or the high bit and seven of its hash
    Block* blocks[kBlocks] = {};
  };
  static_assert(sizeof(Bucket) == 64);

  // Addresses are multiples of 512: the multiplication carries their bits to the top half, and
  // the shift brings those down.
  [[nodiscard]] Home home_of(std::uint64_t address) const noexcept {
    const std::uint64_t hash = (address >> 9) * 0x9e3779b97f4a7c15ULL;
    return {(hash >> 32) & mask_, static_cast<std::uint8_t>(hash >> 57 | 0x80)};
  }
  [[nodiscard]] std::size_t next(std::size_t bucket) const noexcept { return (bucket + 1) & mask_; }
  [[gnu::noinline]] void pass_on(Block* block, const Home& home) noexcept;
  [[nodiscard, gnu::noinline]] Place place_beyond(std::uint64_t address, const Home& home) const noexcept;
  void grow_by_choice();
  void grow(std::size_t new_buckets);
  [[nodiscard]] std::size_t count() const noexcept { return mask_ + 1; }
  // Half full.
  [[nodiscard]] static constexpr std::size_t most_by_choice(std::size_t buckets) noexcept {
    return buckets * Bucket::kBlocks / 2;
  }

  static constexpr std::size_t kFirstBuckets = 16;

  std::array<Bucket, kFirstBuckets> first_;
  std::unique_ptr<Bucket[]> grown_;
  Bucket* buckets_ = first_.data();       // the grown ones, if there are any
  std::size_t mask_ = kFirstBuckets - 1;  // their count, a power of two, less one
  std::size_t size_ = 0;
  std::size_t most_by_choice_ = most_by_choice(kFirstBuckets);
};

}  // namespace cistern
