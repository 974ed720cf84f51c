// The map that is read without a lock: against std::map, and while it changes, in every order.
#include "allocator/published_map.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/allocator/every_order.h"
#include "tests/property.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayingProcessors;

[[maybe_unused]] const bool published_map_configured = configure_properties("PublishedMapProperties", 2000, 200);

RC_GTEST_PROP(PublishedMapProperties, FindsWhatAMapFinds, ()) {
  std::array<int, 200> values{};
  PublishedMap<int> map;
  std::map<std::uint64_t, int*> expected;
  const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000));
  for (const int step : steps) {
    const auto key = static_cast<std::uint64_t>(step % 100) * 0x100000001 + 1;  // the upper half counts too
    int* const value = &values[static_cast<std::size_t>(step % 200)];
    if (step < 600) {
      map.reserve(1);
      map.put(key, value);
      expected[key] = value;
    } else if (step < 980) {
      map.erase(key);
      expected.erase(key);
    } else {
      const auto goes = [&](const int& one) { return (&one - values.data()) % 20 < step - 975; };
      map.erase_if(goes);
      std::erase_if(expected, [&](const auto& entry) { return goes(*entry.second); });
    }
    RC_ASSERT(map.size() == expected.size());
  }
  std::map<std::uint64_t, int*> visited;
  map.for_each([&](std::uint64_t key, int& value) { visited[key] = &value; });
  RC_ASSERT(visited == expected);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t key = i * 0x100000001 + 1;
    const auto found = expected.find(key);
    RC_ASSERT(map.find(key) == (found == expected.end() ? nullptr : found->second));
    RC_ASSERT(map.contains(key) == (found != expected.end()));
  }
}

TEST(PublishedMap, FindsNothingBeforeAnythingIsThere) {
  const PublishedMap<int> map;
  EXPECT_EQ(map.find(1), nullptr);
  EXPECT_FALSE(map.contains(1));
  EXPECT_FALSE(map.has_room(1));
}

using SteppedMap = PublishedMap<int, DelayingProcessors>;

// At full counts of 3 stops.
int stops() { return kSanitized ? 1 : scaled(10) < 10 ? 2 : 3; }

// Numbers that begin their search at the same of 16 places, so that they lie behind each other and move
// when one of them goes.
std::vector<std::uint64_t> neighbours() {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; keys.size() < 5; ++key)
    if ((key * 0x9e3779b97f4a7c15ULL >> 32) % 16 == 3) keys.push_back(key);
  return keys;
}

struct NeighboursWorld {
  explicit NeighboursWorld(std::size_t keys) {
    map.reserve(8);
    for (std::size_t i = 0; i < keys; ++i) put(i);
  }
  void put(std::size_t i) { map.put(numbers[i], &values[i]); }
  void erase(std::size_t i) { map.erase(numbers[i]); }

  std::vector<std::uint64_t> numbers = neighbours();
  std::array<int, 5> values{};
  SteppedMap map;
  const int* found = nullptr;
};

// A reader looks for `sought` among the first `keys` while `change` is made: it finds what was there before or is there
// afterwards, or does not know, where `may_miss` says so.
template <class Change>
void read_during(const Change& change, std::size_t sought, std::size_t keys, bool may_miss = true,
                 int most_stops = stops()) {
  testing::in_every_order(
      most_stops, [&] { return std::make_unique<NeighboursWorld>(keys); }, change,
      [&](NeighboursWorld& world) { world.found = world.map.find(world.numbers[sought]); },
      [&](NeighboursWorld& world, const Choices& order) {
        EXPECT_TRUE((may_miss && world.found == nullptr) || world.found == &world.values[sought]) << order;
      });
}

TEST(PublishedMapInterleaving, AReaderNeverTakesOneKeysValueForAnothers) {
  for (std::size_t sought = 0; sought < 5; ++sought) {
    read_during([](NeighboursWorld& world) { world.erase(1); }, sought, 3);
    read_during([](NeighboursWorld& world) { world.put(4); }, sought, 4);
    read_during(
        [](NeighboursWorld& world) {
          world.erase(0);
          world.put(4);
        },
        sought, 1);
  }
}

