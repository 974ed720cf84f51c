// What came last with a remainder, beside all that came.

#include "allocator/latest_finds.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <array>
#include <utility>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  constexpr std::size_t kPlaces = 16;
  std::array<int, 32> values{};
  LatestFinds<int, kPlaces> finds;
  std::array<std::pair<std::uint64_t, int*>, kPlaces> latest{};  // by remainder
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t key = 1 + steps.word() % (4 * kPlaces);
    auto& [there, value] = latest[key % kPlaces];
    if (kind % 4 == 0) {
      finds.erase(key);
      if (there == key) there = 0;
    } else if (kind % 4 != 1) {
      there = key;
      value = &values[kind / 8];
      finds.put(key, value);
    }
    require(finds.find(key) == (there == key ? value : nullptr), "what came last is found, and by its own key");
  }
  for (std::uint64_t key = 1; key <= 4 * kPlaces; ++key) {
    const auto& [there, value] = latest[key % kPlaces];
    require(finds.find(key) == (there == key ? value : nullptr), "in the end, too");
  }
  return 0;
}
