#include "allocator/block_map.h"

#include <new>
#include <span>
#include <utility>

namespace cistern {

// Requires: some bucket is not full.
void BlockMap::pass_on(Block* block, const Home& home) noexcept {
  std::size_t bucket = home.bucket;
  for (; buckets_[bucket].is_full(); bucket = next(bucket)) buckets_[bucket].pass_on();
  buckets_[bucket].put(block, home.mark);
}

BlockMap::Place BlockMap::place_beyond(std::uint64_t address, const Home& home) const noexcept {
  std::size_t bucket = home.bucket;
  // Where a bucket passed on more than it counts, all may seem to have.
  for (std::size_t left = mask_; left != 0 && buckets_[bucket].passed_on() != 0; --left) {
    bucket = next(bucket);
    if (const Found found = buckets_[bucket].find(address, home.mark); found.block != nullptr)
      return {found.block, home.bucket, bucket, found.slot};
  }
  return {};
}

void BlockMap::grow(std::size_t new_buckets) {
  auto larger = std::make_unique<Bucket[]>(new_buckets);
  const std::span<const Bucket> old(buckets_, count());
  buckets_ = larger.get();
  mask_ = new_buckets - 1;
  most_by_choice_ = most_by_choice(new_buckets);
  size_ = 0;
  for (const Bucket& bucket : old)
    for (unsigned slot = 0; slot < Bucket::kBlocks; ++slot)
      if (bucket.is_taken(slot)) insert(bucket.blocks[slot]);
  grown_ = std::move(larger);  // what was grown before goes
}

// Half full is the most by choice; without host memory to grow, up to seven eighths serve, slower.
void BlockMap::grow_by_choice() {
  try {
    grow(count() * 2);
  } catch (const std::bad_alloc&) {
    if ((size_ + 1) * 8 > count() * Bucket::kBlocks * 7) throw;
  }
}

void BlockMap::reserve(std::size_t blocks) {
  std::size_t buckets = count();
  while ((size_ + blocks) * 2 > buckets * Bucket::kBlocks) buckets *= 2;
  if (buckets > count()) grow(buckets);
}

}  // namespace cistern
