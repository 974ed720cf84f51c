// The way of blocks back to who allocates, beside a queue: nothing is lost, doubled or overtaken, whether one thread
// returns them or two in turn. (Every order of two threads' steps is tests/allocator/returned_blocks_test.cpp's.)

#include "allocator/returned_blocks.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <array>
#include <deque>

namespace cistern {
namespace {

// Which of two threads this one is, as the input has it.
struct InTurn : HostProcessors {
  static inline std::array<ThreadMark, 2> marks{};
  static inline std::size_t now = 0;
  [[nodiscard]] static Thread this_thread() noexcept { return &marks[now]; }
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  BasicReturnedBlocks<InTurn> returned;
  std::deque<std::uint64_t> expected;
  std::uint64_t next = 512;
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t kind = steps.byte();
    InTurn::now = steps.byte() / 192;
    for (std::uint64_t i = 0; i <= kind / 2 % 128; ++i) {
      require(returned.is_surely_empty() == expected.empty(), "whether there are any");
      require(returned.first() == (expected.empty() ? 0 : expected.front()), "the oldest");
      if (kind % 2 == 0) {
        const bool has_room = expected.size() < ReturnedBlocks::kPlaces;
        require(returned.put(next) == has_room, "there is room as long as places are empty");
        if (has_room) expected.push_back(next);
        next += 512;
      } else if (!expected.empty()) {
        returned.drop_first();
        expected.pop_front();
      }
    }
  }
  return 0;
}
