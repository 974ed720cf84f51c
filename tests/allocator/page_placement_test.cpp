#include "allocator/page_placement.h"
#include "tests/allocator/placement_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

namespace cistern {
namespace {

class PagePlacementTest : public PlacementCase {
 protected:
  PagePlan plan(Sectors sectors, StreamNumber stream = 0) {
    PagePlan made = placement_.plan({sectors, stream});
    if (!made.gather.empty() && !carry_out(made.gather, driver_)) {
      placement_.abandon(made);
      made.kind = PlanKind::refused_by_limit;
    }
    return made;
  }
  PagedBlock allocate(Sectors sectors, StreamNumber stream = 0) {
    if (const auto known = placement_.take_known({sectors, stream})) return *known;
    PagePlan made = plan(sectors, stream);
    if (made.kind != PlanKind::placed) throw std::runtime_error("refused");
    return placement_.commit(made);
  }
  // Returns where each block was, and checks every byte.
  std::vector<Sectors> run(const std::vector<Operation>& program, int audit_every) {
    std::vector<Sectors> places;
    int step = 0;
    for (const auto& [id, sectors, stream] : program) {
      if (sectors > 0) {
        const PagedBlock block = allocate(sectors, stream);
        places.push_back(block.address);
        bytes_.arrive(placement_.table(), block, id);
        live_.emplace(id, block);
      } else {
        bytes_.leave(placement_.table(), live_.at(id), id);
        release(live_.at(id));
        live_.erase(id);
      }
      if (++step % audit_every == 0) audit();
    }
    return places;
  }
  // Every byte is free or live, and the driver has what the table has.
  void audit() {
    placement_.audit();
    const PageTable& table = placement_.table();
    ASSERT_EQ(bytes_.live() + placement_.free_runs().sectors(), kPageOf128.sectors(table.pages()));
    std::int64_t created = 0;
    for (const auto& [handle, pages] : driver_.created) created += pages;
    ASSERT_EQ(created, table.pages());
    for (const auto& [address, handle] : driver_.mapped) ASSERT_EQ(table.handle_at(address), handle);
  }

  NaiveBytes bytes_{kPageOf128};
  std::map<int, PagedBlock> live_;
};

TEST_F(PagePlacementTest, AStepThatComesAgainMakesNoCallAndGetsTheSamePlaces) {
  std::mt19937_64 random(20261121);
  const std::vector<Operation> program = any_program(random, 400, 900, 1);
  const auto first = run(program, 5);
  const int calls = driver_.calls;
  const auto second = run(program, 50);
  EXPECT_EQ(driver_.calls, calls);
  EXPECT_EQ(second, first);
  EXPECT_EQ(run(program, 50), first);
  EXPECT_EQ(driver_.calls, calls);
  EXPECT_GT(placement_.counts().misses, 0);
  EXPECT_GT(placement_.counts().chosen, 0);
  EXPECT_GE(placement_.counts().logged, 800);
}

TEST_F(PagePlacementTest, SmallerSizesInAStepTakeAPartOfTheirPlaces) {
  std::mt19937_64 random(7);
  std::vector<Operation> program = any_program(random, 300, 900, 1);
  const auto first = run(program, 50);
  const int calls = driver_.calls;
  for (Operation& operation : program)
    if (random() % 10 == 0) operation.sectors -= operation.sectors / 16;
  EXPECT_EQ(run(program, 50), first);
  EXPECT_EQ(driver_.calls, calls);
}

TEST_F(PagePlacementTest, RandomProgramsOnThreeStreamsShareNoByte) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed);
    run(any_program(random, 250, seed % 2 == 0 ? 2000 : 300, 3), 5);
    if (HasFatalFailure()) return;
  }
}

TEST_F(PagePlacementTest, WholeHandlesAreGatheredBeforeMemoryIsCreated) {
  std::vector<PagedBlock> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(128));
  EXPECT_EQ(placement_.table().pages(), 8);
  for (const std::size_t i : {1U, 3U, 5U, 7U}) release(blocks[i]);
  const PagedBlock large = allocate(3 * 128);
  EXPECT_EQ(placement_.table().pages(), 8);
  EXPECT_EQ(driver_.created.size(), 8U);
  // The same request after its free finds the window, though its state is another.
  release(blocks[0]);
  release(large);
  const int calls = driver_.calls;
  EXPECT_EQ(allocate(3 * 128).address, large.address);
  EXPECT_EQ(driver_.calls, calls);
}

