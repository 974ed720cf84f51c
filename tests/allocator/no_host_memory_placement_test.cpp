// What is free is kept, and found again, without host memory: a plan brings what its end may need.

#include "allocator/bit_tree.h"
#include "allocator/free_parts.h"
#include "allocator/free_runs.h"
#include "allocator/page_placement.h"
#include "allocator/page_table.h"
#include "allocator/run_nodes.h"
#include "allocator/runs_by_address.h"
#include "tests/allocator/host_memory.h"
#include "tests/allocator/mapped_pages.h"
#include "tests/allocator/page_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <random>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// Does what it is asked.
struct WillingDriver final : PageDriver {
  bool create(PageTable::Handle /*handle*/, std::int32_t /*pages*/) override { return true; }
  bool map(PageTable::Handle /*handle*/, Sectors /*address*/) override { return true; }
  bool allow(Sectors /*address*/, std::int64_t /*pages*/) override { return true; }
  void release(PageTable::Handle /*handle*/) override {}
  void unmap(PageTable::Handle /*handle*/, Sectors /*address*/) override {}
};

class HostMemoryIsGone {
 public:
  // After so many requests.
  explicit HostMemoryIsGone(int served = 0) {
    testing_host::served_requests_left = served;
    testing_host::is_gone = true;
  }
  ~HostMemoryIsGone() { testing_host::is_gone = false; }
  HostMemoryIsGone(const HostMemoryIsGone&) = delete;
  HostMemoryIsGone& operator=(const HostMemoryIsGone&) = delete;
};

// Commits, frees and undone plans of blocks of all sizes on three streams, and the free runs that follow them.
TEST(NoHostMemoryPlacementTest, WhatIsPlannedEndsWithoutHostMemory) {
  std::mt19937_64 random(20261123);
  PagePlacement placement(kPageOf128);
  WillingDriver driver;
  std::vector<PagedBlock> live;
  live.reserve(400);
  for (int round = 0; round < 6000; ++round) {
    const auto most = static_cast<std::uint64_t>(1 + random() % 900);
    PagePlan plan =
        placement.plan({static_cast<Sectors>(1 + random() % most), static_cast<StreamNumber>(random() % 3)});
    ASSERT_EQ(plan.kind, PlanKind::placed);
    ASSERT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
    const std::size_t goes = random() % 400;
    const HostMemoryIsGone none;
    if (random() % 8 == 0)
      placement.abandon(plan);
    else
      live.push_back(placement.commit(plan));
    while (live.size() > goes) {
      std::swap(live[random() % live.size()], live.back());
      placement.freed(live.back());
      placement.settle(live.back());
      live.pop_back();
    }
    static_cast<void>(placement.free_runs());
  }
  EXPECT_NO_THROW(placement.audit());
  EXPECT_GT(placement.counts().chosen, 0);
}

// Runs that are parted for an heir take none of the room that blocks keep for their frees.
TEST(NoHostMemoryPlacementTest, WhatIsInheritedLeavesRoomForFrees) {
  std::mt19937_64 random(20261128);
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    PagePlacement placement(kPageOf128);
    WillingDriver driver;
    std::vector<PagedBlock> live;
    const auto put = [&](Sectors sectors, StreamNumber stream) {
      PagePlan plan = placement.plan({sectors, stream});
      EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
      live.push_back(placement.commit(plan));
    };
    const auto drop = [&](std::size_t to) {
      for (; live.size() > to; live.pop_back()) {
        std::swap(live[random() % live.size()], live.back());
        placement.freed(live.back());
        placement.settle(live.back());
      }
      static_cast<void>(placement.free_runs());
    };
    put(1, 1);
    put(1, 2);
    for (std::uint64_t left = 20 + random() % 50; left > 0; --left) put(static_cast<Sectors>(1 + random() % 9000), 0);
    drop(live.size() / 2);
    const HostMemoryIsGone none;
    const Sectors had = placement.free_runs().sectors();
    try {
      // By turns, so that pages side by side stay parted.
      for (StreamNumber heir = 1; placement.inherit(0, heir, 1) != 0;) heir = 3 - heir;
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    EXPECT_EQ(placement.free_runs().sectors(), had);
    drop(0);
  }
  EXPECT_GT(refused, 0);
}