// It takes many steps.
TEST(PublishedMapInterleaving, AReaderNeverTakesOneKeysValueForAnothersWhileManyGo) {
  const auto change = [](NeighboursWorld& world) {
    world.map.erase_if([&](const int& value) { return &value == &world.values[0]; });
  };
  for (std::size_t sought = 0; sought < 2; ++sought) read_during(change, sought, 2, true, 1);
}

// Of what is there all the time, at whatever place, a look never says that there is none: at most that it does not
// know.
template <class Change>
void look_during(const Change& change, int most_stops) {
  struct LookedAtWorld : NeighboursWorld {
    using NeighboursWorld::NeighboursWorld;
    std::optional<const int*> said;
  };
  testing::in_every_order(
      most_stops, [] { return std::make_unique<LookedAtWorld>(3); }, [&](LookedAtWorld& world) { change(world); },
      [](LookedAtWorld& world) { world.said = world.map.look(world.numbers[2]); },
      [](LookedAtWorld& world, const Choices& order) {
        EXPECT_TRUE(!world.said || *world.said == &world.values[2]) << order;
      });
}

TEST(PublishedMapInterleaving, ALookNeverDeniesWhatIsThere) {
  look_during([](NeighboursWorld& world) { world.erase(0); }, std::min(stops(), 2));
  look_during(
      [](NeighboursWorld& world) { world.map.erase_if([&](const int& value) { return &value == &world.values[0]; }); },
      std::min(stops(), 2));
}

TEST(PublishedMapInterleaving, AReaderFindsWhatNobodyMoves) {
  read_during([](NeighboursWorld& world) { world.put(2); }, 1, 2, false);
}

// What a value holds was written before it was put: under a key that is new, and under one that had another.
TEST(PublishedMapInterleaving, AReaderFindsNoValueThatIsNotWhole) {
  using Value = DelayingProcessors::Atomic<int>;
  struct World {
    PublishedMap<Value, DelayingProcessors> map;
    Value before{1};
    Value after{0};
    int not_whole = 0;
  };
  const auto new_world = [] {
    auto world = std::make_unique<World>();
    world->map.reserve(8);
    world->map.put(1, &world->before);
    return world;
  };
  testing::in_every_order(
      4, new_world,
      [](World& world) {
        world.after.store(1, std::memory_order_relaxed);
        world.map.put(1, &world.after);
        world.map.put(2, &world.after);
      },
      [](World& world) {
        for (const std::uint64_t key : {2, 1})
          if (const Value* const found = world.map.find(key))
            if (found->load(std::memory_order_relaxed) != 1) ++world.not_whole;
      },
      [](World& world, const Choices& order) { EXPECT_EQ(world.not_whole, 0) << order; });
}

TEST(PublishedMapInterleaving, AReaderOfAnOutgrownTableDoesNotKnow) {
  for (const std::size_t sought : {std::size_t{0}, std::size_t{1}})
    read_during([](NeighboursWorld& world) { world.map.reserve(10); }, sought, 1);
}

TEST(PublishedMap, ThreadsReadWhileAnotherChanges) {
  std::array<std::uint64_t, 1000> values{};
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = i;
  PublishedMap<std::uint64_t> map;
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::array<std::thread, 2> readers;
  for (std::thread& reader : readers)
    reader = std::thread([&] {
      for (std::uint64_t key = 1; !ends.load(std::memory_order_relaxed); key = key % 999 + 1)
        if (const std::uint64_t* value = map.find(key); value != nullptr && *value != key) ++wrong;
    });
  const int rounds = kSanitized ? 2 : 20;
  for (int round = 0; round < rounds; ++round) {
    for (std::uint64_t key = 1; key < 1000; ++key) {
      map.reserve(1);
      map.put(key, &values[key]);
    }
    for (std::uint64_t key = 1; key < 1000; ++key) map.erase(key);
  }
  ends = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cistern
