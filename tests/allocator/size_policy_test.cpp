#include "allocator/size_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace cistern {
namespace {

SizePolicy policy(std::string_view text) { return SizePolicy(AllocatorOptions::parse(text)); }

struct EmptyCacheRow {
  std::size_t request, rounded;
  PoolKind pool;
  std::size_t segment, handed_out;
};

// The table of an empty cache without options: what each request becomes.
TEST(SizePolicy, EmptyCacheTable) {
  const std::vector<EmptyCacheRow> rows = {
      {1, 512, PoolKind::small, 2 * kMiB, 512},
      {1000, 1024, PoolKind::small, 2 * kMiB, 1024},
      {1048576, 1048576, PoolKind::small, 2 * kMiB, 1048576},
      {1048577, 1049088, PoolKind::large, 20 * kMiB, 1049088},
      {3145729, 3146240, PoolKind::large, 20 * kMiB, 3146240},
      {10485248, 10485248, PoolKind::large, 20 * kMiB, 10485248},
      {10485759, 10485760, PoolKind::large, 10 * kMiB, 10485760},
      {10485761, 10486272, PoolKind::large, 12 * kMiB, 10486272},
      {15728640, 15728640, PoolKind::large, 16 * kMiB, 16777216},
      {15728641, 15729152, PoolKind::large, 16 * kMiB, 16777216},
      {22020096, 22020096, PoolKind::large, 22 * kMiB, 23068672},
  };
  const SizePolicy rules = policy("");
  for (const EmptyCacheRow& row : rows) {
    const std::size_t rounded = rules.round(row.request);
    EXPECT_EQ(rounded, row.rounded) << row.request;
    EXPECT_EQ(rules.pool(rounded), row.pool) << row.request;
    EXPECT_EQ(rules.segment_bytes(rounded), row.segment) << row.request;
    const bool split = rules.should_split(row.segment, rounded, row.pool);
    EXPECT_EQ(split ? rounded : row.segment, row.handed_out) << row.request;
  }
}

struct DivisionsRow {
  std::size_t request, off, two, four, eight;
};

TEST(SizePolicy, DivisionsTable) {
  const std::vector<DivisionsRow> rows = {
      {1200, 1536, 1536, 1536, 1536},
      {2049, 2560, 3072, 2560, 2560},
      {5000, 5120, 6144, 5120, 5120},
      {100000, 100352, 131072, 114688, 106496},
      {1048577, 1049088, 1572864, 1310720, 1179648},
      {3145729, 3146240, 4194304, 3670016, 3407872},
      {104857601, 104858112, 134217728, 117440512, 109051904},
      {1500000000, 1500000256, 1610612736, 1610612736, 1610612736},
  };
  for (const DivisionsRow& row : rows) {
    EXPECT_EQ(policy("").round(row.request), row.off) << row.request;
    EXPECT_EQ(policy("roundup_power2_divisions:2").round(row.request), row.two) << row.request;
    EXPECT_EQ(policy("roundup_power2_divisions:4").round(row.request), row.four) << row.request;
    EXPECT_EQ(policy("roundup_power2_divisions:8").round(row.request), row.eight) << row.request;
  }
}

TEST(SizePolicy, PowersOfTwoStayUnderDivisions) {
  for (std::size_t bytes = 8192; bytes < kTooLarge; bytes *= 2)
    EXPECT_EQ(policy("roundup_power2_divisions:4").round(bytes), bytes);
}

TEST(SizePolicy, OversizeBlocksServeOnlyOversizeRequestsOfNearlyTheirSize) {
  const SizePolicy rules = policy("max_split_size_mb:64");
  EXPECT_FALSE(rules.may_serve(64 * kMiB, 63 * kMiB));
  EXPECT_TRUE(rules.may_serve(64 * kMiB, 64 * kMiB));
  EXPECT_TRUE(rules.may_serve(84 * kMiB - 512, 64 * kMiB));
  EXPECT_FALSE(rules.may_serve(84 * kMiB, 64 * kMiB));
  EXPECT_FALSE(rules.should_split(84 * kMiB, 64 * kMiB, PoolKind::large));
  EXPECT_TRUE(rules.should_split(63 * kMiB, 32 * kMiB, PoolKind::large));
}

TEST(SizePolicy, DirectAsksForWhatIsNeeded) {
  const SizePolicy rules = policy("policy:direct");
  EXPECT_EQ(rules.segment_bytes(rules.round(1)), 512U);
  EXPECT_EQ(rules.segment_bytes(rules.round(3145729)), 3146240U);
}

}  // namespace
}  // namespace cistern
