// Steps that are followed where they come again, beside a heap that carries each out: requests, uses, frees and their
// ends, rounds of what was done last, and who looks in between.

#include "allocator/recurrence.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"
#include "tests/recurrence_heap.h"

#include <iterator>
#include <set>
#include <vector>

namespace {

enum class Kind { allocation, free, use, end };

struct Step {
  Kind kind = Kind::allocation;
  std::uint64_t number = 0;  // sizes in bytes; else which block, by address
};

// The one that the step is about.
template <class Blocks>
[[nodiscard]] auto chosen(const Blocks& blocks, const Step& step) {
  return std::next(blocks.begin(), static_cast<std::ptrdiff_t>(step.number % blocks.size()));
}

void carry_out(cistern::FollowedHeap& heap, const Step& step) {
  if (step.kind == Kind::allocation) return static_cast<void>(heap.allocate(1 + step.number));
  const std::set<std::uint64_t>& waiting = heap.plain().waiting();
  if (step.kind == Kind::end) {
    if (!waiting.empty()) heap.end(*chosen(waiting, step));
    return;
  }
  if (heap.live().empty()) return;
  const std::uint64_t address = chosen(heap.live(), step)->first;
  if (waiting.contains(address)) return;
  if (step.kind == Kind::free)
    heap.free(address);
  else if (!heap.plain().used().contains(address))
    heap.use(address);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  FollowedHeap heap(600);
  std::vector<Step> done;
  Steps steps(data, size);
  const auto take = [&](const Step& step) {
    if (step.kind == Kind::allocation && heap.live().size() >= 64) return;
    carry_out(heap, step);
    done.push_back(step);
  };
  while (steps.more() && done.size() < 20000) {
    const std::uint64_t kind = steps.byte();
    switch (kind % 4) {
      case 0:
        take({Kind::allocation, kind / 4 * 97});
        break;
      case 1:
        take({kind / 4 % 8 < 5 ? Kind::free : kind / 4 % 8 == 5 ? Kind::use : Kind::end, kind / 4});
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
