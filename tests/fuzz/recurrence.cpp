// Steps that are followed where they come again, beside a heap that carries each out: requests, frees, rounds of what
// was done last, and who looks in between.

#include "allocator/recurrence.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"
#include "tests/recurrence_heap.h"

#include <iterator>
#include <vector>

namespace {

struct Step {
  bool is_free = false;
  std::uint64_t number = 0;  // sizes in bytes; of a free which block, by address
};

void carry_out(cistern::FollowedHeap& heap, const Step& step) {
  if (!step.is_free) {
    heap.allocate(1 + step.number);
  } else if (!heap.live().empty()) {
    const auto which = static_cast<std::ptrdiff_t>(step.number % heap.live().size());
    heap.free(std::next(heap.live().begin(), which)->first);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  FollowedHeap heap(600);
  std::vector<Step> done;
  Steps steps(data, size);
  const auto take = [&](const Step& step) {
    if (!step.is_free && heap.live().size() >= 64) return;
    carry_out(heap, step);
    done.push_back(step);
  };
  while (steps.more() && done.size() < 20000) {
    const std::uint64_t kind = steps.byte();
    switch (kind % 4) {
      case 0:
        take({false, kind / 4 * 97});
        break;
      case 1:
        take({true, kind / 4});
        break;
      case 2: {
        const std::size_t round = std::min<std::size_t>(done.size(), 1 + steps.byte());
        const std::size_t first = done.size() - round;
        for (std::uint64_t times = kind / 4 * 4; times != 0; --times)
          for (std::size_t i = 0; i < round && done.size() < 20000; ++i) take(Step(done[first + i]));
        break;
      }
      default:
        heap.look(kind / 4 % 2 == 0);
    }
  }
  heap.look();
  return 0;
}
