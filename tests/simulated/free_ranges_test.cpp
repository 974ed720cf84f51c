#include "runtime/simulated/free_ranges.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace cistern::simulated {
namespace {

TEST(FreeRanges, TakesTheLowestAddressThatFits) {
  FreeRanges ranges;
  ranges.give_back(100, 10);
  ranges.give_back(0, 5);
  ranges.give_back(200, 50);
  EXPECT_EQ(ranges.take_first_fit(8), 100u);
  EXPECT_EQ(ranges.take_first_fit(3), 0u);
  EXPECT_EQ(ranges.take_first_fit(8), 200u);
  EXPECT_EQ(ranges.take_first_fit(2), 3u);
  EXPECT_EQ(ranges.take_first_fit(43), std::nullopt);
}

TEST(FreeRanges, MergesBothNeighbours) {
  FreeRanges ranges;
  ranges.give_back(0, 10);
  ranges.give_back(20, 10);
  ranges.give_back(10, 10);
  EXPECT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges.take_first_fit(30), 0u);
}

TEST(FreeRanges, DoesNotMergeAcrossItsBoundary) {
  FreeRanges ranges(16);
  ranges.give_back(0, 16);
  ranges.give_back(16, 16);
  EXPECT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges.take_first_fit(17), std::nullopt);
  EXPECT_EQ(ranges.take_first_fit(16), 0u);
}

TEST(FreeRanges, AlignmentLeavesTheHeadFree) {
  FreeRanges ranges;
  ranges.give_back(3, 61);
  EXPECT_EQ(ranges.take_first_fit(8, 32), 32u);
  EXPECT_EQ(ranges.take_first_fit(29), 3u);
  EXPECT_EQ(ranges.take_first_fit(24), 40u);
  EXPECT_EQ(ranges.size(), 0u);
}

TEST(FreeRanges, TakesAnExactRangeOnlyIfAllOfItIsFree) {
  FreeRanges ranges;
  ranges.give_back(10, 10);
  EXPECT_FALSE(ranges.take(5, 6));
  EXPECT_FALSE(ranges.take(15, 6));
  EXPECT_FALSE(ranges.take(30, 1));
  EXPECT_TRUE(ranges.take(12, 5));
  EXPECT_FALSE(ranges.take(12, 1));
  EXPECT_EQ(ranges.size(), 2u);
}

// One flag a unit of address: slow, and plainly right.
class NaiveRanges {
 public:
  explicit NaiveRanges(std::size_t units) : free_(units, true) {}
  std::optional<std::uint64_t> take_first_fit(std::size_t bytes, std::size_t alignment) {
    for (std::size_t begin = 0; begin + bytes <= free_.size(); begin += alignment) {
      if (set(begin, bytes, true, false)) return begin;
    }
    return std::nullopt;
  }
  // Turns the range over if all of it is `from`.
  bool set(std::size_t begin, std::size_t bytes, bool from, bool to) {
    for (std::size_t i = begin; i < begin + bytes; ++i) {
      if (i >= free_.size() || free_[i] != from) return false;
    }
    for (std::size_t i = begin; i < begin + bytes; ++i) free_[i] = to;
    return true;
  }
  [[nodiscard]] std::size_t runs() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < free_.size(); ++i) count += free_[i] && (i == 0 || !free_[i - 1]) ? 1 : 0;
    return count;
  }

 private:
  std::vector<bool> free_;
};

RC_GTEST_PROP(FreeRanges, AnyProgramAgreesWithTheNaiveOne, ()) {
  constexpr std::size_t units = 200;
  FreeRanges ranges;
  ranges.give_back(0, units);
  NaiveRanges naive(units);
  struct Taken {
    std::uint64_t begin;
    std::size_t bytes;
  };
  std::vector<Taken> taken;
  const auto steps = *rc::gen::inRange(1, 300);
  for (int step = 0; step < steps; ++step) {
    const auto bytes = *rc::gen::inRange<std::size_t>(1, 30);
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
      case 1: {
        const std::size_t alignment = std::size_t{1} << *rc::gen::inRange(0, 5);
        const auto place = ranges.take_first_fit(bytes, alignment);
        RC_ASSERT(place == naive.take_first_fit(bytes, alignment));
        if (place) taken.push_back({*place, bytes});
        break;
      }
      case 2: {
        const auto begin = *rc::gen::inRange<std::size_t>(0, units);
        const bool success = ranges.take(begin, bytes);
        RC_ASSERT(success == naive.set(begin, bytes, true, false));
        if (success) taken.push_back({begin, bytes});
        break;
      }
      default: {
        if (taken.empty()) break;
        const auto chosen = *rc::gen::inRange<std::size_t>(0, taken.size());
        ranges.give_back(taken[chosen].begin, taken[chosen].bytes);
        RC_ASSERT(naive.set(taken[chosen].begin, taken[chosen].bytes, false, true));
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(chosen));
      }
    }
    RC_ASSERT(ranges.size() == naive.runs());
  }
}

}  // namespace
}  // namespace cistern::simulated