// Random sizes, with a log of so many entries; perhaps without host memory when half of the plans are committed, so
// that the log may not know yet how many pages there are.
int fits_without_host_memory(std::size_t log_entries, bool commits_without) {
  std::mt19937_64 random(20261127);
  PagePlacement placement(kPageOf128, PagePlacement::kNoLimit, PagePlacement::kNoLimit, log_entries);
  WillingDriver driver;
  std::vector<PagedBlock> live;
  live.reserve(2000);
  int fits = 0;
  for (int round = 0; round < 30'000; ++round) {
    // Few until a short log is full, then more and more, so that tables grow.
    const std::size_t most = 20 + static_cast<std::size_t>(std::max(0, round - 3000)) / 20;
    for (; live.size() > most; live.pop_back()) {
      std::swap(live[random() % live.size()], live.back());
      placement.freed(live.back());
      placement.settle(live.back());
    }
    const PageRequest request{static_cast<Sectors>(1 + random() % (std::uint64_t{1} << random() % 11)), 0};
    {
      const HostMemoryIsGone none;
      const int refused = testing_host::refused_requests;
      OwnBytes own{.request = request};
      const bool is_found = placement.find_own(own);
      if (is_found) live.push_back(placement.block_at(placement.take_own(own, true)));
      EXPECT_EQ(testing_host::refused_requests, refused) << "request " << round;
      if (is_found) {
        ++fits;
        continue;
      }
    }
    PagePlan plan = placement.plan(request);
    EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
    const HostMemoryIsGone none(commits_without && random() % 2 == 0 ? 0 : 1'000'000);
    live.push_back(placement.commit(plan));
  }
  EXPECT_NO_THROW(placement.audit());
  return fits;
}

