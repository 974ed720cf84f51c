#include "stats/history_ring.h"

namespace cistern {

template class BasicHistoryRing<HostAtomics>;

}  // namespace cistern
