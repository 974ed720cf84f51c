// The index of numbers by a hash beside a list of what is in it: hashes that have much in common, so that segments are
// parted, and parted in vain.

#include "allocator/hash_index.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <vector>

namespace cistern {
namespace {

class Program {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t low = steps.word();
    const auto tag = static_cast<HashIndex::Tag>(low | steps.word() << 16);
    switch (kind % 8) {
      case 0:
      case 1:
        // Side by side in a segment, or far apart.
        for (std::uint64_t i = 0; i < kind; ++i)
          add(tag + static_cast<HashIndex::Tag>(i * (kind % 3 == 0 ? 1 : 0x9E3779B9U)));
        break;
      case 2:
        for (std::uint64_t i = 0; i < kind / 4; ++i) add(tag & 0xFF0001FFU);
        break;
      case 3:
        return add(tag);
      case 4:
      case 5:
        for (std::uint64_t i = 0; i < 1 + kind / 8; ++i) remove(tag + i * 7);
        break;
      case 6:
        return replace(tag);
      default:
        if (kind > 200) {
          index_.clear();
          known_.clear();
        }
        compare();
    }
  }
  void compare() const {
    index_.audit();
    require(index_.size() == known_.size(), "how many there are");
    for (const Known& known : known_) require(find(known) == known.number, "what is there is found");
  }

 private:
  struct Known {
    HashIndex::Tag tag = 0;
    HashIndex::Number number = 0;
  };

  [[nodiscard]] HashIndex::Number find(const Known& known) const {
    index_.fetch(known.tag);
    return index_.find(known.tag, [&](HashIndex::Number number) { return number == known.number; });
  }
  void add(HashIndex::Tag tag) {
    const Known added{tag, next_++};
    require(find(added) == HashIndex::kNone, "what is not there is not found");
    // Now and then there is no room: then it may fit or not.
    if (next_ % 64 != 0) index_.provide(1);
    if (index_.add(tag, added.number)) known_.push_back(added);
  }
  void remove(std::uint64_t which) {
    if (known_.empty()) return;
    std::swap(known_[which % known_.size()], known_.back());
    const Known gone = known_.back();
    known_.pop_back();
    index_.remove(gone.tag, gone.number);
    require(find(gone) == HashIndex::kNone, "what went is not found");
  }
  void replace(std::uint64_t which) {
    if (known_.empty()) return;
    Known& known = known_[which % known_.size()];
    index_.replace(known.tag, known.number, next_);
    require(find(known) == HashIndex::kNone, "what was replaced is not found");
    known.number = next_++;
    require(find(known) == known.number, "what replaced it is found");
  }

  HashIndex index_;
  std::vector<Known> known_;
  HashIndex::Number next_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program program;
  Steps steps(data, size);
  while (steps.more()) program.step(steps);
  program.compare();
  return 0;
}