TEST(NoHostMemoryPlacementTest, OwnBytesAreFoundAndTakenWithoutHostMemory) {
  EXPECT_GT(fits_without_host_memory(PagePlacement::kLogEntries, false), 10'000);
  EXPECT_GT(fits_without_host_memory(PagePlacement::kLogEntries, true), 10'000);
  EXPECT_GT(fits_without_host_memory(16, true), 10'000);
}

// Room for it is expected where pages come.
TEST(NoHostMemoryPlacementTest, RequestsThatTheLogDoesNotKnowTakeNoHostMemoryWhileItFills) {
  std::mt19937_64 random(20261128);
  PagePlacement placement(kPageOf128);
  WillingDriver driver;
  std::vector<PagedBlock> live;
  live.reserve(12);
  const auto serve = [&](const PageRequest& request) {
    PagePlan plan = placement.plan(request);
    EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
    live.push_back(placement.commit(plan));
  };
  const auto release = [&] {
    placement.freed(live.back());
    placement.settle(live.back());
    live.pop_back();
  };
  serve({128 * 100, 0});
  release();
  const std::int64_t before = testing_host::mapped_pages();
  for (int i = 0; i < 40'000; ++i) {
    if (live.size() == 12) {
      std::swap(live[random() % 12], live.back());
      release();
    }
    const PageRequest request{static_cast<Sectors>(128 * (1 + random() % 5)), 0};
    if (const auto known = placement.take_known(request)) {
      live.push_back(*known);
      continue;
    }
    const HostMemoryIsGone none;
    OwnBytes own{.request = request};
    ASSERT_TRUE(placement.find_own(own)) << "at " << i;
    live.push_back(placement.block_at(placement.take_own(own, true)));
  }
  EXPECT_LT(testing_host::mapped_pages() - before, 100);
  EXPECT_NO_THROW(placement.audit());
}

// Where the last thing that a plan asks for is that room, it goes without.
TEST(NoHostMemoryPlacementTest, ARequestDoesNotFailForRoomThatIsNotNeededYet) {
  bool has_gone_without = false;
  for (int served = 0; served < 60; ++served) {
    PagePlacement placement(kPageOf128);
    WillingDriver driver;
    PagePlan first = placement.plan({100, 0});
    ASSERT_TRUE(carry_out(first.gather, driver));
    static_cast<void>(placement.commit(first));
    testing_host::refused_requests = 0;
    try {
      const HostMemoryIsGone none(served);
      PagePlan plan = placement.plan({100, 0});
      has_gone_without = has_gone_without || testing_host::refused_requests != 0;
      placement.abandon(plan);
    } catch (const std::bad_alloc&) {
    }
    EXPECT_NO_THROW(placement.audit());
  }
  EXPECT_TRUE(has_gone_without);
}

// Steps of ever other lengths: what takes a part of a known place is known from then on.
TEST(NoHostMemoryPlacementTest, PartsOfKnownPlacesAreTakenWithoutHostMemory) {
  std::mt19937_64 random(20261127);
  PagePlacement placement(kPageOf128);
  WillingDriver driver;
  std::vector<Sectors> step;
  for (int i = 0; i < 40; ++i) step.push_back(static_cast<Sectors>(100 + random() % 900));
  std::vector<PagedBlock> live;
  live.reserve(step.size());
  int parts = 0;
  for (int pass = 0; pass < 300; ++pass) {
    const auto shorter = static_cast<Sectors>(random() % 12);
    for (const Sectors full : step) {
      const PageRequest request{full - full * shorter / 100 - static_cast<Sectors>(random() % 2), 0};
      if (const auto known = placement.take_known(request)) {
        live.push_back(*known);
        continue;
      }
      if (const PlacementLog::Number larger = placement.find_larger(request); larger != PlacementLog::kNone) {
        ++parts;
        const HostMemoryIsGone none;
        for (int turn = 0; turn < 2; ++turn) {  // twice, for it is known then
          live.push_back(turn == 0 ? placement.block_at(placement.take_part(larger, request, true))
                                   : placement.take_known(request).value());
          if (turn == 1) continue;
          placement.freed(live.back());
          placement.settle(live.back());
          live.pop_back();
        }
        continue;
      }
      PagePlan plan = placement.plan(request);
      ASSERT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
      live.push_back(placement.commit(plan));
    }
    for (; !live.empty(); live.pop_back()) {
      placement.freed(live.back());
      placement.settle(live.back());
    }
  }
  EXPECT_NO_THROW(placement.audit());
  EXPECT_GT(parts, 5000);
}

// Whichever request of the host's memory is refused: what was there is found, and what lies around it.
TEST(NoHostMemoryPlacementTest, WhatFailsToGrowIsAsItWas) {
  int refused = 0;
  for (int served = 0; served < 8; ++served) {
    BitTree<4> bits;
    bits.provide(4096);
    bits.set(3);
    RunNodes nodes;
    nodes.provide(8);
    RunsByAddress runs(nodes);
    runs.provide(100);
    const RunNumber run = nodes.take();
    nodes[run].be({{50, 1, 0}});
    runs.add(run);
    const auto fails = [&](auto&& grow) {
      const HostMemoryIsGone none(served);
      try {
        grow();
        return false;
      } catch (const std::bad_alloc&) {
        return true;
      }
    };
    refused += fails([&] { bits.provide(1'000'000); }) ? 1 : 0;
    refused += fails([&] { runs.provide(Sectors{1} << 34); }) ? 1 : 0;
    refused += fails([&] { runs.provide(Sectors{2} << kArenaBits); }) ? 1 : 0;
    for (const std::size_t from : {std::size_t{3}, std::size_t{5000}, std::size_t{300'000}, BitTree<4>::kNone})
      EXPECT_EQ(bits.previous(from), 3U) << served << " served, from " << from;
    EXPECT_EQ(bits.next(0), 3U);
    EXPECT_EQ(bits.next(4), BitTree<4>::kNone);
    for (const Sectors address : {Sectors{50}, Sectors{1} << 33, Sectors{3} << kArenaBits})
      EXPECT_EQ(runs.last_up_to(address), run) << served << " served, up to " << address;
    EXPECT_EQ(runs.audit(), 1U);
  }
  EXPECT_GT(refused, 10);
}

// As many of them as there can be: each handle is free in parts of two streams.
TEST(NoHostMemoryPlacementTest, EdgesOfFreeRunsAreFoundWithoutHostMemory) {
  constexpr int kHandles = 300;
  PageTable table(kPageOf128);
  const PageTable::Arena arena = table.add_arena();
  FreeParts parts(table);
  FreeRuns runs(&parts);
  runs.add_stream(1);
  runs.keep_room(2 * kHandles);
  parts.provide(kHandles);
  for (int i = 0; i < kHandles; ++i) {
    const PageTable::Handle handle = table.add_handle(1);
    const Sectors address = table.reserve(arena, 1);
    table.map(handle, address);
    table.move_home(handle, address);
    runs.provide_addresses(table.end_of(arena));
    const HostMemoryIsGone none;
    runs.give(address, 50, 0);
    runs.give(address + 50, 78, 1);
    if (i % 100 == 99) runs.find_parts();
  }
  EXPECT_EQ(parts.shared().size(), std::size_t{kHandles});
  EXPECT_NO_THROW(parts.audit(runs));
}

}  // namespace
}  // namespace cistern
