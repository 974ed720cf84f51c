// Statistics as maps: the keys and values of torch.cuda.memory_stats.

#include <cistern/stats.h>

#include "stats/fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace cistern {
namespace {

// Every value differs from every other.
MemoryStats distinct_values() {
  MemoryStats stats;
  std::int64_t next = 1000;
  visit_values(stats, [&next](const std::string&, std::int64_t& value) { value = next++; });
  return stats;
}

// The keys as they are documented, written out from their parts.
std::vector<std::string> documented_keys() {
  std::vector<std::string> keys{"max_split_size",  "num_alloc_retries", "num_device_alloc",
                                "num_device_free", "num_ooms",          "num_sync_all_streams"};
  const std::vector<std::string> metrics{"current", "peak", "allocated", "freed"};
  for (const std::string stat : {"allocation", "allocated_bytes", "active", "active_bytes", "requested_bytes",
                                 "segment", "reserved_bytes", "inactive_split", "inactive_split_bytes"})
    for (const std::string pool : {"all", "small_pool", "large_pool"})
      for (const std::string& metric : metrics) keys.push_back(stat + "." + pool + "." + metric);
  for (const std::string stat : {"oversize_allocations", "oversize_segments"})
    for (const std::string& metric : metrics) keys.push_back(stat + "." + metric);
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(MemoryStats, FlatHasThe122DocumentedKeysInStringOrder) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : MemoryStats{}.flat()) keys.push_back(key);
  EXPECT_EQ(keys.size(), 122u);
  EXPECT_EQ(keys, documented_keys());
  EXPECT_EQ(keys.front(), "active.all.allocated");
}

TEST(MemoryStats, FlatGivesEachMemberItsOwnKey) {
  const MemoryStats stats = distinct_values();
  const auto flat = stats.flat();
  EXPECT_EQ(flat.at("allocation.all.current"), stats.allocation.all.current);
  EXPECT_EQ(flat.at("reserved_bytes.large_pool.peak"), stats.reserved_bytes.large_pool.peak);
  EXPECT_EQ(flat.at("requested_bytes.small_pool.freed"), stats.requested_bytes.small_pool.freed);
  EXPECT_EQ(flat.at("inactive_split.all.allocated"), stats.inactive_split.all.allocated);
  EXPECT_EQ(flat.at("oversize_segments.freed"), stats.oversize_segments.freed);
  EXPECT_EQ(flat.at("num_ooms"), stats.num_ooms);
  EXPECT_EQ(flat.at("max_split_size"), stats.max_split_size);
  std::set<std::int64_t> values;
  for (const auto& [key, value] : flat) values.insert(value);
  EXPECT_EQ(values.size(), 122u);
}

void flatten(const NestedStats& stats, const std::string& prefix, std::map<std::string, std::int64_t>& flat) {
  for (const auto& [name, value] : stats.entries) {
    if (const auto* number = std::get_if<std::int64_t>(&value))
      flat.emplace(prefix + name, *number);
    else
      flatten(std::get<NestedStats>(value), prefix + name + ".", flat);
  }
}

TEST(MemoryStats, NestedJoinedWithDotsIsFlat) {
  const MemoryStats stats = distinct_values();
  std::map<std::string, std::int64_t> joined;
  flatten(stats.nested(), "", joined);
  EXPECT_EQ(joined, stats.flat());
}

TEST(MemoryStats, WhatPrivatePoolsHaveReservedIsNamedByTheirIds) {
  const MemoryStats stats = distinct_values();
  PoolStat reserved;
  reserved.large_pool.peak = 5;
  const ReservedByPrivatePool pools{{{0, 12}, reserved}, {{3, 0}, {}}};
  std::map<std::string, std::int64_t> joined;
  flatten(stats.nested(pools), "", joined);
  EXPECT_EQ(joined, stats.flat(pools));
  EXPECT_EQ(joined.size(), 122u + 24u);
  EXPECT_EQ(joined.at("reserved_bytes_by_private_pools.0_12.large_pool.peak"), 5);
  EXPECT_EQ(joined.at("reserved_bytes_by_private_pools.3_0.all.current"), 0);
  EXPECT_EQ(stats.flat({}), stats.flat());
  EXPECT_EQ(stats.nested({}).entries.size(), stats.nested().entries.size());
}

TEST(MemoryStats, NestedHasStatPoolMetric) {
  const NestedStats nested = distinct_values().nested();
  EXPECT_EQ(nested.entries.size(), 17u);
  const auto& pools = std::get<NestedStats>(nested.entries.at("active_bytes")).entries;
  EXPECT_EQ(pools.size(), 3u);
  EXPECT_EQ(std::get<NestedStats>(pools.at("large_pool")).entries.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<std::int64_t>(nested.entries.at("num_ooms")));
}

TEST(MemoryStats, EqualityLooksAtEveryValue) {
  const MemoryStats original = distinct_values();
  MemoryStats changed = original;
  EXPECT_EQ(changed, original);
  visit_values(changed, [&](const std::string& key, std::int64_t& value) {
    ++value;
    EXPECT_NE(changed, original) << key;
    --value;
  });
  EXPECT_EQ(changed, original);
}

TEST(MemoryStats, CanBeFilledByItsKeys) {
  const auto flat = distinct_values().flat();
  MemoryStats read;
  visit_values(read, [&flat](const std::string& key, std::int64_t& value) { value = flat.at(key); });
  EXPECT_EQ(read, distinct_values());
}

}  // namespace
}  // namespace cistern
