#include "allocator/window_plan.h"
#include "tests/allocator/page_sizes.h"
#include "tests/allocator/plain_free_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <memory_resource>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

namespace cistern {
namespace {

// With room of its own.
class RoomyFragments {
  Fragments::Room room_ = Fragments::room_for(kPageOf128, 1);

 public:
  Fragments parts{kPageOf128, std::pmr::get_default_resource(), room_, 0};
};

Fragment fragment(Sectors sectors, PageTable::Handle page) { return {sectors, page * kPageOf128.sectors(), {page, 0}}; }

std::optional<WindowPlan> plan_of(const std::vector<Fragment>& endings, const std::vector<Fragment>& beginnings,
                                  Sectors sectors) {
  const auto list = [](const std::vector<Fragment>& parts) {
    auto made = std::make_unique<RoomyFragments>();
    for (const Fragment& part : parts) made->parts.add(part);
    return made;
  };
  const auto ends = list(endings);
  const auto begins = list(beginnings);
  const std::array<const Fragments*, 1> of_ends = {&ends->parts};
  const std::array<const Fragments*, 1> of_begins = {&begins->parts};
  return plan_window(of_ends, of_begins, sectors, kPageOf128);
}

TEST(WindowPlanTest, TwoFragmentsSaveAPage) {
  const std::vector<Fragment> endings = {fragment(60, 1)};
  const std::vector<Fragment> beginnings = {fragment(50, 2), fragment(70, 3)};
  const auto plan = plan_of(endings, beginnings, 128 + 128);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->pages, 1);
  EXPECT_EQ(plan->head, 60);
  EXPECT_EQ(plan->tail, 68);
  EXPECT_EQ(plan->beginning.slot.handle, 3);
  EXPECT_EQ(plan->cut, WindowCut::none);  // two sectors are left
}

TEST(WindowPlanTest, NotTwoFragmentsOfOnePage) {
  const std::vector<Fragment> endings = {fragment(60, 1)};
  EXPECT_FALSE(plan_of(endings, std::vector<Fragment>{fragment(60, 1)}, 120));
  EXPECT_TRUE(plan_of(endings, std::vector<Fragment>{fragment(60, 1), fragment(61, 2)}, 120));
}

TEST(WindowPlanTest, AFragmentUsedUpAndTheCutInAWholePage) {
  const std::vector<Fragment> parts = {fragment(90, 1)};
  const auto ending = plan_of(parts, {}, 128 + 50);
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->cut, WindowCut::whole_page);
  EXPECT_EQ(ending->head, 90);
  EXPECT_EQ(ending->pages, 1);
  EXPECT_EQ(ending->skipped, 0);
  const auto beginning = plan_of({}, parts, 128 + 50);
  ASSERT_TRUE(beginning);
  EXPECT_EQ(beginning->tail, 90);
  EXPECT_EQ(beginning->skipped, 40);
}

TEST(WindowPlanTest, NothingWithoutAFragmentThatHelps) {
  EXPECT_FALSE(plan_of({}, {}, 300));
  EXPECT_FALSE(plan_of(std::vector<Fragment>{fragment(20, 1)}, {}, 128 + 100));
}

// The fewest whole pages over all choices of fragments, and what it says is what the request takes.
TEST(WindowPlanTest, AsFewPagesAsAnyChoiceOfFragments) {
  std::mt19937_64 random(20261121);
  for (int round = 0; round < 5000; ++round) {
    std::vector<Fragment> endings;
    std::vector<Fragment> beginnings;
    for (std::uint64_t i = random() % 5; i > 0; --i)
      endings.push_back(fragment(static_cast<Sectors>(1 + random() % 127), static_cast<int>(random() % 8)));
    for (std::uint64_t i = random() % 5; i > 0; --i)
      beginnings.push_back(fragment(static_cast<Sectors>(1 + random() % 127), static_cast<int>(random() % 8)));
    // A page has one ending and one beginning at most.
    const auto unique = [](std::vector<Fragment>& parts) {
      std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
      parts.erase(
          std::unique(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.slot == b.slot; }),
          parts.end());
      std::sort(parts.begin(), parts.end());
    };
    unique(endings);
    unique(beginnings);
    const auto sectors = static_cast<Sectors>(1 + random() % 600);
    const auto plan = plan_of(endings, beginnings, sectors);

    const std::int64_t whole = kPageOf128.whole(sectors);
    std::optional<std::int64_t> least;
    const auto offer = [&](Sectors parts) {
      for (std::int64_t pages = std::max<std::int64_t>(0, whole - 1); pages <= whole; ++pages)
        if (parts + kPageOf128.sectors(pages) >= sectors) least = std::min(least.value_or(1000), pages);
    };
    for (const auto* parts : {&endings, &beginnings})
      for (const Fragment& part : *parts)
        if (part.sectors <= sectors || sectors < kPageOf128.sectors()) offer(part.sectors);
    for (const Fragment& ending : endings)
      for (const Fragment& beginning : beginnings)
        if (!(ending.slot == beginning.slot)) offer(ending.sectors + beginning.sectors);
    ASSERT_EQ(plan.has_value(), least.has_value()) << "round " << round;
    if (!plan) continue;
    ASSERT_EQ(plan->pages, *least) << "round " << round;
    const Sectors held = plan->head + plan->tail + kPageOf128.sectors(plan->pages);
    ASSERT_EQ(held - sectors, plan->cut == WindowCut::whole_page ? plan->left : 0);
    ASSERT_LE(plan->head, plan->ending.sectors);
    ASSERT_LE(plan->tail, plan->beginning.sectors);
    if (plan->head > 0 && plan->tail > 0) {
      ASSERT_FALSE(plan->ending.slot == plan->beginning.slot);
    }
  }
}

// Of few sizes and many, in one list or two, of which pages have both ends.
TEST(WindowPlanTest, TheSameAsOfAllPairs) {
  std::mt19937_64 random(20261123);
  for (int round = 0; round < 4000; ++round) {
    const Sectors sizes = round % 3 == 0 ? 6 : 127;
    const auto pages = static_cast<int>(2 + random() % 40);
    std::array<RoomyFragments, 4> lists;
    std::array<std::vector<Fragment>, 2> parts;
    for (int page = 0; page < pages; ++page)
      for (const std::size_t end : {0U, 1U}) {
        if (random() % 3 == 0) continue;
        parts[end].push_back(fragment(1 + static_cast<Sectors>(random() % static_cast<std::uint64_t>(sizes)), page));
        lists[2 * end + random() % 2].parts.add(parts[end].back());
      }
    for (auto& list : parts) std::sort(list.begin(), list.end());
    const auto sectors = static_cast<Sectors>(1 + random() % 600);
    const std::array<const Fragments*, 2> endings = {&lists[0].parts, &lists[1].parts};
    const std::array<const Fragments*, 2> beginnings = {&lists[2].parts, &lists[3].parts};
    const auto plan = plan_window(endings, beginnings, sectors, kPageOf128);
    const auto plain = plain_window(parts[0], parts[1], sectors, kPageOf128);
    ASSERT_EQ(plan.has_value(), plain.has_value()) << "round " << round;
    if (!plan) continue;
    const auto all = [](const WindowPlan& a) {
      return std::tuple(a.pages, a.head, a.tail, a.cut, a.left, a.skipped, a.head > 0 ? a.ending.address : 0,
                        a.tail > 0 ? a.beginning.address : 0);
    };
    ASSERT_EQ(all(*plan), all(*plain)) << "round " << round;
  }
}

}  // namespace
}  // namespace cistern
