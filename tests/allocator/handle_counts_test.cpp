// How many handles of each size a run has, and since when handles are unused.

#include "allocator/handle_counts.h"

#include "allocator/handle_ages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace cistern {
namespace {

using Counted = std::vector<std::pair<int, std::int32_t>>;

Counted all_of(const HandleCounts& counts) {
  Counted found;
  counts.for_each([&](int size_class, std::int32_t count) { found.emplace_back(size_class, count); });
  return found;
}

TEST(HandleCountsTest, AClassIsAPowerOfTwoOfPages) {
  EXPECT_EQ(HandleCounts::class_of(1), 0);
  EXPECT_EQ(HandleCounts::class_of(8), 3);
  EXPECT_EQ(HandleCounts::class_of(std::int32_t{1} << 30), HandleCounts::kClasses - 1);
}

TEST(HandleCountsTest, AClassIsThereAsLongAsItHasAny) {
  HandleCounts counts;
  EXPECT_EQ(counts.classes(), 0U);
  counts.add(3, 2);
  counts.add(0, 1);
  EXPECT_EQ(all_of(counts), (Counted{{0, 1}, {3, 2}}));
  EXPECT_EQ(counts.of(1), 0);
  counts.add(3, -2);
  EXPECT_EQ(all_of(counts), (Counted{{0, 1}}));
  EXPECT_EQ(counts.of(3), 0);
  counts.add(3, 5);
  EXPECT_EQ(counts.of(3), 5) << "nothing of before";
}

TEST(HandleCountsTest, SumsAndDifferencesAreOfEachClass) {
  HandleCounts some;
  some.add(0, 3);
  some.add(5, 1);
  HandleCounts others;
  others.add(5, 2);
  others.add(30, 4);
  HandleCounts sum = some;
  sum += others;
  EXPECT_EQ(all_of(sum), (Counted{{0, 3}, {5, 3}, {30, 4}}));
  sum -= some;
  EXPECT_EQ(sum, others);
  EXPECT_FALSE(sum == some);
  sum.add(30, 1);
  EXPECT_FALSE(sum == others) << "the same classes, and one more";
}

// A look gives its time to what was used since the one before.
TEST(HandleAgesTest, AHandleIsUnusedSinceTheFirstLookAfterItsUse) {
  HandleAges ages;
  ages.provide(2);
  ages.keep(true);
  EXPECT_FALSE(ages.is_unused_since(0, 100)) << "no look yet";
  ages.looked_at(0, 10);
  ages.looked_at(1, 10);
  EXPECT_TRUE(ages.is_unused_since(0, 10));
  EXPECT_FALSE(ages.is_unused_since(0, 9));
  ages.used(0);
  EXPECT_FALSE(ages.is_unused_since(0, 100));
  ages.looked_at(0, 20);
  ages.looked_at(1, 20);
  EXPECT_FALSE(ages.is_unused_since(0, 19));
  EXPECT_TRUE(ages.is_unused_since(0, 20));
  EXPECT_TRUE(ages.is_unused_since(1, 10)) << "the other one was not used meanwhile";
}

// Nobody noted what was used before.
TEST(HandleAgesTest, WhenAgesAreKeptAgainAllCountAsUsed) {
  HandleAges ages;
  ages.provide(1);
  ages.keep(true);
  ages.looked_at(0, 10);
  ages.keep(true);
  EXPECT_TRUE(ages.is_unused_since(0, 10)) << "they were kept all the time";
  ages.keep(false);
  EXPECT_FALSE(ages.are_kept());
  ages.keep(true);
  EXPECT_TRUE(ages.are_kept());
  EXPECT_FALSE(ages.is_unused_since(0, 100));
  ages.provide(2);
  EXPECT_FALSE(ages.is_unused_since(1, 100)) << "nor is one that came";
}

}  // namespace
}  // namespace cistern