TEST_F(PagePlacementTest, FragmentsAreUsedBeforePages) {
  const PagedBlock first = allocate(200);  // pages 0 and 1: 56 free at the end
  const PagedBlock second = allocate(56 + 70);
  EXPECT_EQ(second.address, first.address + 200);
  EXPECT_EQ(placement_.table().pages(), 3);
  const std::vector<FreeRun> left = {{first.address + 326, 58, 0}};
  EXPECT_EQ(runs(), left);
}

TEST_F(PagePlacementTest, AnotherStreamsHandlesAreNamedAsOwners) {
  const PagedBlock theirs = allocate(256, 1);
  release(theirs);
  PagePlan made = plan(256, 0);
  ASSERT_EQ(made.kind, PlanKind::placed);
  const PagedBlock block = placement_.commit(made);
  EXPECT_EQ(made.owners, std::vector<StreamNumber>{1});
  EXPECT_EQ(placement_.table().pages(), 2);
  release(block);
  PagePlan again = plan(256, 0);
  EXPECT_TRUE(again.gather.empty());
  static_cast<void>(placement_.commit(again));
  EXPECT_TRUE(again.owners.empty());
}

// Others take its bytes when they are free, and so does the request that the log knows.
TEST_F(PagePlacementTest, BytesOfAPendingBlockServeNobody) {
  const PagedBlock late = allocate(256);
  placement_.freed(late);
  const PagePlan other = placement_.plan({256, 0});
  EXPECT_EQ(other.kind, PlanKind::placed);
  EXPECT_NE(other.address, late.address);
  placement_.abandon(other);
  placement_.settle(late);
  EXPECT_EQ(placement_.plan({256, 0}).address, late.address);
}

TEST_F(PagePlacementTest, TheLimitRefusesAndChangesNothing) {
  PagePlacement limited(kPageOf128, 4);
  const auto place = [&](Sectors sectors) {
    PagePlan made = limited.plan({sectors, 0});
    return made.kind == PlanKind::placed ? std::optional(limited.commit(made)) : std::nullopt;
  };
  const auto block = place(3 * 128);
  ASSERT_TRUE(block);
  EXPECT_EQ(limited.plan({2 * 128, 0}).kind, PlanKind::refused_by_limit);
  EXPECT_EQ(limited.table().pages(), 3);
  ASSERT_TRUE(place(64));
  ASSERT_TRUE(place(64));
  EXPECT_FALSE(place(1));
  EXPECT_EQ(limited.table().pages(), 4);
  limited.audit();
}

TEST_F(PagePlacementTest, AtTheLimitFragmentsOfAllStreamsServe) {
  PagePlacement limited(kPageOf128, 2);
  const auto commit = [&](Sectors sectors, StreamNumber stream) {
    PagePlan made = limited.plan({sectors, stream});
    EXPECT_EQ(made.kind, PlanKind::placed);
    return limited.commit(made);
  };
  const PagedBlock first = commit(70, 0);  // 58 free behind it
  const PagedBlock begin = commit(58, 1);  // a page of its own
  const PagedBlock end = commit(70, 1);
  limited.freed(begin);
  limited.settle(begin);
  static_cast<void>(first);
  static_cast<void>(end);
  PagePlan made = limited.plan({100, 0});
  ASSERT_EQ(made.kind, PlanKind::placed);
  ASSERT_EQ(made.gather.steps.size(), 2U);
  static_cast<void>(limited.commit(made));
  EXPECT_EQ(made.owners, std::vector<StreamNumber>{1});
  limited.audit();
}

TEST_F(PagePlacementTest, ARefusalAtAnyCallLeavesAllAsItWas) {
  for (int refused = 0;; ++refused) {
    std::destroy_at(&placement_);
    std::construct_at(&placement_, kPageOf128);
    driver_ = ScriptedDriver();
    std::vector<PagedBlock> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(allocate(100));
    for (const std::size_t i : {0U, 2U, 3U, 6U}) release(blocks[i]);
    const auto before = runs();
    const auto mapped = driver_.mapped;
    const auto created = driver_.created;
    const Sectors end = placement_.table().end_of(0);
    driver_.refused = refused;
    const bool is_done = plan(1000).kind == PlanKind::placed;
    if (is_done) break;
    EXPECT_EQ(runs(), before) << "call " << refused;
    EXPECT_EQ(driver_.mapped, mapped);
    EXPECT_EQ(driver_.created, created);
    EXPECT_EQ(placement_.table().end_of(0), end);
    EXPECT_EQ(placement_.table().pages(), static_cast<std::int64_t>(created.size()));
    placement_.audit();
    ASSERT_LT(refused, 100);
  }
}

