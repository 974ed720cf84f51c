#pragma once

// A placement of pages of 128 sectors, and a driver that does what it is asked.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "allocator/page_placement.h"
#include "tests/allocator/naive_bytes.h"
#include "tests/allocator/page_sizes.h"

namespace cistern {

// Wholly free handles that hold so many pages go back to the driver. Returns how many pages went.
inline std::int64_t give_back(PagePlacement& placement, ScriptedDriver& driver, std::int64_t pages) {
  Departure departure = placement.leave(pages);
  for (Departure::Leaving& leaving : departure.handles) {
    for (std::size_t i = 0; i < leaving.mappings; ++i) {
      Departure::Mapping& mapping = departure.mappings[leaving.first_mapping + i];
      driver.unmap(leaving.handle, mapping.address);
      mapping.is_gone = true;
    }
    driver.release(leaving.handle);
    leaving.is_gone = true;
  }
  placement.left(departure);
  return departure.pages;
}

class PlacementCase : public ::testing::Test {
 protected:
  explicit PlacementCase(std::int64_t arena_pages = PagePlacement::kNoLimit)
      : placement_(kPageOf128, PagePlacement::kNoLimit, arena_pages) {}

  struct Operation {
    int id;
    Sectors sectors;  // 0: a free
    StreamNumber stream;
  };

  // A program that frees all it allocates.
  static std::vector<Operation> any_program(std::mt19937_64& random, int length, Sectors most, int streams) {
    std::vector<Operation> program;
    std::vector<int> live;
    for (int id = 0; id < length; ++id) {
      const auto sectors = static_cast<Sectors>(1 + random() % (1 + random() % static_cast<std::uint64_t>(most)));
      program.push_back({id, sectors, static_cast<StreamNumber>(random() % static_cast<std::uint64_t>(streams))});
      live.push_back(id);
      while (!live.empty() && random() % 5 >= 3) {
        const std::size_t at = random() % live.size();
        program.push_back({live[at], 0, 0});
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    for (const int id : live) program.push_back({id, 0, 0});
    return program;
  }

  // By plan and commit, whatever is known. Requires: it can be had.
  PagedBlock place(const PageRequest& request) {
    PagePlan plan = placement_.plan(request);
    EXPECT_EQ(plan.kind, PlanKind::placed);
    EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver_));
    return placement_.commit(plan);
  }
  void release(const PagedBlock& block) {
    placement_.freed(block);
    placement_.settle(block);
  }
  [[nodiscard]] static std::vector<FreeRun> runs_of(const PagePlacement& placement) {
    std::vector<FreeRun> found;
    placement.free_runs().for_each([&](const FreeRun& run) { found.push_back(run); });
    return found;
  }
  [[nodiscard]] std::vector<FreeRun> runs() const { return runs_of(placement_); }

  PagePlacement placement_;
  ScriptedDriver driver_;
};

}  // namespace cistern
