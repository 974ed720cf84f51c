#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/options/refusal.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Buckets = std::array<std::uint32_t, 16>;

Buckets divisions(const std::string& value, const std::string& rules = "current") {
  return AllocatorOptions::parse("roundup_power2_divisions:" + value + ",pytorch_rules:" + rules)
      .roundup_power2_divisions;
}

Buckets all(std::uint32_t divisions) {
  Buckets buckets;
  buckets.fill(divisions);
  return buckets;
}

TEST(Divisions, SingleNumberSetsAllBuckets) {
  EXPECT_EQ(divisions("4"), all(4));
  EXPECT_EQ(divisions("1"), all(1));
}

TEST(Divisions, FillUpwardsStartsAboveTheLastBoundaryUnderTheCurrentRules) {
  EXPECT_EQ(divisions("[256:1,512:2,1024:4,>:8]"), (Buckets{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8}));
}

TEST(Divisions, FillUpwardsOverwritesTheLastBoundaryUnderTheOldRules) {
  EXPECT_EQ(divisions("[256:1,512:2,1024:4,>:8]", "2.4"), (Buckets{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8}));
}

TEST(Divisions, FirstPairFillsTheBucketsBelow) {
  EXPECT_EQ(divisions("[16:8]"), (Buckets{8, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Divisions, GapsBetweenBoundariesAreOff) {
  EXPECT_EQ(divisions("[2:4,32:8]"), (Buckets{4, 4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Divisions, BoundariesAboveTheLastBucketBelongToIt) {
  EXPECT_EQ(divisions("[1:0,1048576:4]")[15], 4u);
  EXPECT_EQ(divisions("[32768:2,>:4]"), all(2));
  EXPECT_EQ(divisions("[32768:2,>:4]", "2.4")[15], 4u);
}

TEST(Divisions, FillUpwardsAloneFollowsEachRule) {
  Buckets above_the_first = all(8);
  above_the_first[0] = 0;
  EXPECT_EQ(divisions("[>:8]"), above_the_first);
  EXPECT_EQ(divisions("[>:8]", "2.4"), all(8));
}

TEST(Divisions, ListsAllowZeroASingleNumberDoesNot) {
  EXPECT_EQ(divisions("[1:0,2:4]")[0], 0u);
  EXPECT_THAT(refusal("roundup_power2_divisions:0"), HasSubstr("power of two"));
}

TEST(Divisions, OtherNumbersAreRefusedNamingThem) {
  for (const char* value : {"3", "-4", "4x", "6", "4294967296", "18446744073709551616"}) {
    EXPECT_THAT(refusal(std::string("roundup_power2_divisions:") + value),
                AllOf(HasSubstr("roundup_power2_divisions"), HasSubstr(value), HasSubstr("power of two")));
    EXPECT_THAT(refusal(std::string("roundup_power2_divisions:[256:") + value + "]"),
                AllOf(HasSubstr(value), HasSubstr("power of two")));
  }
  for (const char* boundary : {"0", "3", "-1", "<", ">>", "256x"})
    EXPECT_THAT(refusal(std::string("roundup_power2_divisions:[") + boundary + ":4]"),
                AllOf(HasSubstr(boundary), HasSubstr("power of two in MiB")));
}

TEST(Divisions, LaterListReplacesAnEarlierOneWholly) {
  EXPECT_EQ(
      AllocatorOptions::parse("roundup_power2_divisions:8,roundup_power2_divisions:[1:2]").roundup_power2_divisions,
      (Buckets{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Divisions, DescriptionReadsBack) {
  for (const char* value : {"4", "[256:1,512:2,1024:4,>:8]", "[1:0,2:4]"}) {
    const AllocatorOptions options = AllocatorOptions::parse(std::string("roundup_power2_divisions:") + value);
    const std::string description = options.describe();
    const std::size_t start = description.find("roundup_power2_divisions: ");
    const std::string line = description.substr(start, description.find('\n', start) - start);
    EXPECT_EQ(AllocatorOptions::parse(line).roundup_power2_divisions, options.roundup_power2_divisions) << line;
  }
}

}  // namespace
}  // namespace cistern
