#include "tools/checkpoint_json.h"

#include <string>
#include <utility>

namespace cistern {
namespace {

nlohmann::ordered_json metrics(const Stat& stat) { return {stat.current, stat.peak, stat.allocated, stat.freed}; }

}  // namespace

nlohmann::ordered_json checkpoint_json(std::size_t ops, const MemoryStats& stats) {
  nlohmann::ordered_json values;
  const std::pair<const char*, const PoolStat&> pool_stats[] = {
      {"allocation", stats.allocation},
      {"segment", stats.segment},
      {"active", stats.active},
      {"inactive_split", stats.inactive_split},
      {"allocated_bytes", stats.allocated_bytes},
      {"reserved_bytes", stats.reserved_bytes},
      {"active_bytes", stats.active_bytes},
      {"inactive_split_bytes", stats.inactive_split_bytes},
      {"requested_bytes", stats.requested_bytes},
  };
  for (const auto& [name, stat] : pool_stats) {
    values[std::string(name) + ".all"] = metrics(stat.all);
    values[std::string(name) + ".small_pool"] = metrics(stat.small_pool);
    values[std::string(name) + ".large_pool"] = metrics(stat.large_pool);
  }
  values["oversize_allocations"] = metrics(stats.oversize_allocations);
  values["oversize_segments"] = metrics(stats.oversize_segments);
  values["num_alloc_retries"] = stats.num_alloc_retries;
  values["num_ooms"] = stats.num_ooms;
  values["num_sync_all_streams"] = stats.num_sync_all_streams;
  values["num_device_alloc"] = stats.num_device_alloc;
  values["num_device_free"] = stats.num_device_free;
  values["max_split_size"] = stats.max_split_size;
  return {{"op", ops}, {"stats", std::move(values)}};
}

}  // namespace cistern
