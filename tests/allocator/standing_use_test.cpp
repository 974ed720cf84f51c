// A block that stands, and that another stream uses in each turn: nobody can tell that this was not written down.
#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>
#include <cistern/stats.h>
#include <cistern/stream.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "runtime/stream_access.h"
#include "tests/allocator/stream_waits_fixture.h"
#include "tests/allocator/used_heap.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

// Beside a heap that is looked at before each step, in which nothing stands.
class StandingUseTest : public ::testing::TestWithParam<const char*> {
 protected:
  void both(const std::function<void(UsedHeap&)>& step) {
    step(standing_);
    step(plain_);
  }
  void allocate(std::size_t bytes, std::size_t owner = 0) {
    ASSERT_EQ(standing_.allocate(bytes, owner), plain_.allocate(bytes, owner));
  }
  void free_last() {
    both([](UsedHeap& heap) { heap.free(heap.live() - 1); });
  }
  void use_last(std::size_t user) {
    both([user](UsedHeap& heap) { heap.use(heap.live() - 1, user); });
  }
  void turn(std::size_t bytes, std::size_t user) {
    allocate(bytes);
    use_last(user);
    free_last();
  }
  void compare() {
    EXPECT_EQ(standing_.allocator().memory_stats(), plain_.allocator().memory_stats());
    // Requests in paged memory claim several frees at once, and what several streams did has no one order.
    if (GetParam() != std::string("paged") && owners_ == 1) {
      EXPECT_EQ(standing_.told(), plain_.told());
    }
    both([](UsedHeap& heap) { EXPECT_NO_THROW(heap.allocator().check()); });
  }
  // What may come between any two steps of a turn.
  void meanwhile(std::mt19937_64& random) {
    const std::uint64_t kind = random() % 10;
    const std::size_t user = 1 + random() % (UsedHeap::kStreams - 1);
    const std::size_t live = standing_.live();
    if (kind == 0) return allocate(1000 * (1 + random() % 3), random() % owners_);
    if (kind == 1 && live > 1) return both([](UsedHeap& heap) { heap.free(0); });
    if (kind == 2 && live > 1) return both([user](UsedHeap& heap) { heap.use(0, user); });
    if (kind == 3 && live != 0) return use_last(user);
    if (kind == 4 && live != 0) return use_last(0);  // mostly its own stream
    both([&](UsedHeap& heap) {
      if (kind == 5) return heap.hold_up(user);
      if (kind == 6) return heap.let_go(user);
      if (kind == 7) return static_cast<void>(heap.allocator().memory_stats());
      if (kind == 8) return heap.allocator().empty_cache();
      if (kind == 9) return heap.allocator().reset_peak_memory_stats();
    });
  }
  void run(std::uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto some = [&](std::uint64_t one_in) { return random() % one_in == 0; };
    for (int turns = 0; turns < 300 && !HasFailure(); ++turns) {
      const std::size_t user = some(12) ? 2 : 1;
      allocate(some(20) ? 5000 : 3000);
      if (some(15)) meanwhile(random);
      if (!some(10)) use_last(user);
      if (some(15)) meanwhile(random);
      if (standing_.live() != 0) free_last();
      if (some(15)) meanwhile(random);
    }
    both([](UsedHeap& heap) {
      while (heap.live() != 0) heap.free(0);
      for (std::size_t user = 0; user < UsedHeap::kStreams; ++user) heap.let_go(user);
    });
    allocate(512);
    free_last();
    compare();
  }

  // Without hand-overs a heap that is looked at puts a block elsewhere in one of some hundred programs, whether or not
  // anything stands: seed 51 here, and program 126 of PagedWaitsTest.
  static long programs() {
    return GetParam() == std::string("paged,stream_hand_over:never") ? scaled_programs(50, 25)
                                                                     : scaled_programs(400, 40);
  }

  std::size_t owners_ = 1;
  UsedHeap standing_{GetParam(), false};
  UsedHeap plain_{GetParam(), true};
};

TEST_P(StandingUseTest, EveryTurnIsTold) {
  for (int i = 0; i < 10; ++i) turn(3000, 1);
  compare();
  for (int i = 0; i < 1000; ++i) turn(3000, 1);
  compare();
}

