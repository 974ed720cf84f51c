// Numbers in a tree of bits beside a standard set: they come and go anywhere, alone and side by side, and it grows.

#include "allocator/bit_tree.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace cistern {
namespace {

using Bits = BitTree<3>;

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps) {}

  void run() {
    while (steps_.more()) step();
    std::size_t at = 0;
    for (const std::size_t number : expected_) {
      require(bits_.next(at) == number, "all are there, in order");
      at = number + 1;
    }
    require(bits_.next(at) == Bits::kNone, "nothing else is there");
  }

 private:
  void step() {
    const std::uint64_t kind = steps_.byte();
    const auto number = static_cast<std::size_t>((steps_.word() * 4 + kind % 4) % Bits::kMost);
    compare(number);
    if (kind % 8 < 4)
      set(number, 1 + kind / 8);
    else if (kind % 8 < 7)
      clear(number, 1 + kind / 8);
    else
      provide(number);
    require(bits_.empty() == expected_.empty(), "whether there is any");
  }
  void compare(std::size_t from) {
    const auto next = expected_.lower_bound(from);
    require(bits_.next(from) == (next == expected_.end() ? Bits::kNone : *next), "the first that is not below");
    const auto behind = expected_.upper_bound(from);
    require(bits_.previous(from) == (behind == expected_.begin() ? Bits::kNone : *std::prev(behind)),
            "the last that is not above");
  }
  void provide(std::size_t numbers) {
    bits_.provide(numbers);
    room_ = std::max(room_, numbers);
  }
  // So many side by side.
  void set(std::size_t number, std::uint64_t count) {
    for (; count > 0 && number < room_; --count, ++number) {
      bits_.set(number);
      expected_.insert(number);
    }
  }
  void clear(std::size_t number, std::uint64_t count) {
    for (; count > 0; --count) {
      const auto gone = expected_.lower_bound(number);
      if (gone == expected_.end()) return;
      bits_.clear(*gone);
      expected_.erase(gone);
    }
  }

  Steps steps_;
  Bits bits_;
  std::set<std::size_t> expected_;
  std::size_t room_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program(Steps(data, size)).run();
  return 0;
}