// Between plan and commit the lock is free: others must not get what a gather has picked.
TEST_F(PagePlacementTest, TwoPlansUnderWayShareNothing) {
  const PagedBlock block = allocate(6 * 128);
  release(block);
  const PagedBlock pin = allocate(128);
  PagePlan first = placement_.plan({6 * 128, 0});
  PagePlan second = placement_.plan({7 * 128, 1});
  ASSERT_EQ(first.kind, PlanKind::placed);
  ASSERT_EQ(second.kind, PlanKind::placed);
  ASSERT_TRUE(carry_out(second.gather, driver_));
  const PagedBlock late = placement_.commit(second);
  ASSERT_TRUE(carry_out(first.gather, driver_));
  const PagedBlock early = placement_.commit(first);
  bytes_.arrive(placement_.table(), pin, 0);
  bytes_.arrive(placement_.table(), early, 1);
  bytes_.arrive(placement_.table(), late, 2);
  audit();
}

// Without a gather, too: the lock may be given up for other streams' work.
TEST_F(PagePlacementTest, APlanHasItsBytesToItself) {
  release(allocate(300));
  const PagePlan first = placement_.plan({300, 0});
  ASSERT_TRUE(first.gather.empty());
  PagePlan second = placement_.plan({300, 0});
  EXPECT_FALSE(second.gather.empty());
  placement_.abandon(second);
  placement_.abandon(first);
  PagePlan again = placement_.plan({300, 0});
  EXPECT_EQ(again.address, first.address);
  EXPECT_TRUE(again.gather.empty());
  static_cast<void>(placement_.commit(again));
  placement_.audit();
}

TEST_F(PagePlacementTest, OthersBytesAreLeftAloneWhereTheyMayNotBeTaken) {
  release(allocate(256, 1));
  const PagePlan made = placement_.plan({256, 0, false});
  ASSERT_EQ(made.kind, PlanKind::placed);
  EXPECT_TRUE(made.owners.empty());
  EXPECT_EQ(placement_.table().pages(), 4);
  placement_.abandon(made);
  EXPECT_EQ(placement_.table().pages(), 2);
}

TEST_F(PagePlacementTest, AStreamsAddressesGoOnInAnotherArena) {
  PagePlacement small(kPageOf128, PagePlacement::kNoLimit, 4);
  std::vector<Sectors> places;
  for (int i = 0; i < 6; ++i) {
    PagePlan made = small.plan({128, 0});
    places.push_back(small.commit(made).address);
  }
  EXPECT_EQ(PageTable::arena_of(places[3]), 0);
  EXPECT_EQ(PageTable::arena_of(places[4]), 1);
  small.audit();
}

// Addresses are far apart then.
TEST_F(PagePlacementTest, FreeBytesAreFoundInWhicheverArena) {
  constexpr int kBlocks = 300;
  PagePlacement small(kPageOf128, PagePlacement::kNoLimit, 1);
  std::vector<PagedBlock> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    PagePlan made = small.plan({128, 0});
    blocks.push_back(small.commit(made));
  }
  ASSERT_GT(small.table().arenas(), kBlocks / 3);
  for (int i = 0; i < kBlocks; i += 2) {
    small.freed(blocks[static_cast<std::size_t>(i)]);
    small.settle(blocks[static_cast<std::size_t>(i)]);
  }
  small.audit();
  for (int i = 0; i < kBlocks; i += 2) {
    PagePlan made = small.plan({127, 0});
    EXPECT_TRUE(made.gather.empty());
    EXPECT_EQ(small.commit(made).address, blocks[static_cast<std::size_t>(i)].address);
  }
  small.audit();
}

// What a larger handle has beyond one stream's block would serve none of the others.
TEST_F(PagePlacementTest, ManyStreamsWithLittleEachHaveAPageEach) {
  for (StreamNumber stream = 0; stream < 300; ++stream) static_cast<void>(allocate(2, stream));
  EXPECT_EQ(placement_.table().pages(), 300);
}