TEST_P(StandingUseTest, WhateverComesBetweenFindsItTold) {
  for (long seed = 0; seed < programs() && !HasFailure(); ++seed) run(static_cast<std::uint64_t>(seed));
}

// Where streams have each other's bytes, it shows that somebody looked.
class StandingUseOfStreamsTest : public StandingUseTest {};

TEST_P(StandingUseOfStreamsTest, RequestsOfOthersEndTheWait) {
  owners_ = 2;
  for (long seed = 0; seed < programs() && !HasFailure(); ++seed) run(static_cast<std::uint64_t>(seed));
}

// A block stands after a turn that was no pair's: then it is not known yet that the next one is like it.
TEST_P(StandingUseTest, TheFirstTurnOfAnotherBlockIsWrittenDown) {
  for (int i = 0; i < 5; ++i) turn(3000, 1);
  for (int i = 0; i < 5; ++i) {
    turn(3000, 1);
    turn(9000, 1);
    allocate(3000);
    use_last(1);
    allocate(4000);
    free_last();
    free_last();
  }
  compare();
}

// It does not stand any more when it is freed.
TEST_P(StandingUseTest, ABlockThatIsUsedBeforeItsFirstTurnWaits) {
  for (int i = 0; i < 5; ++i) turn(3000, 1);
  both([](UsedHeap& heap) { heap.hold_up(1); });
  allocate(9000);
  use_last(1);
  allocate(4000);
  both([](UsedHeap& heap) { heap.free(0); });
  allocate(9000);
  both([](UsedHeap& heap) { heap.let_go(1); });
  allocate(9000);
  compare();
}

// Events are asked for in the order of the frees.
TEST_P(StandingUseTest, ABlockThatIsUsedWhileAnotherWaitsWaitsBehindIt) {
  for (int i = 0; i < 4; ++i) allocate(3000);  // below whose peaks all of it stays
  for (int i = 0; i < 4; ++i) free_last();
  for (int i = 0; i < 5; ++i) turn(3000, 1);
  both([](UsedHeap& heap) { heap.hold_up(1); });
  turn(3000, 1);
  for (int i = 0; i < 3; ++i) {
    allocate(3000);
    free_last();
  }
  turn(3000, 1);
  both([](UsedHeap& heap) { heap.let_go(1); });
  allocate(3000);
  allocate(3000);
  compare();
}

// What another thread returned is free before the next turn.
TEST_P(StandingUseTest, WhatWasReturnedMeanwhileIsFreeFirst) {
  static_cast<void>(standing_.allocate(9000, 0));
  const auto turn = [&] {
    static_cast<void>(standing_.allocate(3000, 0));
    standing_.use(standing_.live() - 1, 1);
    standing_.free(standing_.live() - 1);
  };
  for (int i = 0; i < 5; ++i) turn();
  standing_.free_elsewhere(0);
  turn();
  const auto told = standing_.told();
  const auto returned = std::find(told.begin(), told.end(), std::pair(TraceAction::free_completed, std::int64_t{9000}));
  EXPECT_EQ(std::count(returned, told.end(), std::pair(TraceAction::alloc, std::int64_t{3000})), 1);
}

TEST_P(StandingUseTest, AUseByItsOwnStreamIsNone) {
  for (int i = 0; i < 5; ++i) turn(3000, 0);
  both([](UsedHeap& heap) { heap.hold_up(0); });
  for (int i = 0; i < 5; ++i) turn(3000, 0);
  compare();
}

class StreamsKeptTest : public StreamWaitsTest {
 protected:
  // A Stream whose end is seen.
  [[nodiscard]] Stream watched(StreamHandle handle, std::weak_ptr<int>* life) {
    unsigned long long id = 0;
    EXPECT_EQ(driver_.api().stream_get_id(handle, &id), CUDA_SUCCESS);
    auto owner = std::make_shared<int>();
    *life = owner;
    return StreamAccess::wrap(driver_.api(), StreamIdentity{handle, id}, 0, std::move(owner));
  }
  void turns(const Stream& user, int count) {
    for (; count != 0; --count) {
      void* const block = allocator_.allocate(kKibi, owner_);
      free_behind(allocator_, block, user);
    }
  }
};

