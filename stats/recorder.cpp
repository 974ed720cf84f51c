#include "stats/recorder.h"

#include "stats/fields.h"

namespace cistern {

void Recorder::reset_peaks() {
  visit_stats(stats_, [](Stat& stat) { stat.peak = stat.current; });
}

void Recorder::reset_accumulated() {
  visit_stats(stats_, [](Stat& stat) { stat.allocated = stat.freed = 0; });
  for (const CounterField& counter : kCounterFields)
    if (counter.accumulates) stats_.*counter.member = 0;
}

}  // namespace cistern