TEST_F(PagePlacementTest, ManyStreamsShareFewArenas) {
  std::vector<PagedBlock> blocks;
  for (StreamNumber stream = 0; stream < 100; ++stream) blocks.push_back(allocate(100, stream));
  EXPECT_EQ(placement_.table().arenas(), PagePlacement::kGrowingArenas);
  for (StreamNumber stream = 0; stream < 100; ++stream) blocks.push_back(allocate(200, stream));
  EXPECT_EQ(placement_.table().arenas(), PagePlacement::kGrowingArenas);
  placement_.audit();
  for (const PagedBlock& block : blocks) release(block);
  placement_.audit();
}

// What is refused is free again where it was; what is gone is known of no more.
TEST_F(PagePlacementTest, WholeHandlesLeaveAndWhatIsRefusedStays) {
  std::vector<PagedBlock> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(allocate(128));
  for (const std::size_t i : {0U, 2U, 4U}) release(blocks[i]);
  const PagedBlock gathered = allocate(3 * 128);  // the three, mapped once more
  release(gathered);
  release(blocks[1]);
  const PagedBlock pin = allocate(100);
  Departure departure = placement_.leave(PagePlacement::kNoLimit);
  ASSERT_EQ(departure.pages, 3) << "neither the live ones nor the one that is free in part";
  const PagePlan other = placement_.plan({128, 0});
  for (const Gather::Step& step : other.gather.steps)
    for (const Departure::Leaving& leaving : departure.handles)
      EXPECT_NE(step.handle, leaving.handle) << "what leaves serves nobody";
  placement_.abandon(other);
  for (Departure::Leaving& leaving : departure.handles) {
    EXPECT_EQ(leaving.mappings, 2U);
    for (std::size_t i = 0; i < leaving.mappings; ++i) {
      Departure::Mapping& mapping = departure.mappings[leaving.first_mapping + i];
      if (&leaving == departure.handles.data() && i + 1 == leaving.mappings) break;  // refused at its home
      driver_.unmap(placement_.table().handle_at(mapping.address), mapping.address);
      mapping.is_gone = true;
    }
    leaving.is_gone = &leaving != departure.handles.data();
    if (leaving.is_gone) driver_.release(leaving.handle);
  }
  placement_.left(departure);
  placement_.audit();
  const Sectors stayed = placement_.table().home_of(departure.handles[0].handle);
  EXPECT_EQ(stayed, departure.mappings[departure.handles[0].first_mapping + 1].address);
  EXPECT_TRUE(placement_.free_runs().is_free(stayed, 128));
  static_cast<void>(pin);
}

TEST_F(PagePlacementTest, NoMoreLeavesThanIsAskedAndAnEmptyArenaIsNobodys) {
  release(allocate(10 * 128));
  EXPECT_FALSE(placement_.take_empty_arena());
  for (const std::int64_t asked : {3, 100}) {
    EXPECT_EQ(give_back(placement_, driver_, asked), asked == 3 ? 3 : 7);
    placement_.audit();
  }
  EXPECT_EQ(placement_.table().pages(), 0);
  EXPECT_TRUE(driver_.mapped.empty());
  const auto arena = placement_.take_empty_arena();
  ASSERT_TRUE(arena);
  EXPECT_FALSE(placement_.take_empty_arena());
  placement_.give_arena(*arena);
  const std::int64_t logged = placement_.counts().logged;
  const PagedBlock first = allocate(5 * 128);
  EXPECT_EQ(PageTable::arena_of(first.address), *arena);
  const PagedBlock second = allocate(5 * 128);
  release(first);
  release(second);
  static_cast<void>(allocate(10 * 128));
  EXPECT_EQ(placement_.table().pages(), 10);
  EXPECT_EQ(placement_.counts().logged, logged) << "what was known of these addresses is forgotten";
  placement_.audit();
}

// One that is abandoned while another has addresses behind it.
TEST_F(PagePlacementTest, AnAbandonedPlanBehindWhichOthersWentLeavesAHole) {
  const PagePlan first = placement_.plan({128, 0});
  PagePlan second = placement_.plan({256, 0});
  placement_.abandon(first);
  ASSERT_TRUE(carry_out(second.gather, driver_));
  const PagedBlock block = placement_.commit(second);
  EXPECT_EQ(block.address, placement_.table().begin_of(0) + 128);
  EXPECT_FALSE(placement_.table().is_mapped(placement_.table().begin_of(0), 1));
  EXPECT_EQ(placement_.table().pages(), 2);
  bytes_.arrive(placement_.table(), block, 0);
  audit();
}

}  // namespace
}  // namespace cistern
