// What a placement spends, which classes are harmed, the windows of before, and the driver's part.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/creation_harm.h"
#include "allocator/driver_spending.h"
#include "allocator/exact_fits.h"
#include "allocator/fits_first.h"
#include "allocator/gather.h"
#include "allocator/known_places.h"
#include "allocator/past_windows.h"
#include "allocator/room_to_settle.h"
#include "tests/allocator/mapped_pages.h"

namespace cistern {
namespace {

TEST(CreationHarmTest, ClassesAreEighthsOfAnOctave) {
  std::mt19937_64 random(20261121);
  for (int i = 0; i < 20000; ++i) {
    const auto sectors = static_cast<Sectors>(1 + random() % (std::uint64_t{1} << (1 + random() % 40)));
    const double exact = std::log2(static_cast<double>(sectors)) * 8;
    ASSERT_EQ(CreationHarm::class_of(sectors), static_cast<std::size_t>(exact)) << sectors;
  }
  EXPECT_EQ(CreationHarm::class_of(1), 0U);
  EXPECT_LT(CreationHarm::class_of(std::numeric_limits<Sectors>::max()), CreationHarm::kClasses);
}

TEST(CreationHarmTest, HarmFollowsWhatBlocksOfTheClassSaw) {
  CreationHarm harm;
  EXPECT_EQ(harm.of(4096, 0), 1);
  harm.ended(4096, 0, false);
  EXPECT_DOUBLE_EQ(harm.of(4096, 0), 0.75);
  harm.ended(4200, 0, false);  // the same class
  EXPECT_DOUBLE_EQ(harm.of(4096, 0), 0.5625);
  harm.ended(4096, 0, true);
  EXPECT_DOUBLE_EQ(harm.of(4096, 0), 0.671875);
  EXPECT_EQ(harm.of(8192, 0), 1);
  EXPECT_EQ(harm.of(4096, 1), 1);
}

// However its table grows.
TEST(CreationHarmTest, OfStreamsThatAreNotKnownItIsAll) {
  CreationHarm harm;
  for (StreamNumber stream = 0; stream < 3000; stream += 7) {
    EXPECT_EQ(harm.of(100, stream), 1);
    harm.ended(100, stream, false);
    EXPECT_LT(harm.of(100, stream), 1);
    EXPECT_EQ(harm.of(100, stream + 1), 1);
    EXPECT_EQ(harm.of(1000, stream), 1);
  }
}

TEST(CreationHarmTest, OfManyBlocksAtOnceItIsWhatItIsOfEach) {
  CreationHarm one_by_one;
  CreationHarm at_once;
  for (const int times : {1, 2, 5, 0, 63, 64, 1000}) {
    const bool memory_was_created = times % 2 == 0;
    for (int i = 0; i < times; ++i) one_by_one.ended(100, 0, memory_was_created);
    at_once.ended_of_class(CreationHarm::class_of(100), 0, memory_was_created, times);
    EXPECT_EQ(at_once.of(100, 0), one_by_one.of(100, 0)) << times << " times";
  }
}

// However long nothing of its kind happens a number stays one that is added to at once.
TEST(CreationHarmTest, OneBlockAfterManyCounts) {
  CreationHarm harm;
  for (int i = 0; i < 10'000; ++i) harm.ended(100, 0, false);
  EXPECT_LT(harm.of(100, 0), 0.001);
  harm.ended(100, 0, true);
  EXPECT_NEAR(harm.of(100, 0), 0.25, 0.001);
}

TEST(ExactFitsTest, AreRareWhereOneIsFoundInThirty) {
  ExactFits fits;
  fits.add_stream(1);
  const auto find = [&](int times, int one_in) {
    for (int i = 0; i < times; ++i) fits.found(1, i % one_in == 0);
  };
  EXPECT_FALSE(fits.are_rare(1));
  find(500, 30);
  EXPECT_FALSE(fits.are_rare(1)) << "few were seen yet";
  find(1500, 30);
  EXPECT_TRUE(fits.are_rare(1));
  EXPECT_FALSE(fits.are_rare(0)) << "another stream";
  EXPECT_FALSE(fits.are_rare(2)) << "one that nothing is known of";
  find(1500, 20);
  EXPECT_FALSE(fits.are_rare(1));
  find(100'000, 1'000'000);
  EXPECT_TRUE(fits.are_rare(1));
  find(11, 1);
  EXPECT_FALSE(fits.are_rare(1)) << "where they come again it is seen soon";
}

class FitsFirstTest : public ::testing::Test {
 protected:
  static constexpr StreamNumber kStream = 1;
  static constexpr std::int64_t kPages = 10;

  FitsFirstTest() { fits_.add_stream(kStream); }

  // The last of so many requests gathers a handle, and `passed` others followed no place. Whether the order changed.
  bool gather(std::int64_t requests, std::int64_t passed, std::int64_t handles = 1) {
    fits_.passed(kStream, passed);
    const bool before = fits_.of(kStream);
    fits_.gathered(kStream, handles, came_ + requests - 1, kPages);
    came_ += requests;
    return fits_.of(kStream) != before;
  }
  // How many such gathers there are up to the next change.
  int gathers(std::int64_t requests, std::int64_t passed) {
    int count = 1;
    while (!gather(requests, passed)) ++count;
    return count;
  }

  FitsFirst fits_;
  std::int64_t came_ = 0;
};

TEST_F(FitsFirstTest, GathersArePutDownToPlacesThatWereFollowed) {
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(gather(11, 10));
  EXPECT_FALSE(fits_.of(kStream));
  EXPECT_EQ(gathers(11, 0), 81) << "more than 8 handles a page";
  EXPECT_TRUE(fits_.of(kStream));
}

TEST_F(FitsFirstTest, AsFarAsTheyWere) { EXPECT_EQ(gathers(11, 5), 161); }

TEST_F(FitsFirstTest, HandlesCount) {
  EXPECT_FALSE(gather(11, 0, 80));
  EXPECT_TRUE(gather(11, 0, 1));
}

TEST_F(FitsFirstTest, WhereFitsDoNotHelpEitherPlacesGoFirstForTwiceAsLong) {
  static_cast<void>(gathers(11, 0));
  EXPECT_EQ(gathers(11, 10), 81) << "whatever was followed";
  EXPECT_FALSE(fits_.of(kStream));
  EXPECT_EQ(gathers(11, 0), 161);
  EXPECT_EQ(gathers(11, 0), 161);
  EXPECT_EQ(gathers(11, 0), 321);
}

TEST_F(FitsFirstTest, RequestsThatGatherInTurnFollowNothing) {
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(gather(1, 0));
}

TEST_F(FitsFirstTest, MorePassedThanCameIsAll) { EXPECT_FALSE(gather(11, 1'000'000, 1'000'000)); }

TEST_F(FitsFirstTest, StreamsAreApart) {
  fits_.add_stream(3);
  EXPECT_FALSE(fits_.of_any());
  static_cast<void>(gathers(11, 0));
  EXPECT_TRUE(fits_.of_any());
  for (const StreamNumber other : {0, 2, 3, 4}) EXPECT_FALSE(fits_.of(other));
  fits_.forget(kStream);
  fits_.forget(4);
  EXPECT_FALSE(fits_.of_any());
  EXPECT_FALSE(fits_.of(kStream));
  EXPECT_EQ(gathers(11, 0), 81) << "what came before is known still";
}

// Of 100 pages, of which a tenth waits: the handles that are gathered before there is more room than `pages`.
int gathers_before_room(RoomToSettle& room, std::int64_t pages = 0) {
  int handles = 0;
  for (; room.pages() <= pages && handles < 100'000; ++handles) static_cast<void>(room.gathered(1, 10, 100, 100));
  return handles;
}

TEST(RoomToSettleTest, IsThereOnceFourTimesWhatThereIsWasGathered) {
  RoomToSettle room;
  EXPECT_EQ(room.pages(), 0);
  EXPECT_EQ(gathers_before_room(room), 401);
  EXPECT_EQ(room.pages(), 112);
}

TEST(RoomToSettleTest, IsNotThereWhereLittleWaits) {
  RoomToSettle room;
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(room.gathered(1, 6, 100, 100));
  EXPECT_EQ(room.pages(), 0);
  for (int i = 0; i < 400; ++i) EXPECT_FALSE(room.gathered(1, 7, 100, 100));
  EXPECT_TRUE(room.gathered(1, 7, 100, 100));
  EXPECT_EQ(room.pages(), 112);
}

TEST(RoomToSettleTest, ComesEverMoreSlowly) {
  RoomToSettle room;
  static_cast<void>(gathers_before_room(room));
  for (int i = 0; i < 896; ++i) EXPECT_FALSE(room.gathered(1, 10, 112, 112)) << "8 times what there is, which is more";
  EXPECT_TRUE(room.gathered(1, 10, 112, 112));
  EXPECT_EQ(room.pages(), 126);
}

TEST(RoomToSettleTest, IsAsMuchAgainAtMost) {
  RoomToSettle room;
  static_cast<void>(gathers_before_room(room));
  int times = 0;
  for (int i = 0; i < 100'000; ++i) times += room.gathered(1, 190, 190, 190) ? 1 : 0;
  EXPECT_EQ(room.pages(), 200);
  EXPECT_EQ(times, 1);
}

TEST(RoomToSettleTest, EndsWithTheMemory) {
  RoomToSettle room;
  static_cast<void>(gathers_before_room(room));
  for (int i = 0; i < 700; ++i) EXPECT_FALSE(room.gathered(1, 10, 100, 100));
  room.end(110);
  EXPECT_EQ(room.pages(), 0);
  EXPECT_EQ(gathers_before_room(room), 801) << "it was there before, and none is gathered since";
  room.end(100);
  EXPECT_EQ(gathers_before_room(room), 401);
}

TEST(DriverSpendingTest, WindowsAreBoughtUpToAShareOfWhatMappingEveryPageCosts) {
  DriverSpending spending;
  spending.created(100);
  spending.mapped(100);
  EXPECT_EQ(spending.microseconds(), 4300);
  // 1.9 times 43 us for 100 pages are 8170 us: 3870 are left, a set-access costs 50, a mapping 3.
  EXPECT_TRUE(spending.affords_window(1273, 100));
  EXPECT_FALSE(spending.affords_window(1274, 100));
}

TEST(DriverSpendingTest, HandlesGrowWithWhatWasSpent) {
  const auto least = [](std::int64_t calls, std::int64_t pages) {
    DriverSpending spending;
    for (std::int64_t i = 0; i < calls; ++i) spending.allowed();
    return spending.least_handle(pages);
  };
  EXPECT_EQ(least(129, 100), 1);  // 6450 us of 6450
  EXPECT_EQ(least(130, 100), 2);
  EXPECT_EQ(least(174, 100), 2);  // 8700 us of 8707.5
  EXPECT_EQ(least(175, 100), 4);
  EXPECT_EQ(least(1000, 63), 1);  // too few pages to spare
}

// Numbers that are low lie side by side, and in few lines of the processor's caches.
TEST(KnownPlacesTest, AfterManyTheNumbersAreLowAgain) {
  KnownPlaces places;
  constexpr Sectors kMany = 20000;
  Sectors address = 0;
  const auto come = [&](std::size_t most) {
    places.provide(1, most);
    return places.obtain(address++, 8);
  };
  while (address < kMany) static_cast<void>(come(kMany));
  const KnownPlaces::Number live = come(kMany);
  places[live].is_live = true;
  for (Sectors i = 0; i < kMany; ++i) static_cast<void>(come(100));
  EXPECT_TRUE(places[live].is_live);
  EXPECT_EQ(places.obtain(kMany, 8), live) << "a place with a block is not forgotten";
  places[live].is_live = false;
  for (Sectors i = 0; i < kMany; ++i) static_cast<void>(come(100));
  KnownPlaces::Number highest = 0;
  for (int i = 0; i < 2000; ++i) highest = std::max(highest, come(100));
  EXPECT_LT(highest, 500U);
  EXPECT_LT(places.size(), 500U);
  places.audit();
}

TEST(KnownPlacesTest, WhatIsProvidedForHasAName) {
  KnownPlaces places;
  for (Sectors address = 0; address < 30'000; ++address) {
    if (!places.has_room(1, 100'000)) places.provide(1, 100'000);
    ASSERT_TRUE(places.names(places.obtain(address, 8), address, 8)) << address;
  }
  places.audit();
}

TEST(KnownPlacesTest, WhatIsExpectedMapsNothing) {
  KnownPlaces places;
  places.expect(30'000);
  const std::int64_t before = testing_host::mapped_pages();
  for (Sectors address = 0; address < 30'000; ++address) {
    places.provide(1, 100'000);
    static_cast<void>(places.obtain(address, 8));
  }
  EXPECT_EQ(testing_host::mapped_pages(), before);
}

// By the inverse of what addresses are multiplied with: hashes that differ in their lowest bits alone.
TEST(KnownPlacesTest, PlacesThatTheIndexCannotHaveHaveNoName) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15ULL;
  std::uint64_t inverse = kFactor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  KnownPlaces places;
  std::vector<KnownPlaces::Number> unnamed;
  for (std::uint64_t i = 0; i < 600; ++i) {
    const std::uint64_t mixed = (0xABCDEF0100000000ULL + i) * inverse;
    const std::uint64_t bits = (mixed ^ mixed >> 32) ^ 8 * 0xC2B2AE3D27D4EB4FULL;
    const auto address = static_cast<Sectors>(bits * inverse);
    places.provide(40, 10'000);
    const KnownPlaces::Number number = places.obtain(address, 8);
    places[number].is_live = true;
    if (places.names(number, address, 8)) continue;
    unnamed.push_back(number);
  }
  EXPECT_EQ(unnamed.size(), 600U - 96U);
  places.audit();
  // A block that came there changed it, and nobody else gets its number.
  places.change(unnamed.front());
  places.looked_at(unnamed.front());
  places.changed().clear();
  EXPECT_TRUE(places[unnamed.front()].is_live);
  const std::size_t size = places.size();
  places.audit();
  places[unnamed.front()].is_live = false;
  places.change(unnamed.front());
  places.looked_at(unnamed.front());
  places.changed().clear();
  EXPECT_EQ(places.size(), size - 1);
  places.audit();
}

// To look at all of them takes a while.
TEST(KnownPlacesTest, PlacesAreForgottenOnceAsManyCameAsAHalfOfThem) {
  KnownPlaces places;
  const auto come = [&](Sectors address) {
    places.provide(1, 50);
    return places.obtain(address, 8);
  };
  for (Sectors address = 0; address < 200; ++address) places[come(address)].is_live = true;
  const KnownPlaces::Number idle = come(1000);
  int came = 1;
  for (; places.names(idle, 1000, 8); ++came) static_cast<void>(come(1000 + came));
  EXPECT_GT(came, 90);
  EXPECT_LT(came, 250);
  EXPECT_TRUE(places.names(places.obtain(7, 8), 7, 8));
  EXPECT_LT(places.size(), 210U);
  places.audit();
}

TEST(KnownPlacesTest, APlaceWithoutANameIsKnownByItsNumberAlone) {
  KnownPlaces places;
  places.provide(3, 10);
  const KnownPlaces::Number unnamed = places.add(7, 8);
  EXPECT_EQ(places[unnamed].address, 7);
  EXPECT_EQ(places[unnamed].sectors, 8);
  EXPECT_FALSE(places.names(unnamed, 7, 8)) << "who knew another place by that number";
  places[unnamed].is_live = true;
  const KnownPlaces::Number named = places.obtain(7, 8);
  EXPECT_NE(named, unnamed);
  EXPECT_TRUE(places.names(named, 7, 8));
  EXPECT_FALSE(places.names(named, 6, 8) || places.names(named, 7, 9) || places.names(named + 100, 7, 8));
  places[unnamed].is_live = false;
  EXPECT_THROW(places.audit(), std::logic_error) << "nobody is there, and nobody finds it";
  places.looked_at(unnamed);
  places.audit();
  EXPECT_EQ(places.size(), 1U);
  EXPECT_EQ(places.add(9, 8), unnamed);
}

TEST(KnownPlacesTest, APlaceWithoutANameStaysWhileABlockIsThere) {
  KnownPlaces places;
  places.provide(1, 1);
  const KnownPlaces::Number unnamed = places.add(7, 8);
  places[unnamed].is_live = true;
  for (Sectors address = 0; address < 5000; ++address) {
    places.provide(1, 1);
    ASSERT_NE(places.obtain(100 + address, 8), unnamed);
  }
  EXPECT_EQ(places[unnamed].address, 7);
  EXPECT_TRUE(places[unnamed].is_live);
  EXPECT_NE(places.obtain(7, 8), unnamed) << "nor is it found after the others were put elsewhere";
  places.audit();
}

TEST(PastWindowsTest, TheNewestOfTheSizeThatIsUsable) {
  PastWindows windows;
  for (Sectors address = 1; address <= 10; ++address) windows.note_exact(64, 0, address);
  const auto all = [](Sectors) { return true; };
  EXPECT_EQ(windows.exact(64, 0, all), 10);
  EXPECT_EQ(windows.exact(64, 0, [](Sectors address) { return address < 9; }), 8);
  EXPECT_EQ(windows.exact(64, 0, [](Sectors address) { return address < 3; }), std::nullopt);  // eight are kept
  EXPECT_EQ(windows.exact(63, 0, all), std::nullopt);
  EXPECT_EQ(windows.exact(64, 1, all), std::nullopt);
}

// Two numbers that tag_of(number) is the same of.
template <class TagOf>
std::pair<std::int32_t, std::int32_t> alike(TagOf&& tag_of) {
  std::unordered_map<HashIndex::Tag, std::int32_t> seen;
  for (std::int32_t number = 1;; ++number)
    if (const auto [other, is_new] = seen.emplace(tag_of(number), number); !is_new) return {other->second, number};
}

TEST(PastWindowsTest, WindowsOfSizesAndStreamsThatHashAlikeAreApart) {
  constexpr Sectors kSize = 4096;
  const auto sizes = alike([](std::int32_t size) { return HashIndex::tag_of(size, 0); });
  const auto streams = alike([](StreamNumber stream) { return HashIndex::tag_of(kSize, stream); });
  const auto is_usable = [](Sectors /*address*/) { return true; };
  PastWindows windows;
  windows.note_exact(sizes.first, 0, 128);
  windows.note_exact(kSize, streams.first, 256);
  EXPECT_EQ(windows.exact(sizes.second, 0, is_usable), std::nullopt);
  EXPECT_EQ(windows.exact(kSize, streams.second, is_usable), std::nullopt);
  windows.note_exact(sizes.second, 0, 384);
  windows.note_exact(kSize, streams.second, 512);
  EXPECT_EQ(windows.exact(sizes.first, 0, is_usable), 128);
  EXPECT_EQ(windows.exact(kSize, streams.first, is_usable), 256);
  EXPECT_EQ(windows.exact(sizes.second, 0, is_usable), 384);
  EXPECT_EQ(windows.exact(kSize, streams.second, is_usable), 512);
}

// As PastWindows has them: a segment of the index has 128 slots, and where a search begins must not be the same for all
// streams.
TEST(PastWindowsTest, TheSameSizeOnOtherStreamsIsLookedForElsewhere) {
  std::set<HashIndex::Tag> slots;
  for (StreamNumber stream = 0; stream < 1024; ++stream) slots.insert(HashIndex::tag_of(4096, stream) % 128);
  EXPECT_GT(slots.size(), 100U);
}

TEST(PastWindowsTest, TheShortestThatIsAQuarterLongerAtMost) {
  PastWindows windows;
  windows.note_length(126, 2, 7);
  windows.note_length(125, 2, 9);
  windows.note_length(99, 2, 8);
  const auto all = [](Sectors) { return true; };
  EXPECT_EQ(windows.longer(100, 2, all), 9);
  EXPECT_EQ(windows.longer(100, 2, [](Sectors address) { return address == 7; }), std::nullopt);
  EXPECT_EQ(windows.longer(101, 2, [](Sectors address) { return address == 7; }), 7);
  EXPECT_EQ(windows.longer(100, 0, all), std::nullopt);
  for (Sectors address = 100; address < 116; ++address) windows.note_length(100, 2, address);
  EXPECT_EQ(windows.longer(100, 2, [](Sectors address) { return address == 9; }), std::nullopt);  // sixteen are asked
  EXPECT_EQ(windows.longer(100, 2, [](Sectors address) { return address == 115; }), 115);
}

// Refuses one call, and writes down what it did.
struct RefusingDriver final : PageDriver {
  int refused = -1;
  int calls = 0;
  std::multiset<std::string> done;

  bool call(const std::string& what) {
    if (calls++ == refused) return false;
    done.insert(what);
    return true;
  }
  void undo(const std::string& what) {
    ASSERT_TRUE(done.contains(what)) << what;
    done.erase(done.find(what));
  }
  bool create(PageTable::Handle handle, std::int32_t pages) override {
    static_cast<void>(pages);
    return call("handle " + std::to_string(handle));
  }
  bool map(PageTable::Handle handle, Sectors address) override {
    return call(std::to_string(handle) + " at " + std::to_string(address));
  }
  bool allow(Sectors address, std::int64_t pages) override {
    return call("access " + std::to_string(address) + " " + std::to_string(pages));
  }
  void release(PageTable::Handle handle) override { undo("handle " + std::to_string(handle)); }
  void unmap(PageTable::Handle handle, Sectors address) override {
    undo(std::to_string(handle) + " at " + std::to_string(address));
  }
};

TEST(GatherTest, AllOrNothingAtEveryCall) {
  Gather gather;
  gather.address = 80;
  gather.pages = 4;
  gather.steps = {{3, 1, 80, false, false}, {7, 2, 88, true, true}, {5, 1, 104, true, true}};
  RefusingDriver willing;
  EXPECT_TRUE(carry_out(gather, willing));
  EXPECT_EQ(willing.calls, 6);
  EXPECT_EQ(willing.done,
            (std::multiset<std::string>{"3 at 80", "handle 7", "7 at 88", "handle 5", "5 at 104", "access 80 4"}));
  for (int refused = 0; refused < 6; ++refused) {
    RefusingDriver driver;
    driver.refused = refused;
    EXPECT_FALSE(carry_out(gather, driver));
    EXPECT_EQ(driver.calls, refused + 1);
    EXPECT_TRUE(driver.done.empty()) << "call " << refused;
  }
}

}  // namespace
}  // namespace cistern
