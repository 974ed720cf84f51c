#include "tests/contract/native_doors.h"

namespace cistern::contract {

#ifndef CISTERN_HAS_CCCL
std::vector<DoorKind> cccl_doors() { return {}; }

TEST(Doors, OfCcclAreThere) {
  GTEST_SKIP() << "CCCL is not among the CUDA Toolkit's headers: its doors were not tested";
}
#endif

std::vector<DoorKind> doors() {
  std::vector<DoorKind> kinds = native_doors();
  for (DoorKind& kind : cccl_doors()) kinds.push_back(kind);
  return kinds;
}

}  // namespace cistern::contract
