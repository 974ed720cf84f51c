#include "allocator/gather.h"

#include <cstddef>

namespace cistern {
namespace {

// Undoes the first `mapped` mappings and the creations among the first `made` steps.
void roll_back(const Gather& gather, std::size_t made, std::size_t mapped, PageDriver& driver) {
  for (std::size_t i = mapped; i-- > 0;) driver.unmap(gather.steps[i].handle, gather.steps[i].address);
  for (std::size_t i = made; i-- > 0;)
    if (gather.steps[i].is_new) driver.release(gather.steps[i].handle);
}

}  // namespace

bool carry_out(const Gather& gather, PageDriver& driver) {
  const std::size_t count = gather.steps.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Gather::Step& step = gather.steps[i];
    if (step.is_new && !driver.create(step.handle, step.pages)) {
      roll_back(gather, i, i, driver);
      return false;
    }
    if (!driver.map(step.handle, step.address)) {
      roll_back(gather, i + 1, i, driver);
      return false;
    }
  }
  if (driver.allow(gather.address, gather.pages)) return true;
  roll_back(gather, count, count, driver);
  return false;
}

}  // namespace cistern
