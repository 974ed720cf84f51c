// The names that cuda::mr has since CCCL 3.1, over what stands in for it (newer_cccl/).

#include "tests/contract/cuda_mr_doors.h"

static_assert(CCCL_VERSION >= 3001000, "this is about the newer names");

namespace cistern::contract {

std::vector<DoorKind> doors() { return cuda_mr_doors(); }

}  // namespace cistern::contract
