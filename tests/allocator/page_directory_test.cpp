// The directory of pages that is read without a lock: against std::map, and while it changes, in every order.
#include "allocator/page_directory.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/allocator/every_order.h"
#include "tests/property.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayingProcessors;

[[maybe_unused]] const bool page_directory_configured = configure_properties("PageDirectoryProperties", 2000, 200);

// Pages of three leaves that are neighbours, and of one far away.
std::uint64_t page_of(int number) {
  return number % 4 == 3 ? (std::uint64_t{1} << 27) + static_cast<std::uint64_t>(number)
                         : static_cast<std::uint64_t>(number) * 97 % (3 * 512);
}

RC_GTEST_PROP(PageDirectoryProperties, FindsWhatAMapFinds, ()) {
  std::array<int, 200> values{};
  PageDirectory<int> directory;
  std::map<std::uint64_t, int*> expected;
  const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000));
  for (const int step : steps) {
    const std::uint64_t page = page_of(step % 100);
    int* const value = &values[static_cast<std::size_t>(step % 200)];
    if (step < 600) {
      directory.reserve(page, page + 1);
      directory.put(page, value);
      expected[page] = value;
    } else {
      directory.erase(page);
      expected.erase(page);
    }
  }
  for (int i = 0; i < 100; ++i) {
    const auto found = expected.find(page_of(i));
    RC_ASSERT(directory.find(page_of(i)) == (found == expected.end() ? nullptr : found->second));
  }
}

TEST(PageDirectory, LeavesWithOnePlaceInFrontAreToldApart) {
  constexpr std::uint64_t kNear = 5;
  constexpr std::uint64_t kFar = 256 * 512 + kNear;
  int near = 0;
  int far = 0;
  PageDirectory<int> directory;
  directory.reserve(kNear, kNear);
  directory.put(kNear, &near);
  EXPECT_EQ(directory.find(kFar), nullptr);
  EXPECT_EQ(directory.find_recent(kFar), nullptr);
  EXPECT_EQ(directory.find_recent(kNear), &near);
  directory.erase(kFar);
  EXPECT_EQ(directory.find(kNear), &near);
  directory.reserve(kFar, kFar);
  EXPECT_EQ(directory.find(kFar), nullptr);
  directory.put(kFar, &far);
  EXPECT_EQ(directory.find(kNear), &near);
  EXPECT_EQ(directory.find(kFar), &far);
  EXPECT_EQ(directory.find_recent(kNear), nullptr);
  EXPECT_EQ(directory.find_recent(kFar), &far);
  directory.erase(kNear);
  EXPECT_EQ(directory.find(kFar), &far);
}

TEST(PageDirectory, RoomIsThereForAllPagesBetween) {
  int value = 0;
  PageDirectory<int> directory;
  EXPECT_EQ(directory.find(0), nullptr);
  directory.reserve(500, 2000);
  for (std::uint64_t page = 500; page <= 2000; ++page) directory.put(page, &value);
  for (std::uint64_t page = 500; page <= 2000; ++page) ASSERT_EQ(directory.find(page), &value);
  EXPECT_EQ(directory.find(499), nullptr);
  EXPECT_EQ(directory.find(2001), nullptr);
}

// A reader looks for a page whose leaf comes, whose value changes or goes: it finds what was there or what comes,
// complete, or nothing.
TEST(PageDirectoryInterleaving, AReaderFindsWhatWasOrWhatComes) {
  struct World {
    World() {
      directory.reserve(1, 1);
      directory.put(1, &before);
    }
    PageDirectory<int, DelayingProcessors> directory;
    int before = 1;
    int after = 2;
    const int* changing = nullptr;
    const int* coming = nullptr;
  };
  testing::in_every_order(
      kSanitized ? 1 : 2, [] { return std::make_unique<World>(); },
      [](World& world) {
        world.directory.put(1, &world.after);
        world.directory.reserve(600, 600);
        world.directory.put(600, &world.after);
      },
      [](World& world) {
        world.coming = world.directory.find(600);
        world.changing = world.directory.find(1);
      },
      [](World& world, const Choices& order) {
        EXPECT_TRUE(world.changing == nullptr || world.changing == &world.before || world.changing == &world.after)
            << order;
        EXPECT_TRUE(world.coming == nullptr || world.coming == &world.after) << order;
        EXPECT_TRUE(world.coming == nullptr || world.changing == &world.after) << order;
        EXPECT_EQ(world.directory.find(1), &world.after) << order;
        EXPECT_EQ(world.directory.find(600), &world.after) << order;
      });
}

// What a value holds was written before it was put, and so was the leaf that it is found by.
TEST(PageDirectoryInterleaving, AReaderFindsNoValueThatIsNotWhole) {
  using Value = DelayingProcessors::Atomic<int>;
  struct World {
    PageDirectory<Value, DelayingProcessors> directory;
    Value value{0};
    int not_whole = 0;
  };
  using Directory = PageDirectory<Value, DelayingProcessors>;
  for (const auto find : {&Directory::find_recent, &Directory::find})
    testing::in_every_order(
        kSanitized                 ? 1
        : find == &Directory::find ? 2
                                   : 4,
        [] {
          auto world = std::make_unique<World>();
          world->directory.reserve(1, 1);
          return world;
        },
        [](World& world) {
          world.value.store(1, std::memory_order_relaxed);
          world.directory.put(1, &world.value);
          world.directory.reserve(600, 600);
        },
        [find](World& world) {
          if ((world.directory.*find)(600) != nullptr) ++world.not_whole;
          if (const Value* const found = (world.directory.*find)(1))
            if (found->load(std::memory_order_relaxed) != 1) ++world.not_whole;
        },
        [](World& world, const Choices& order) { EXPECT_EQ(world.not_whole, 0) << order; });
}

}  // namespace
}  // namespace cistern
