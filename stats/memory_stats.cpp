// MemoryStats as maps, made from the list of its fields.

#include <cistern/stats.h>

#include "stats/fields.h"

#include <algorithm>

namespace cistern {
namespace {

NestedStats nested_metrics(const Stat& stat) {
  NestedStats metrics;
  for (const MetricField& metric : kMetricFields)
    metrics.entries.emplace(metric.name, NestedStatsValue(stat.*metric.member));
  return metrics;
}

NestedStats nested_pools(const PoolStat& stat) {
  NestedStats pools;
  for (const PoolField& pool : kPoolFields) pools.entries.emplace(pool.name, nested_metrics(stat.*pool.member));
  return pools;
}

}  // namespace

std::map<std::string, std::int64_t> MemoryStats::flat() const {
  std::map<std::string, std::int64_t> values;
  visit_values(*this, [&values](std::string key, std::int64_t value) { values.emplace(std::move(key), value); });
  return values;
}

NestedStats MemoryStats::nested() const {
  NestedStats stats;
  for (const PoolStatField& field : kPoolStatFields)
    stats.entries.emplace(field.name, nested_pools(this->*field.member));
  for (const StatField& field : kStatFields) stats.entries.emplace(field.name, nested_metrics(this->*field.member));
  for (const CounterField& field : kCounterFields)
    stats.entries.emplace(field.name, NestedStatsValue(this->*field.member));
  return stats;
}

double FragmentationStats::usable_share() const noexcept {
  return free_bytes == 0 ? 0.0 : static_cast<double>(usable_bytes) / static_cast<double>(free_bytes);
}

bool operator==(const MemoryStats& a, const MemoryStats& b) noexcept {
  return std::ranges::all_of(kPoolStatFields, [&](const auto& field) { return a.*field.member == b.*field.member; }) &&
         std::ranges::all_of(kStatFields, [&](const auto& field) { return a.*field.member == b.*field.member; }) &&
         std::ranges::all_of(kCounterFields, [&](const auto& field) { return a.*field.member == b.*field.member; });
}

}  // namespace cistern
