// The index of free blocks beside a sorted set of sizes and addresses: blocks come, go, and change where they lie,
// and each request finds the smallest that holds it, lowest address first.

#include "allocator/block_pool.h"

#include "allocator/block_arena.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <set>
#include <utility>
#include <vector>

namespace cistern {
namespace {

class Program {
 public:
  Program(PoolKind kind, Steps steps) : pool_(kind, trees_), steps_(steps) {}

  void run() {
    while (steps_.more()) {
      step();
      compare();
    }
    pool_.check();
    std::vector<Key> visited;
    pool_.for_each([&](const Block* block) { visited.push_back(key_of(block)); });
    require(visited == std::vector<Key>(expected_.begin(), expected_.end()), "all are visited, in order");
  }

 private:
  using Key = std::pair<std::size_t, std::uint64_t>;
  static Key key_of(const Block* block) { return {block->bytes, block->address}; }
  static bool is_at(const Block* block, std::set<Key>::const_iterator place, const std::set<Key>& all) {
    return place == all.end() ? block == nullptr : block != nullptr && key_of(block) == *place;
  }

  // Most are small and alike; some are any power of two's worth, with or without a little more.
  std::size_t size() {
    const std::uint64_t text = steps_.word();
    if (text % 4 != 0) return 512 * (1 + text / 4 % 100);
    return (std::size_t{512} << (text / 4 % 34)) + 512 * (text / 4 / 34 % 3);
  }
  Block* pick() { return inside_[steps_.byte() % inside_.size()]; }

  void step() {
    const std::uint64_t kind = steps_.byte() % 8;
    if (kind < 4 || inside_.empty()) {
      insert();
    } else if (kind < 6) {
      Block* const block = pick();
      pool_.erase(block);
      expected_.erase(key_of(block));
      std::erase(inside_, block);
      require(!pool_.contains(block), "what was erased is not there");
      arena_.give_back(block);
    } else {
      cut(pick());
    }
  }
  void insert() {
    arena_.reserve(1, 0);
    Block* const block = arena_.take_block();
    // Not in the order in which they come.
    block->address = (next_ * 0x9E37 % 0x10000 + 1) << 45;
    block->bytes = size();
    ++next_;
    pool_.insert(block);
    expected_.insert(key_of(block));
    inside_.push_back(block);
  }
  // As when a request takes the front of a free block.
  void cut(Block* block) {
    const std::size_t taken = size();
    if (taken >= block->bytes) return;
    expected_.erase(key_of(block));
    pool_.loosen(block);
    require(pool_.is_loose(block), "what was loosened is loose");
    block->address += taken;
    block->bytes -= taken;
    expected_.insert(key_of(block));
  }

  void compare() {
    const std::size_t wanted = size() - steps_.byte();
    require(is_at(pool_.best_fit(wanted), expected_.lower_bound({wanted, 0}), expected_), "the best fit");
    require(pool_.size() == expected_.size() && pool_.empty() == expected_.empty(), "how many there are");
    if (inside_.empty()) return;
    const Block* const block = pick();
    require(pool_.contains(block), "what was inserted is there");
    require(is_at(pool_.after(block), expected_.upper_bound(key_of(block)), expected_), "the next by size and address");
    require(key_of(pool_.largest()) == *expected_.rbegin(), "the largest");
  }

  BlockArena arena_;
  BlockPool::Trees trees_{};
  BlockPool pool_;
  Steps steps_;
  std::set<Key> expected_;
  std::vector<Block*> inside_;
  std::uint64_t next_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Steps steps(data, size);
  const PoolKind kind = steps.byte() % 2 == 0 ? PoolKind::small : PoolKind::large;
  Program(kind, steps).run();
  return 0;
}
