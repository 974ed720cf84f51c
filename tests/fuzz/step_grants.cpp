// Room for steps of several streams, beside what each of them has.

#include "allocator/step_grants.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <array>
#include <numeric>
#include <utility>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  StepGrants grants;
  std::array<std::size_t, 8> rooms{};  // by stream
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t kind = steps.byte();
    std::size_t& own = rooms[kind % rooms.size()];
    const std::size_t amount = steps.word();
    const std::size_t most = 128 * steps.byte();  // which grows and shrinks with the heap
    const std::size_t all = std::accumulate(rooms.begin(), rooms.end(), std::size_t{0});
    const std::size_t left = all - own < most ? most - (all - own) : 0;
    require(grants.left_beside(own, most) == left, "what is left beside the others'");
    if (kind < 64) {
      const std::size_t back = amount % (own + 1);
      grants.take_back(back);
      own -= back;
    } else {
      const bool is_granted = grants.grant(amount, most);
      require(is_granted == (amount == 0 || all + amount <= most), "as much as there is room for, or nothing");
      if (is_granted) own += amount;
    }
  }
  for (std::size_t& own : rooms) grants.take_back(std::exchange(own, 0));
  require(grants.left_beside(0, 1000) == 1000, "all of it comes back");
  return 0;
}
