#pragma once

// A snapshot of paged memory beside what the driver has mapped, and the bound of docs/paged-policy.md.

#include <cistern/allocator.h>
#include <cistern/snapshot.h>

#include <cstdint>
#include <map>

#include "mapped_memory.h"
#include "tests/allocator/paged_bound.h"

namespace cistern::model {

class PagedComparison {
 public:
  // Listens to the table's calls; made before the allocator.
  explicit PagedComparison(DriverApi& api) : memory_(api) {}

  // After an operation: every reserved byte is shown once, no two blocks share a byte, and the bound holds.
  void compare(const CachingAllocator& allocator);
  // As the snapshot of the last comparison says, of a live block.
  [[nodiscard]] std::int64_t requested(void* pointer) const;

 private:
  void compare_segment(const SegmentInfo& segment);

  MappedMemory memory_;
  PagedBound bound_{PageSize{12}};  // of 2 MiB
  bool some_stood_alone_ = false;
  std::map<std::uint64_t, BlockInfo> blocks_;
};

}  // namespace cistern::model
