// Which streams are awake, and which have frees that wait: every order of two threads' steps, to a bound.
#include "allocator/awake_streams.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/stream_heap.h"
#include "allocator/stream_locks.h"
#include "tests/allocator/every_order.h"
#include "tests/allocator/roomy_stream_heap.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayingProcessors;
using testing::RoomyStreamHeap;
using Delayed = BasicAwakeStreams<DelayingProcessors>;

template <class Awake>
std::vector<StreamHeap*> awaiting_of(const Awake& awake) {
  std::vector<StreamHeap*> heaps;
  awake.for_each(awake.awaiting(), [&](StreamHeap& heap) { heaps.push_back(&heap); });
  return heaps;
}

TEST(AwakeStreams, BitsStandForTheStreamsThatTookThem) {
  std::array<RoomyStreamHeap, 3> heaps;
  AwakeStreams awake;
  std::array<AwakeStreams::Bits, 3> bits{};
  for (std::size_t i = 0; i < heaps.size(); ++i) bits[i] = awake.take(heaps[i]);
  EXPECT_EQ(awake.awaiting(), 0U) << "none has frees that wait";
  for (const bool alone : {true, false}) {
    awake.begin_awaiting(bits[0], alone);
    awake.begin_awaiting(bits[2], alone);
    awake.begin_awaiting(bits[2], alone);
    EXPECT_EQ(awaiting_of(awake), (std::vector<StreamHeap*>{&heaps[0], &heaps[2]}));
    awake.end_awaiting(bits[0], alone);
    EXPECT_EQ(awaiting_of(awake), (std::vector<StreamHeap*>{&heaps[2]}));
    awake.end_awaiting(bits[2], alone);
    EXPECT_EQ(awake.awaiting(), 0U);
  }
}

TEST(AwakeStreams, SoManyGetABitAndOneThatIsGivenBackIsTakenAgain) {
  RoomyStreamHeap heap;
  RoomyStreamHeap other;
  AwakeStreams awake;
  AwakeStreams::Bits all = 0;
  for (std::size_t i = 0; i < AwakeStreams::kMost; ++i) all |= awake.take(heap);
  EXPECT_EQ(all, ~AwakeStreams::kOfHeap);
  awake.give_back(AwakeStreams::Bits{1} << 37);
  EXPECT_EQ(awake.take(other), AwakeStreams::Bits{1} << 37);
  awake.begin_awaiting(AwakeStreams::Bits{1} << 37, false);
  EXPECT_EQ(awaiting_of(awake), (std::vector<StreamHeap*>{&other}));
  awake.hand_over();
  EXPECT_EQ(awake.awaiting(), AwakeStreams::kOfHeap) << "at no time are there none";
}

TEST(AwakeStreams, WhetherTheHeapHasFreesThatWaitIsNoStreams) {
  RoomyStreamHeap heap;
  AwakeStreams awake;
  const AwakeStreams::Bits bit = awake.take(heap);
  awake.let_heap_await(false);
  EXPECT_EQ(awake.awaiting(), 0U);
  awake.let_heap_await(true);
  awake.let_heap_await(true);
  EXPECT_EQ(awake.awaiting(), AwakeStreams::kOfHeap);
  EXPECT_TRUE(awaiting_of(awake).empty());
  awake.begin_awaiting(bit, false);
  EXPECT_EQ(awaiting_of(awake), std::vector<StreamHeap*>{&heap});
  awake.let_heap_await(false);
  EXPECT_EQ(awake.awaiting(), bit);
  awake.end_awaiting(bit, false);
  EXPECT_EQ(awake.awaiting(), 0U);
}

TEST(AwakeStreams, FreesAreNumberedInTheirOrder) {
  AwakeStreams awake;
  const std::uint64_t first = awake.next_number(true);
  EXPECT_LT(first, awake.next_number(false));
  EXPECT_LT(first + 1, awake.next_number(true));
}

TEST(StreamLocks, AStreamThatIsMetTwiceIsLockedOnce) {
  std::array<RoomyStreamHeap, 2> heaps;
  AwakeStreams awake;
  for (const std::size_t heap : {0, 1, 1}) awake.begin_awaiting(awake.take(heaps[heap]), false);
  const StreamLocks locks(heaps[0], awake, awake.awaiting());
  EXPECT_EQ(locks.heaps().size(), 2U);
}

