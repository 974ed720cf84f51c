#pragma once

// What the driver has to do for a window: handles to create and to map side by side, and one set-access.
//
// carry_out is called without the heap's lock. Thread safety: values, and a function of its arguments.

#include <cstdint>
#include <vector>

#include "allocator/page_size.h"
#include "allocator/page_table.h"

namespace cistern {

// The driver's part of a gather: the real one calls it, a study counts. Sectors are addresses of the page table.
class PageDriver {
 public:
  virtual ~PageDriver() = default;
  // These return whether the driver did it.
  [[nodiscard]] virtual bool create(PageTable::Handle handle, std::int32_t pages) = 0;
  [[nodiscard]] virtual bool map(PageTable::Handle handle, Sectors address) = 0;
  [[nodiscard]] virtual bool allow(Sectors address, std::int64_t pages) = 0;
  // Undo create and map. What the driver refuses here is kept track of behind the interface.
  virtual void release(PageTable::Handle handle) = 0;
  virtual void unmap(PageTable::Handle handle, Sectors address) = 0;
};

struct Gather {
  struct Step {
    PageTable::Handle handle = -1;
    std::int32_t pages = 0;
    Sectors address = 0;  // where it is mapped
    bool is_new = false;
    bool moves_home = false;  // to `address`
  };

  Sectors address = 0;
  std::int64_t pages = 0;
  std::vector<Step> steps;  // tile the range, in address order

  [[nodiscard]] bool empty() const { return steps.empty(); }
};

// All or nothing: after a refusal what was mapped is unmapped from the end back, what was created is released.
[[nodiscard]] bool carry_out(const Gather& gather, PageDriver& driver);

}  // namespace cistern
