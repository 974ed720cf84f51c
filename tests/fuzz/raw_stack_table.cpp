// The table of stacks beside a map: stacks come, are referred to and let go, have equal hashes and make way at the
// limit, while copies of before are held, which outlive the table.

#include "stats/raw_stack_table.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cistern {
namespace {

using Frames = std::vector<std::uintptr_t>;
using FramesView = std::span<const std::uintptr_t>;

class Program {
 public:
  // So many bits of a hash are used: of none, all stacks have one hash.
  explicit Program(std::uint64_t text) : hash_mask_((std::uint64_t{1} << text % 16 * 4) - 1) { table_.emplace(); }

  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t text = steps.byte();
    if (kind % 8 < 2)
      intern({text % 4, text / 4 % 4, text / 16 % 4, text / 64}, kind / 8 % 5);
    else if (kind % 8 == 2)
      intern_many(1 + kind / 16, text);
    else if (kind % 8 == 3)
      keep(text);
    else if (kind % 8 < 6)
      let_go(kind % 8 == 4 ? 1 + kind / 8 : held_.size(), text);
    else if (kind % 8 == 6)
      copy();
    else if (kind < 64)
      drop_unused();
    else
      limit(kind < 128 ? kNoLimit : text * 256);
    compare();
  }
  void finish() {
    compare_all();
    table_.reset();
    while (!copies_.empty()) end_copy();
  }

 private:
  struct Known {
    StackId id = kNoStackId;
    std::uint64_t references = 0;
    std::size_t bytes = 0;
  };
  struct Copy {
    RawStackTable::Copy copy;
    std::vector<Frames> stacks;  // by number - 1
  };
  static constexpr std::size_t kNoLimit = ~std::size_t{0};
  // Of one program: some that are deep are a mebibyte.
  static constexpr std::size_t kMostInterned = 500;

  void intern_many(std::uint64_t count, std::uint64_t text) {
    const std::size_t depth = text < 250 ? 1 + text % 8 : 1000;
    for (; count != 0; --count) {
      intern(Frames(depth, 100 + next_++), depth);
      if (text % 4 == 3) let_go(1, held_.size() - 1);
    }
  }
  void intern(Frames frames, std::size_t depth) {
    if (++interned_ > kMostInterned) return;
    frames.resize(depth);
    auto known = known_.find(frames);
    const bool is_new = depth != 0 && known == known_.end();
    const std::size_t bytes = is_new ? bytes_of(frames) : 0;
    const bool is_lost = is_new && !make_room(bytes);
    const std::uint64_t hash = hash_of(frames.data(), depth) & hash_mask_;
    const StackId id = table_->intern({frames.data(), static_cast<std::uint32_t>(depth), hash});
    require((id == kNoStackId) == (is_lost || depth == 0), "a stack has a number where there is room for it");
    lost_ += is_lost ? 1 : 0;
    if (id == kNoStackId) return;
    if (is_new) known = known_.emplace(std::move(frames), Known{id, 0, bytes}).first;
    bytes_ += bytes;
    most_ = std::max(most_, known_.size());
    require(known->second.id == id && id <= most_, "a stack that is known has its number");
    ++known->second.references;
    held_.push_back(known);
  }
  // What a table takes that has nothing else.
  static std::size_t bytes_of(const Frames& frames) {
    RawStackTable table;
    static_cast<void>(table.intern({frames.data(), static_cast<std::uint32_t>(frames.size()), 0}));
    return table.bytes();
  }
  // What nothing refers to makes way where it is an eighth of the limit, or takes a mebibyte more than the rest.
  bool make_room(std::size_t bytes) {
    constexpr std::size_t kMebi = std::size_t{1} << 20;
    const bool is_at_limit = bytes_ + bytes > limit_;
    if (!is_at_limit && bytes_ <= kMebi) return true;
    std::size_t unused = 0;
    for (const auto& [frames, known] : known_) unused += known.references == 0 ? known.bytes : 0;
    if (unused > kMebi + (bytes_ - unused) || (is_at_limit && unused >= std::max(bytes, limit_ / 8))) forget_unused();
    return bytes_ + bytes <= limit_;
  }
  void forget_unused() {
    std::erase_if(known_, [this](const auto& stack) {
      bytes_ -= stack.second.references == 0 ? stack.second.bytes : 0;
      return stack.second.references == 0;
    });
  }
  void drop_unused() {
    table_->drop_unused();
    forget_unused();
  }
  void keep(std::uint64_t which) {
    if (held_.empty()) return;
    held_.push_back(held_[which % held_.size()]);
    table_->keep(held_.back()->second.id);
    ++held_.back()->second.references;
  }
  void let_go(std::uint64_t count, std::uint64_t which) {
    for (; count != 0 && !held_.empty(); --count, which += 7) {
      std::swap(held_[which % held_.size()], held_.back());
      table_->let_go(held_.back()->second.id);
      --held_.back()->second.references;
      held_.pop_back();
    }
  }
  void limit(std::size_t bytes) {
    table_->set_limit(limit_ = bytes);
    table_->forget_losses();
    lost_ = 0;
  }
  void copy() {
    if (copies_.size() == 3) end_copy();
    Copy& copy = copies_.emplace_back();
    table_->copy_to(copy.copy);
    copy.stacks.resize(most_);
    for (const auto& [frames, known] : known_) copy.stacks[known.id - 1] = frames;
  }
  void end_copy() {
    const auto& [copy, stacks] = copies_.front();
    require(
        std::ranges::equal(copy.stacks, stacks, [](FramesView a, FramesView b) { return std::ranges::equal(a, b); }),
        "a copy has what there was");
    copies_.pop_front();
  }
  void compare() const {
    require(table_->size() == known_.size() && table_->bytes() == bytes_, "how many there are, and what they take");
    require(table_->stacks_of_copy() == most_, "numbers are used again before there are more");
    require(table_->lost() == lost_, "how many were lost");
    if (most_ < 50) compare_all();
  }
  void compare_all() const {
    std::vector<std::uint64_t> references(most_);
    std::vector<FramesView> stacks(most_);
    for (const auto& [frames, known] : known_) {
      if (known.references == 0) continue;
      references[known.id - 1] = known.references;
      stacks[known.id - 1] = frames;
      require(std::ranges::equal(table_->frames_of(known.id), frames), "a stack that is referred to is what it was");
    }
    // One reference is nobody's that is known.
    if (!held_.empty()) --references[held_[0]->second.id - 1];
    table_->check(references, held_.empty() ? 0 : 1);
    std::size_t at = 0;
    table_->for_each([&](FramesView frames) {
      require(at < most_ && std::ranges::equal(frames, stacks[at++]), "all that are referred to, by number");
    });
    require(at == most_, "all numbers are visited");
  }

  std::uint64_t hash_mask_;
  std::optional<RawStackTable> table_;
  std::map<Frames, Known> known_;
  std::vector<std::map<Frames, Known>::iterator> held_;  // for each reference
  std::deque<Copy> copies_;                              // the oldest first
  std::size_t most_ = 0;                                 // that were known at a time
  std::size_t bytes_ = 0;
  std::size_t lost_ = 0;
  std::size_t limit_ = kNoLimit;
  std::size_t interned_ = 0;
  std::uintptr_t next_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Steps steps(data, size);
  Program program(steps.byte());
  while (steps.more()) program.step(steps);
  program.finish();
  return 0;
}
