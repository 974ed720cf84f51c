// The map of live blocks beside a standard one: addresses that collide, buckets that pass blocks on.

#include "allocator/block_map.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <memory>
#include <unordered_map>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  BlockMap map;
  std::unordered_map<std::uint64_t, std::unique_ptr<Block>> expected;
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t kind = steps.byte();
    // Few, so that they come again; from two heaps' worth of address space.
    const std::uint64_t address = 512 * (1 + steps.word() % 2048) + (kind & 64) * (std::uint64_t{1} << 34);
    const auto known = expected.find(address);
    Block* const block = known == expected.end() ? nullptr : known->second.get();
    require(map.find(address) == block, "what is found");
    require(map.place_of(address).block == block, "what is at its place");
    if (block == nullptr) {
      if (kind % 16 == 0) map.reserve(kind);
      map.make_room();
      require(map.has_room(), "there is room when it was made");
      std::unique_ptr<Block>& came = expected[address] = std::make_unique<Block>();
      came->address = address;
      map.insert(came.get());
    } else {
      if (kind % 2 == 0)
        map.erase(address);
      else
        map.erase(map.place_of(address));
      expected.erase(known);
    }
    require(map.size() == expected.size(), "how many there are");
  }
  for (const auto& [address, block] : expected) require(&map.at(address) == block.get(), "all that should be there is");
  return 0;
}
