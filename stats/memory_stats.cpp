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

constexpr std::string_view kReservedByPrivatePool = "reserved_bytes_by_private_pools";

std::string name_of(const std::pair<std::uint64_t, std::uint64_t>& pool) {
  return std::to_string(pool.first) + '_' + std::to_string(pool.second);
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

std::map<std::string, std::int64_t> MemoryStats::flat(const ReservedByPrivatePool& pools) const {
  std::map<std::string, std::int64_t> values = flat();
  for (const auto& [id, reserved] : pools) {
    const std::string prefix = std::string(kReservedByPrivatePool) + '.' + name_of(id) + '.';
    visit_pools(prefix, reserved,
                [&values](std::string key, std::int64_t value) { values.emplace(std::move(key), value); });
  }
  return values;
}

NestedStats MemoryStats::nested(const ReservedByPrivatePool& pools) const {
  NestedStats stats = nested();
  NestedStats by_pool;
  for (const auto& [id, reserved] : pools) by_pool.entries.emplace(name_of(id), nested_pools(reserved));
  if (!pools.empty()) stats.entries.emplace(kReservedByPrivatePool, std::move(by_pool));
  return stats;
}

bool operator==(const MemoryStats& a, const MemoryStats& b) noexcept {
  return std::ranges::all_of(kPoolStatFields, [&](const auto& field) { return a.*field.member == b.*field.member; }) &&
         std::ranges::all_of(kStatFields, [&](const auto& field) { return a.*field.member == b.*field.member; }) &&
         std::ranges::all_of(kCounterFields, [&](const auto& field) { return a.*field.member == b.*field.member; });
}

}  // namespace cistern
