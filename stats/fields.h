#pragma once

// The one list of what MemoryStats consists of: names, members and what a reset touches.
// The flat map, the nested map, the JSON, equality and the resets are all made from it.

#include <cistern/stats.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cistern {

struct PoolStatField {
  std::string_view name;
  PoolStat MemoryStats::*member;
};
inline constexpr std::array<PoolStatField, 9> kPoolStatFields{{
    {"allocation", &MemoryStats::allocation},
    {"segment", &MemoryStats::segment},
    {"active", &MemoryStats::active},
    {"inactive_split", &MemoryStats::inactive_split},
    {"allocated_bytes", &MemoryStats::allocated_bytes},
    {"reserved_bytes", &MemoryStats::reserved_bytes},
    {"active_bytes", &MemoryStats::active_bytes},
    {"inactive_split_bytes", &MemoryStats::inactive_split_bytes},
    {"requested_bytes", &MemoryStats::requested_bytes},
}};

struct StatField {
  std::string_view name;
  Stat MemoryStats::*member;
};
inline constexpr std::array<StatField, 2> kStatFields{{
    {"oversize_allocations", &MemoryStats::oversize_allocations},
    {"oversize_segments", &MemoryStats::oversize_segments},
}};

struct CounterField {
  std::string_view name;
  std::int64_t MemoryStats::*member;
  bool accumulates;  // false: a setting, which no reset touches
};
inline constexpr std::array<CounterField, 6> kCounterFields{{
    {"num_alloc_retries", &MemoryStats::num_alloc_retries, true},
    {"num_ooms", &MemoryStats::num_ooms, true},
    {"num_sync_all_streams", &MemoryStats::num_sync_all_streams, true},
    {"num_device_alloc", &MemoryStats::num_device_alloc, true},
    {"num_device_free", &MemoryStats::num_device_free, true},
    {"max_split_size", &MemoryStats::max_split_size, false},
}};

struct PoolField {
  std::string_view name;
  Stat PoolStat::*member;
};
inline constexpr std::array<PoolField, 3> kPoolFields{{
    {"all", &PoolStat::all},
    {"small_pool", &PoolStat::small_pool},
    {"large_pool", &PoolStat::large_pool},
}};

struct MetricField {
  std::string_view name;
  std::int64_t Stat::*member;
};
inline constexpr std::array<MetricField, 4> kMetricFields{{
    {"current", &Stat::current},
    {"peak", &Stat::peak},
    {"allocated", &Stat::allocated},
    {"freed", &Stat::freed},
}};

inline constexpr std::size_t kFlatKeys = kPoolStatFields.size() * kPoolFields.size() * kMetricFields.size() +
                                         kStatFields.size() * kMetricFields.size() + kCounterFields.size();
// A member that is not listed above would be missing everywhere.
static_assert(sizeof(MemoryStats) == kFlatKeys * sizeof(std::int64_t), "every member of MemoryStats is listed");

// Calls visit(stat) for each Stat in `stats`, a MemoryStats that may be const.
template <class Stats, class Visit>
void visit_stats(Stats& stats, Visit&& visit) {
  for (const PoolStatField& field : kPoolStatFields)
    for (const PoolField& pool : kPoolFields) visit(stats.*field.member.*pool.member);
  for (const StatField& field : kStatFields) visit(stats.*field.member);
}

// Calls visit(key, value) for each of the twelve keys of one array statistic.
template <class Pools, class Visit>
void visit_pools(const std::string& prefix, Pools& pools, Visit&& visit) {
  for (const PoolField& pool : kPoolFields) {
    for (const MetricField& metric : kMetricFields)
      visit(prefix + std::string(pool.name) + '.' + std::string(metric.name), pools.*pool.member.*metric.member);
  }
}

// Calls visit(key, value) for each flat key, in no particular order; `value` is a reference
// into `stats`, so that a reader can fill a MemoryStats by its keys.
template <class Stats, class Visit>
void visit_values(Stats& stats, Visit&& visit) {
  const auto visit_metrics = [&visit](const std::string& prefix, auto& stat) {
    for (const MetricField& metric : kMetricFields) visit(prefix + std::string(metric.name), stat.*metric.member);
  };
  for (const PoolStatField& field : kPoolStatFields)
    visit_pools(std::string(field.name) + '.', stats.*field.member, visit);
  for (const StatField& field : kStatFields) visit_metrics(std::string(field.name) + '.', stats.*field.member);
  for (const CounterField& field : kCounterFields) visit(std::string(field.name), stats.*field.member);
}

}  // namespace cistern
