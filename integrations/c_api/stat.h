#pragma once

#include <cistern/c_api.h>
#include <cistern/stats.h>

namespace cistern::c_api {

inline cistern_stat stat_of(const Stat& stat) { return {stat.current, stat.peak, stat.allocated, stat.freed}; }
inline cistern_pool_stat stat_of(const PoolStat& stat) {
  return {stat_of(stat.all), stat_of(stat.small_pool), stat_of(stat.large_pool)};
}

}  // namespace cistern::c_api