TEST_P(StreamsKeptTest, AStreamThatUsedABlockOnceGoesWhenItsEventIsRecorded) {
  std::weak_ptr<int> life;
  turns(watched(other_handle_, &life), 1);
  EXPECT_TRUE(life.expired());
}

TEST_P(StreamsKeptTest, AStreamThatUsesTheBlockInTurnGoesWithTheNextCallThatTakesTheHeapsLock) {
  std::weak_ptr<int> life;
  turns(watched(other_handle_, &life), 5);
  EXPECT_FALSE(life.expired());
  allocator_.empty_cache();
  EXPECT_TRUE(life.expired());
}

// What a stream's end does may want the lock.
TEST_P(StreamsKeptTest, AStreamThatWasKeptEndsWithoutTheLock) {
  unsigned long long id = 0;
  EXPECT_EQ(driver_.api().stream_get_id(other_handle_, &id), CUDA_SUCCESS);
  bool is_free = false;
  std::future<void> looks;
  const auto ends = [&](int* owner) {
    looks = std::async(std::launch::async, [&] { static_cast<void>(allocator_.memory_stats()); });
    is_free = looks.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    delete owner;
  };
  turns(StreamAccess::wrap(driver_.api(), StreamIdentity{other_handle_, id}, 0, std::shared_ptr<int>(new int(0), ends)),
        5);
  allocator_.empty_cache();
  looks.get();
  EXPECT_TRUE(is_free);
}

TEST_P(StreamsKeptTest, ALateEventIsAskedForOnce) {
  std::vector<void*> below_the_peaks;
  for (int i = 0; i < 4; ++i) below_the_peaks.push_back(allocator_.allocate(kKibi, owner_));
  for (void* block : below_the_peaks) allocator_.deallocate(block);
  turns(reader_, 5);
  driver_.occupy(reader_handle_, std::chrono::milliseconds(10));
  turns(reader_, 1);
  const auto calls = calls_of([&] { static_cast<void>(allocator_.allocate(kKibi, owner_)); });
  EXPECT_EQ(calls, (std::map<std::string, std::uint64_t>{{"cuEventQuery", 1}}));
}

