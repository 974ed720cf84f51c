// The last allocation of a stream, which goes and comes, beside what its states mean; whether frees stand, beside the
// rests that were in vain; and which streams are awake and await frees, beside sets of them.

#include "allocator/lazy_free.h"

#include "allocator/awake_streams.h"
#include "allocator/stream_heap.h"
#include "allocator/stream_locks.h"
#include "tests/allocator/roomy_stream_heap.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

namespace cistern {
namespace {

class FreeProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t text = kind / 16;
    if (block_ == nullptr)
      begin(kind);
    else if (state_ == State::in_use)
      go(kind % 16, text);
    else if (state_ == State::shared)
      await(kind % 4);
    else if (state_ == State::awaited)
      complete(kind % 4);
    else
      come_back(kind % 16, text);
    compare();
  }

 private:
  using State = LazyFree::State;

  void begin(std::uint64_t kind) {
    block_ = &blocks_[kind % blocks_.size()];
    is_plain_ = kind / 2 % 2 == 0;
    change_ = {static_cast<std::int64_t>(kind % 3) - 1, static_cast<std::int64_t>(kind) * 512};
    lazy_.begin(block_, change_, is_plain_);
    be(State::in_use);
    is_told_ = true;
    turns_ = 0;
  }
  void be(State state) {
    state_ = state;
    may_go_ = state == State::in_use && is_plain_;
    may_come_ = false;
  }
  void go(std::uint64_t kind, std::uint64_t text) {
    if (kind < 6) {
      is_told_ = text % 2 == 0;
      lazy_.go(is_told_);
      be(State::free);
      may_come_ = is_plain_ && !is_told_;
    } else if (kind < 11) {
      if (!lazy_.goes(block_->address)) return;
      require(lazy_.go_plainly() == block_->requested, "what was asked for");
      be(State::free);
      is_told_ = false;
      may_come_ = true;
    } else if (kind == 11) {
      lazy_.share();
      be(State::shared);
    } else if (kind == 12) {
      tell();
    } else if (kind == 13) {
      lazy_.end_turns();
      turns_ = 0;
    } else {
      leave();
    }
  }
  // Something else happens.
  void leave() {
    if (state_ == State::in_use && turns_ == 0) {
      lazy_.drop();
    } else {
      lazy_.end();
      is_told_ = true;
      turns_ = 0;
    }
    block_ = nullptr;
    be(State::in_use);
    may_go_ = false;
  }
  void await(std::uint64_t kind) {
    if (kind == 0) return leave();
    lazy_.await();
    be(State::awaited);
  }
  void complete(std::uint64_t kind) {
    if (kind == 0) return leave();
    lazy_.complete();
    be(State::free);
  }
  void come_back(std::uint64_t kind, std::uint64_t text) {
    if (kind < 6) {
      lazy_.come_back();
      be(State::in_use);
      ++turns_;
    } else if (kind < 12) {
      if (!lazy_.comes_for(block_->requested)) return;
      require(lazy_.come_back_plainly() == block_->address, "the block that stands is handed out");
      be(State::in_use);
      is_told_ = true;
      ++turns_;
    } else if (kind < 14) {
      tell();
    } else if (text % 2 == 0) {
      leave();
    }
  }
  void tell() {
    require(lazy_.tell() == is_told_, "whether it was told");
    is_told_ = true;
    may_come_ = false;
  }
  void compare() const {
    require(lazy_.block() == block_, "the last allocation");
    require(lazy_.turns() == turns_, "how often it came back");
    require(lazy_.state() == state_, "what became of it");
    require(lazy_.is_freed() == (state_ == State::free || state_ == State::awaited), "whether it is freed");
    for (const Block& block : blocks_) {
      const bool is_it = &block == block_;
      require(lazy_.is_of(block.address) == is_it, "whose it is");
      require(lazy_.goes(block.address) == (is_it && may_go_), "whose free would stand");
    }
    if (block_ == nullptr) return require(!lazy_.comes_for(512), "nothing serves");
    require(lazy_.change().count == change_.count && lazy_.change().bytes == change_.bytes, "what it brought");
    require(lazy_.change_by_freeing().count == -change_.count && lazy_.change_by_freeing().bytes == -change_.bytes,
            "what its free takes back");
    for (const std::size_t bytes : {block_->requested, block_->requested + 1}) {
      const bool is_same = bytes == block_->requested;
      require(lazy_.serves(bytes) == (is_same && state_ == State::free), "what a free that stands serves");
      require(lazy_.comes_for(bytes) == (is_same && may_come_), "what it serves plainly");
    }
  }

