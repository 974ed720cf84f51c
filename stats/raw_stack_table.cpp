#include "stats/raw_stack_table.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {
namespace {

// Stacks that nothing refers to are dropped together, when they are worth it.
constexpr std::size_t kUnusedWorthDropping = std::size_t{1} << 20;
// At the limit, of which this part must be unused: to drop walks all there is, and holds the heap's lock.
constexpr std::size_t kShareWorthDropping = 8;
constexpr std::size_t kSmallestIndex = 256;

}  // namespace

// Two lanes, so that a multiplication need not wait for the one before.
std::uint64_t hash_of(const std::uintptr_t* frames, std::size_t depth) noexcept {
  std::uint64_t a = 0x9e3779b97f4a7c15ULL ^ depth;
  std::uint64_t b = 0xc2b2ae3d27d4eb4fULL;
  std::size_t i = 0;
  for (; i + 1 < depth; i += 2) {
    a = (a ^ frames[i]) * 0xff51afd7ed558ccdULL;
    b = (b ^ frames[i + 1]) * 0xc4ceb9fe1a85ec53ULL;
    a ^= a >> 32;
    b ^= b >> 29;
  }
  if (i < depth) a = (a ^ frames[i]) * 0xff51afd7ed558ccdULL;
  std::uint64_t hash = a ^ (b << 21 | b >> 43);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  return hash ^ (hash >> 31);
}

std::size_t RawStackTable::place_of(const RawStack& stack) const noexcept {
  const std::size_t mask = index_.size() - 1;
  std::size_t place = stack.hash & mask;
  for (; index_[place] != kNoStackId; place = (place + 1) & mask) {
    const Stack& known = stacks_[index_[place] - 1];
    if (known.hash == stack.hash && known.depth == stack.depth &&
        std::equal(stack.frames, stack.frames + stack.depth, known.frames.get()))
      break;
  }
  return place;
}

StackId RawStackTable::intern(const RawStack& stack) noexcept {
  if (stack.depth == 0) return kNoStackId;
  if (!index_.empty()) {
    if (const StackId id = index_[place_of(stack)]; id != kNoStackId) {
      keep(id);
      return id;
    }
  }
  try {
    return add(stack);
  } catch (const std::bad_alloc&) {
    ++lost_;
    return kNoStackId;
  }
}

StackId RawStackTable::add(const RawStack& stack) {
  Stack added{stack.hash, {}, stack.depth, 1};
  const std::size_t needed = bytes_of(added);
  if (unused_bytes_ > kUnusedWorthDropping + (bytes_ - unused_bytes_) ||
      (bytes_ + needed > limit_ && unused_bytes_ >= std::max(needed, limit_ / kShareWorthDropping)))
    drop_unused();
  if (bytes_ + needed > limit_) {
    ++lost_;
    return kNoStackId;
  }
  if (!frames_) frames_ = FramesHold::make();
  added.frames = RawFrames(stack.frames, stack.depth);
  if (2 * (known_ + 1) > index_.size()) {
    std::vector<StackId> larger(std::max(kSmallestIndex, 2 * index_.size()), kNoStackId);
    index_.swap(larger);
    for (const StackId id : larger)
      if (id != kNoStackId) put_in_index(id);
  }
  StackId id = kNoStackId;
  if (free_.empty()) {
    // So that every number can be given back.
    if (free_.capacity() == stacks_.size()) free_.reserve(2 * stacks_.size() + 1);
    stacks_.push_back(std::move(added));
    id = static_cast<StackId>(stacks_.size());
  } else {
    id = free_.back();
    free_.pop_back();
    stacks_[id - 1] = std::move(added);
  }
  put_in_index(id);
  ++known_;
  bytes_ += needed;
  return id;
}

// Requires: an equal stack is not there, and a free place is.
void RawStackTable::put_in_index(StackId id) noexcept {
  const std::size_t mask = index_.size() - 1;
  std::size_t place = stacks_[id - 1].hash & mask;
  while (index_[place] != kNoStackId) place = (place + 1) & mask;
  index_[place] = id;
}

void RawStackTable::drop_unused() noexcept {
  std::fill(index_.begin(), index_.end(), kNoStackId);
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    Stack& stack = stacks_[i];
    const auto id = static_cast<StackId>(i + 1);
    if (!stack.frames) continue;
    if (stack.references != 0) {
      put_in_index(id);
      continue;
    }
    --known_;
    bytes_ -= bytes_of(stack);
    frames_.give_up(std::move(stack.frames));
    stack = Stack{};
    free_.push_back(id);
  }
  unused_bytes_ = 0;
}

void RawStackTable::copy_to(Copy& copy) const {
  copy.hold = frames_.share();
  copy.stacks.clear();
  copy.stacks.reserve(stacks_.size());
  for (const Stack& stack : stacks_)
    copy.stacks.push_back(stack.frames ? span_of(stack) : std::span<const std::uintptr_t>());
}

// Copies may go on reading.
RawStackTable::~RawStackTable() {
  for (Stack& stack : stacks_)
    if (stack.frames) frames_.give_up(std::move(stack.frames));
}

}  // namespace cistern
