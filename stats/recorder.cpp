#include "stats/recorder.h"

#include "stats/fields.h"

namespace cistern {

MemoryStats Recorder::stats() const {
  MemoryStats stats = kept_;
  for (const PoolStatField& field : kPoolStatFields) {
    PoolStat& stat = stats.*field.member;
    for (Stat* pool : {&stat.small_pool, &stat.large_pool}) {
      pool->freed += pool->allocated - pool->current;
      stat.all.allocated += pool->allocated;
      stat.all.freed += pool->freed;
    }
  }
  return stats;
}

void Recorder::reset_peaks() {
  visit_stats(kept_, [](Stat& stat) { stat.peak = stat.current; });
}

void Recorder::reset_accumulated() {
  for (const PoolStatField& field : kPoolStatFields)
    for (Stat* pool : {&(kept_.*field.member).small_pool, &(kept_.*field.member).large_pool}) {
      pool->allocated = 0;
      pool->freed = pool->current;
    }
  for (const StatField& field : kStatFields) {
    Stat& stat = kept_.*field.member;
    stat.allocated = stat.freed = 0;
  }
  for (const CounterField& counter : kCounterFields)
    if (counter.accumulates) kept_.*counter.member = 0;
}

}  // namespace cistern