// Which takes one reading of the clock: more of them would differ now and then.
TEST_P(StreamsKeptTest, WhatComesBackAtOnceIsCompleteAndHandedOutAtOneTime) {
  HistoryOptions history = HistoryOptions::always_on();
  history.max_entries = 10'000;
  allocator_.record_history(history);
  turns(reader_, 2'500);
  const Snapshot snapshot = allocator_.snapshot();
  const std::vector<TraceEntry>& told = snapshot.device_traces.at(0);
  std::size_t both = 0;
  for (std::size_t i = 600; i < told.size(); ++i) {  // the first ones are written down
    if (told[i - 1].action != TraceAction::free_completed || told[i].action != TraceAction::alloc) continue;
    EXPECT_EQ(told[i - 1].time_us, told[i].time_us);
    ++both;
  }
  EXPECT_GE(both, 2'290U);
}

// As often as the stream's lock takes to lean towards the thread: from then on turns have doors of their own.
TEST_P(StreamsKeptTest, ATaggedRequestIsItsTags) {
  turns(reader_, 200);
  void* tagged = nullptr;
  {
    const TagScope scope("optimizer");
    tagged = allocator_.allocate(kKibi, owner_);
  }
  std::int64_t live = 0;
  for (const TagStats& each : allocator_.tag_stats())
    if (each.tag == "optimizer") live = each.allocated_bytes.current;
  EXPECT_EQ(live, std::int64_t{kKibi});
  allocator_.deallocate(tagged);
}

TEST_P(StreamsKeptTest, WhatOthersWaitForIsAskedForToo) {
  for (int i = 0; i < 5; ++i) free_behind(allocator_, allocator_.allocate(kKibi, other_), reader_);
  void* const of_other = allocator_.allocate(kKibi, other_);
  turns(reader_, 200);
  free_behind(allocator_, of_other, reader_);
  const auto calls = calls_of([&] { static_cast<void>(allocator_.allocate(kKibi, owner_)); });
  EXPECT_EQ(calls, (std::map<std::string, std::uint64_t>{{"cuEventQuery", 2}}));
}

// Who listens to uses, or to frees, hears of each.
TEST_P(StreamsKeptTest, WhoListensHearsOfEachTurn) {
  for (BlockNote DriverApi::*const note : {&DriverApi::note_use, &DriverApi::note_free}) {
    int heard = 0;
    DriverApi api = driver_.api();
    api.note_allocate = api.note_use = api.note_free = {};
    api.*note = {&heard,
                 [](void* self, CUdeviceptr, std::size_t, CUstream, const void*) { ++*static_cast<int*>(self); }};
    CachingAllocator allocator(
        {.driver = &api, .options = AllocatorOptions::parse(std::string("oom_dump:off,policy:") + GetParam())});
    for (int i = 0; i < 20; ++i) {
      void* const block = allocator.allocate(kKibi, owner_handle_);
      allocator.record_stream(block, reader_handle_);
      allocator.deallocate(block);
    }
    EXPECT_EQ(heard, 20);
  }
}

// What was known by its handle alone keeps nothing alive.
TEST_P(StreamsKeptTest, AStreamThatIsOwnedLivesUntilTheFreeWhateverWasKept) {
  for (int i = 0; i < 5; ++i) {
    void* const block = allocator_.allocate(kKibi, owner_);
    allocator_.record_stream(block, other_handle_);
    allocator_.deallocate(block);
  }
  std::weak_ptr<int> life;
  void* const block = allocator_.allocate(kKibi, owner_);
  allocator_.record_stream(block, watched(other_handle_, &life));
  EXPECT_FALSE(life.expired());
  allocator_.deallocate(block);
  void* const again = allocator_.allocate(kKibi, owner_);
  allocator_.record_stream(again, other_handle_);
  allocator_.record_stream(again, watched(other_handle_, &life));
  EXPECT_FALSE(life.expired());
  allocator_.deallocate(again);
}

// Who looks ends none, and has no more of them kept.
TEST_P(StreamsKeptTest, LooksKeepNoStreams) {
  std::vector<std::weak_ptr<int>> lives(40);
  for (std::weak_ptr<int>& life : lives) {
    turns(watched(other_handle_, &life), 5);
    allocator_.deallocate(allocator_.allocate(kKibi, owner_));
    static_cast<void>(allocator_.memory_stats());
  }
  const auto living = std::count_if(lives.begin(), lives.end(), [](const auto& life) { return !life.expired(); });
  EXPECT_LE(living, 1);
  allocator_.empty_cache();
  EXPECT_TRUE(std::all_of(lives.begin(), lives.end(), [](const auto& life) { return life.expired(); }));
}

TEST_P(StreamsKeptTest, OneStreamIsKept) {
  std::weak_ptr<int> life;
  turns(watched(other_handle_, &life), 5);
  turns(reader_, 5);
  EXPECT_TRUE(life.expired());
}

TEST_P(StreamsKeptTest, ItsEventComesBack) {
  std::weak_ptr<int> life;
  const auto come_and_go = [&] {
    for (int i = 0; i < 40; ++i) {
      turns(watched(other_handle_, &life), 5);
      if (i % 2 == 0) allocator_.deallocate(allocator_.allocate(kKibi, owner_));
      allocator_.empty_cache();
    }
  };
  come_and_go();
  EXPECT_EQ(calls_of(come_and_go)["cuEventCreate"], 0U);
}

INSTANTIATE_TEST_SUITE_P(Each, StandingUseTest,
                         ::testing::Values("classic", "expandable", "paged", "paged,stream_hand_over:never"));
INSTANTIATE_TEST_SUITE_P(Each, StandingUseOfStreamsTest,
                         ::testing::Values("classic", "expandable", "paged,stream_hand_over:never"));
INSTANTIATE_TEST_SUITE_P(Each, StreamsKeptTest, kEachPolicy, name_of_policy);

}  // namespace
}  // namespace cistern
