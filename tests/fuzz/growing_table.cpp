// Tables and lists that grow where they are beside vectors: what was written is there however they grow and change
// hands, and what cannot be had leaves all as it was.

#include "allocator/growing_table.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// So many have pages, or are written; addresses alone are had for more.
constexpr std::size_t kMostProvided = 4'000;
constexpr std::size_t kMostExpected = std::size_t{1} << 20;

// Of which some lie across the ends of pages.
using Large = std::array<std::uint64_t, 5>;
using Table = GrowingTable<Large>;
using List = GrowingList<std::uint32_t>;

Large element_from(const Table& /*table*/, std::uint32_t number) {
  return {number, number + 1, number + 2, number + 3, number + 4};
}
std::uint32_t element_from(const List& /*list*/, std::uint32_t number) { return number; }

// A table does not know how many of its elements are in use.
std::size_t room_of(const Table& table) { return table.size(); }
std::size_t room_of(const List& list) { return list.room(); }
void append(Table& table, std::size_t at, const Large& element) { table[at] = element; }
// What a longer one has anew is not initialised.
void append(List& list, std::size_t at, std::uint32_t element) {
  if (at % 2 == 0) {
    list.push_back(element);
  } else {
    list.resize(at + 1);
    list[at] = element;
  }
  require(list.back() == element, "the last one");
}
void shorten(Table& /*table*/, std::size_t /*size*/) {}
void shorten(List& list, std::size_t size) {
  if (size == 0) return list.clear();
  if (size % 2 == 0) return list.resize(size);
  while (list.size() > size) list.pop_back();
}
void compare(const Table& table, const std::vector<Large>& expected) {
  require(table.size() >= expected.size(), "there is room for what is there");
  require(std::equal(expected.begin(), expected.end(), table.data()), "what was written is there");
}
void compare(const List& list, const std::vector<std::uint32_t>& expected) {
  require(list.size() == expected.size() && list.empty() == expected.empty(), "how many there are");
  require(std::equal(list.begin(), list.end(), expected.begin(), expected.end()), "all of them are there");
}

// Several, so that they lie in each other's way.
template <class Array>
class Program {
 public:
  void step(std::uint64_t kind, std::uint64_t text) {
    const std::size_t of = kind / 8 % arrays_.size();
    if (kind % 8 < 2)
      grow(arrays_[of], text, true);
    else if (kind % 8 == 2)
      grow(arrays_[of], text, false);
    else if (kind % 8 < 5)
      write(of, 1 + text % 512);
    else if (kind % 8 == 5)
      keep(of, expected_[of].size() * (text % 16) / 16);
    else if (kind % 8 == 6)
      change_hands(of, text % arrays_.size());
    else
      refuse(arrays_[of], text);
    for (std::size_t i = 0; i < arrays_.size(); ++i) compare(arrays_[i], expected_[i]);
  }

 private:
  using Element = decltype(element_from(Array(), 0));

  // With pages or without.
  static void grow(Array& array, std::uint64_t text, bool is_provided) {
    const std::size_t before = room_of(array);
    const std::size_t any = text * 16 % (is_provided ? kMostProvided : kMostExpected);
    const std::size_t elements = text % 4 == 0 ? text / 4 % 64 : any;
    is_provided ? array.provide(elements) : array.expect(elements);
    const std::size_t room = room_of(array);
    require(elements > before ? room >= elements : room == before, "there is room, and no more where there was");
    require(!is_provided || room == before || room >= 2 * before, "twice as much, so that it seldom grows");
  }
  // More than there are addresses for; or so many that their bytes would be counted as few.
  static void refuse(Array& array, std::uint64_t text) {
    const std::size_t before = room_of(array);
    const std::size_t uncounted = std::numeric_limits<std::size_t>::max() / sizeof(Element) + 1000;
    const std::size_t elements = text % 2 == 0 ? std::size_t{1} << 57 : uncounted;
    bool is_refused = false;
    try {
      text % 4 < 2 ? array.provide(elements) : array.expect(elements);
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
    require(is_refused && room_of(array) == before, "what cannot be had is refused, and changes nothing");
  }
  // Up to the end of the room.
  void write(std::size_t of, std::uint64_t count) {
    auto& expected = expected_[of];
    const std::size_t most = std::min(room_of(arrays_[of]), kMostProvided);
    for (; count != 0 && expected.size() < most; --count) {
      expected.push_back(element_from(arrays_[of], ++last_));
      append(arrays_[of], expected.size() - 1, expected.back());
    }
  }
  void keep(std::size_t of, std::size_t size) {
    shorten(arrays_[of], size);
    expected_[of].resize(size);
    if (size == 0) return;
    arrays_[of][size / 2] = expected_[of][size / 2] = element_from(arrays_[of], ++last_);
  }
  // Each has what the other had; or what there was ends, and another one begins.
  void change_hands(std::size_t of, std::size_t with) {
    if (of != with) {
      arrays_[with] = std::move(arrays_[of]);
      return std::swap(expected_[with], expected_[of]);
    }
    const Array moved(std::move(arrays_[of]));
    compare(moved, expected_[of]);
    require(room_of(arrays_[of]) == 0, "what was moved from has no room");
    expected_[of].clear();
  }

  std::array<Array, 3> arrays_;
  std::array<std::vector<Element>, 3> expected_;
  std::uint32_t last_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program<Table> tables;
  Program<List> lists;
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t which = steps.byte();
    const std::uint64_t kind = steps.byte();
    which % 2 == 0 ? tables.step(kind, steps.word()) : lists.step(kind, steps.word());
  }
  return 0;
}
