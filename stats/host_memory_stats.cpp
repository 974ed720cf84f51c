// HostMemoryStats as maps, by PyTorch's names.

#include <cistern/host_allocator.h>

#include "stats/fields.h"

#include <array>
#include <string_view>
#include <utility>

namespace cistern {
namespace {

constexpr std::array<std::pair<std::string_view, Stat HostMemoryStats::*>, 4> kStats{{
    {"allocations", &HostMemoryStats::allocations},
    {"allocated_bytes", &HostMemoryStats::allocated_bytes},
    {"active_requests", &HostMemoryStats::active_requests},
    {"active_bytes", &HostMemoryStats::active_bytes},
}};
constexpr std::array<std::pair<std::string_view, std::int64_t HostMemoryStats::*>, 2> kCounters{{
    {"num_host_alloc", &HostMemoryStats::num_host_alloc},
    {"num_host_free", &HostMemoryStats::num_host_free},
}};
constexpr std::array<std::pair<std::string_view, HostCallTimes HostMemoryStats::*>, 2> kTimes{{
    {"host_alloc_time", &HostMemoryStats::host_alloc_time},
    {"host_free_time", &HostMemoryStats::host_free_time},
}};
// A member that is not listed above would be missing.
static_assert(sizeof(HostMemoryStats) == kStats.size() * sizeof(Stat) + kCounters.size() * sizeof(std::int64_t) +
                                             kTimes.size() * sizeof(HostCallTimes));

void add_flat(const std::string& prefix, const NestedStats& nested, std::map<std::string, std::int64_t>& flat) {
  for (const auto& [name, value] : nested.entries) {
    if (const auto* number = std::get_if<std::int64_t>(&value))
      flat.emplace(prefix + name, *number);
    else
      add_flat(prefix + name + '.', std::get<NestedStats>(value), flat);
  }
}

}  // namespace

NestedStats HostMemoryStats::nested() const {
  NestedStats all;
  for (const auto& [name, member] : kStats) {
    NestedStats metrics;
    for (const MetricField& metric : kMetricFields) metrics.entries.emplace(metric.name, this->*member.*metric.member);
    all.entries.emplace(name, std::move(metrics));
  }
  for (const auto& [name, member] : kCounters) all.entries.emplace(name, this->*member);
  for (const auto& [name, member] : kTimes) {
    const HostCallTimes& times = this->*member;
    NestedStats metrics;
    metrics.entries.emplace("total", times.total);
    metrics.entries.emplace("max", times.max);
    metrics.entries.emplace("min", times.min);
    metrics.entries.emplace("count", times.count);
    metrics.entries.emplace("avg", times.avg());
    all.entries.emplace(name, std::move(metrics));
  }
  return all;
}

std::map<std::string, std::int64_t> HostMemoryStats::flat() const {
  std::map<std::string, std::int64_t> all;
  add_flat("", nested(), all);
  return all;
}

}  // namespace cistern