  static std::array<Block, 3> made_blocks() {
    std::array<Block, 3> blocks;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i].address = 512 * (i + 1);
      blocks[i].requested = 400 + i;
    }
    return blocks;
  }
  std::array<Block, 3> blocks_ = made_blocks();
  LazyFree lazy_;
  Block* block_ = nullptr;
  InactiveSplitChange change_;
  State state_ = State::in_use;
  bool is_plain_ = false;
  bool is_told_ = true;
  bool may_go_ = false;
  bool may_come_ = false;
  std::int64_t turns_ = 0;
};

// In vain: twice as long a rest as before, up to a limit.
class WorthProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    for (std::uint64_t blocks = kind / 2; blocks != 0; --blocks) {
      require(worth_.tries() == (rest_ == 0), "whether a free may stand");
      if (rest_ != 0) --rest_;
    }
    const bool is_in_vain = kind % 2 == 0;
    worth_.ended(is_in_vain ? 0 : 1);
    if (is_in_vain) {
      rest_ = std::min(1024, 1 << in_vain_);
      in_vain_ = std::min(in_vain_ + 1, 20);
    } else {
      in_vain_ = 0;
    }
  }

 private:
  StandingWorth worth_;
  int rest_ = 0;
  int in_vain_ = 0;
};

class AwakeProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const bool alone = kind / 8 % 2 == 0;
    if (kind % 8 < 3) {
      if (taken_.size() < AwakeStreams::kMost) take();
    } else if (kind % 8 == 7) {
      require(awake_.next_number(alone) == next_number_++, "frees are numbered in their order");
      if (kind == 255) {
        awake_.hand_over();
        require(awake_.awaiting() == AwakeStreams::kOfHeap, "what is handed over the heap has");
        awake_.let_heap_await(false);
        awaiting_.clear();
      }
    } else if (!taken_.empty()) {
      const auto at = std::next(taken_.begin(), static_cast<std::ptrdiff_t>(steps.byte() % taken_.size()));
      change(kind % 8, at->first, alone);
    }
    compare();
  }

 private:
  void take() {
    StreamHeap& heap = heaps()[next_heap_++ % heaps().size()];
    const AwakeStreams::Bits bit = awake_.take(heap);
    require(bit != 0 && (bit & (bit - 1)) == 0, "a stream has one bit");
    require(taken_.emplace(bit, &heap).second, "a bit is one stream's");
  }
  void change(std::uint64_t kind, AwakeStreams::Bits bit, bool alone) {
    if (kind < 5) {
      awake_.begin_awaiting(bit, alone);
      awaiting_.insert(bit);
    } else {
      awake_.end_awaiting(bit, alone);
      awaiting_.erase(bit);
      if (kind == 6) {
        awake_.give_back(bit);
        taken_.erase(bit);
      }
    }
  }
  void compare() const {
    AwakeStreams::Bits all = 0;
    std::vector<const StreamHeap*> expected;
    for (const AwakeStreams::Bits bit : awaiting_) {
      all |= bit;
      expected.push_back(taken_.at(bit));
    }
    require(awake_.awaiting() == all, "which streams have frees that wait");
    std::vector<const StreamHeap*> found;
    awake_.for_each(all, [&](StreamHeap& heap) { found.push_back(&heap); });
    require(found == expected, "the streams that the bits stand for");
  }
  // Nothing is done with them.
  static std::array<testing::RoomyStreamHeap, 70>& heaps() {
    static std::array<testing::RoomyStreamHeap, 70> all;
    return all;
  }

  AwakeStreams awake_;
  std::map<AwakeStreams::Bits, StreamHeap*> taken_;
  std::set<AwakeStreams::Bits> awaiting_;
  std::size_t next_heap_ = 0;
  std::uint64_t next_number_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  FreeProgram free;
  WorthProgram worth;
  AwakeProgram awake;
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t which = steps.byte() % 8;
    if (which < 4)
      free.step(steps);
    else if (which == 4)
      worth.step(steps);
    else
      awake.step(steps);
  }
  return 0;
}
