// The directory of pages, and the map of numbers that it is made of, beside standard maps.

#include "allocator/page_directory.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <array>
#include <unordered_map>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  std::array<int, 16> values{};
  PageDirectory<int> directory;
  PublishedMap<int> map;
  std::unordered_map<std::uint64_t, int*> pages;
  std::unordered_map<std::uint64_t, int*> numbers;
  const auto expected = [](const std::unordered_map<std::uint64_t, int*>& in, std::uint64_t key) {
    const auto place = in.find(key);
    return place == in.end() ? nullptr : place->second;
  };
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t number = 1 + steps.word() % 600 + (kind & 64) * 0x10'0000;
    int* const value = &values[kind % values.size()];
    require(directory.find(number) == expected(pages, number), "what a page is");
    int* const recent = directory.find_recent(number);
    require(recent == nullptr || recent == expected(pages, number), "what a page that is found at once is");
    require(map.find(number) == expected(numbers, number), "what a number is");
    require(map.contains(number) == numbers.contains(number), "which numbers there are");
    if ((kind & 128) == 0) {
      const std::uint64_t last = number + kind % 8;
      directory.reserve(number, last);
      for (std::uint64_t page = number; page <= last; ++page) {
        directory.put(page, value);
        pages[page] = value;
      }
      map.reserve(1);
      require(map.has_room(1), "there is room when it was made");
      map.put(number, value);
      numbers[number] = value;
    } else {
      directory.erase(number);
      pages.erase(number);
      map.erase(number);
      numbers.erase(number);
    }
    require(map.size() == numbers.size(), "how many numbers there are");
  }
  for (const auto& [page, value] : pages) require(directory.find(page) == value, "all pages are found");
  for (const auto& [number, value] : numbers) require(map.find(number) == value, "all numbers are found");
  return 0;
}