TEST(AwakeStreamsInterleaving, NoStreamTouchesAnothersBit) {
  struct World {
    void come_and_go(std::size_t stream) {
      awake.begin_awaiting(bits[stream], false);
      numbers[stream] = awake.next_number(false);
      awake.end_awaiting(bits[stream], false);
      awake.begin_awaiting(bits[stream], false);
      is_seen = is_seen && (awake.awaiting() & bits[stream]) != 0;
    }
    std::array<RoomyStreamHeap, 2> heaps;
    Delayed awake;
    std::array<Delayed::Bits, 2> bits{awake.take(heaps[0]), awake.take(heaps[1])};
    std::array<std::uint64_t, 2> numbers{};
    bool is_seen = true;  // what it began itself
  };
  testing::in_every_order(
      4, [] { return std::make_unique<World>(); }, [](World& world) { world.come_and_go(0); },
      [](World& world) {
        world.come_and_go(1);
        world.awake.end_awaiting(world.bits[1], false);
      },
      [](World& world, const Choices& order) {
        EXPECT_TRUE(world.is_seen) << order;
        EXPECT_EQ(awaiting_of(world.awake), (std::vector<StreamHeap*>{world.heaps.data()})) << order;
        EXPECT_NE(world.numbers[0], world.numbers[1]) << order;
      });
}

// A bit that is to be another stream's than it was, and what is found by it.
struct BitOfAnother {
  BitOfAnother() { awake.give_back(awake.take(heaps[0])); }
  void begin_awaiting(bool alone) { awake.begin_awaiting(awake.take(heaps[1]), alone); }
  void look() {
    awake.for_each(awake.awaiting(), [this](const StreamHeap& heap) { others += &heap != &heaps[1]; });
  }
  std::array<RoomyStreamHeap, 2> heaps;
  Delayed awake;
  int others = 0;
};

void expect_the_other(const BitOfAnother& world, const Choices& order) { EXPECT_EQ(world.others, 0) << order; }

TEST(AwakeStreamsInterleaving, AStreamWhoseFreesWaitIsFoundByItsBit) {
  for (const bool alone : {true, false})
    testing::in_every_order(
        8, [] { return std::make_unique<BitOfAnother>(); },
        [alone](BitOfAnother& world) { world.begin_awaiting(alone); }, [](BitOfAnother& world) { world.look(); },
        expect_the_other);
}

// And by who sees that the heap has frees that wait, too.
TEST(AwakeStreamsInterleaving, AStreamIsFoundByItsBitBesideTheHeaps) {
  testing::in_every_order(
      8, [] { return std::make_unique<BitOfAnother>(); },
      [](BitOfAnother& world) {
        world.begin_awaiting(false);
        world.awake.let_heap_await(true);
      },
      [](BitOfAnother& world) { world.look(); }, expect_the_other);
}

// A bit that was read before may stand for another stream by now: that one is whole.
TEST(AwakeStreamsInterleaving, AStreamThatTakesABitIsWholeForWhoFindsItByThat) {
  struct World {
    std::array<RoomyStreamHeap, 2> heaps;
    Delayed awake;
    Delayed::Bits bit = awake.take(heaps[0]);
    DelayingProcessors::Atomic<int> of_second{0};
    int not_whole = 0;
  };
  testing::in_every_order(
      8, [] { return std::make_unique<World>(); },
      [](World& world) {
        world.awake.give_back(world.bit);
        world.of_second.store(1, std::memory_order_relaxed);
        world.bit = world.awake.take(world.heaps[1]);
      },
      [](World& world) {
        world.awake.for_each(Delayed::Bits{1}, [&](const StreamHeap& heap) {
          if (&heap == &world.heaps[1] && world.of_second.load(std::memory_order_relaxed) != 1) ++world.not_whole;
        });
      },
      [](World& world, const Choices& order) { EXPECT_EQ(world.not_whole, 0) << order; });
}

}  // namespace
}  // namespace cistern
