// Programs that make a stream for each of their requests, as servers do: what streams left serves those that come, and
// nothing is kept of streams that are over.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/allocator/paged_fixture.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class StreamsThatComeAndEnd : public Paged, public ::testing::WithParamInterface<const char*> {
 protected:
  StreamsThatComeAndEnd() : Paged(1024 * kMega, GetParam()) {}

  void end(StreamHandle stream) {
    allocator.release_stream(stream);
    driver.destroy_stream(stream);
  }
};

// Events stand for all that is kept of a stream that is over: each has one until it is forgotten.
TEST_P(StreamsThatComeAndEnd, LeaveNothing) {
  constexpr int kAtATime = 4;
  for (int round = 0; round < 200; ++round) {
    std::vector<StreamHandle> streams;
    std::vector<void*> blocks;
    for (int i = 0; i < kAtATime; ++i) {
      streams.push_back(driver.create_stream());
      for (std::size_t k = 1; k <= 6; ++k) {
        const std::size_t bytes = k * 700'000 + static_cast<std::size_t>(round % 7) * 100'000;
        blocks.push_back(take(bytes, streams.back()));
        work(blocks.back(), bytes, streams.back());
      }
    }
    give_all(blocks);
    for (const StreamHandle stream : streams) end(stream);
    driver.run_until_idle();
  }
  EXPECT_LE(driver.calls("cuEventCreate"), 40U);
  EXPECT_LE(reserved(), mebibytes(100)) << "four streams have up to 75 MiB";
  judge();
}

INSTANTIATE_TEST_SUITE_P(Policies, StreamsThatComeAndEnd,
                         ::testing::Values("oom_dump:off,policy:classic", "oom_dump:off,policy:expandable",
                                           "oom_dump:off,policy:paged", "oom_dump:off,policy:paged,decay_ms:1",
                                           "oom_dump:off,policy:paged,stream_hand_over:never",
                                           "oom_dump:off,policy:paged,stream_hand_over:done"));

// Streams have nothing of each other's, but what streams that are over left.
class StreamsThatShareNothing : public Paged {
 protected:
  StreamsThatShareNothing() : Paged(1024 * kMega, "oom_dump:off,policy:paged,stream_hand_over:never") {}
  void end_with(std::size_t bytes) { end_a_stream_at_work(bytes, true); }
};

TEST_F(StreamsThatShareNothing, HaveWhatAStreamLeftWhoseWorkIsOver) {
  end_with(16 * kMega);
  driver.run_until_idle();
  const StreamHandle next = driver.create_stream();
  void* const block = take(16 * kMega, next);
  work(block, 16 * kMega, next);
  EXPECT_EQ(reserved(), mebibytes(16));
  give(block);
  driver.run_until_idle();
  judge();
}

TEST_F(StreamsThatShareNothing, HaveNothingOfAStreamThatIsStillAtWork) {
  end_with(16 * kMega);
  const StreamHandle next = driver.create_stream();
  void* const block = take(16 * kMega, next);
  work(block, 16 * kMega, next);
  EXPECT_EQ(reserved(), mebibytes(32));
  EXPECT_EQ(driver.host_synchronizations(), 0U);
  give(block);
  driver.run_until_idle();
  judge();
}

TEST_F(StreamsThatShareNothing, HaveAsMuchOfItAsTheyNeed) {
  end_with(64 * kMega);
  driver.run_until_idle();
  const StreamHandle one = driver.create_stream();
  const StreamHandle other = driver.create_stream();
  void* const small = take(3 * kMega, one);
  void* const large = take(60 * kMega, other);
  EXPECT_EQ(reserved(), mebibytes(64));
  give_all({small, large});
  judge();
}

// What lies scattered is gathered only where there is as much as was ever live: a request that creates all the same has
// not had all of it.
TEST_F(StreamsThatShareNothing, LeaveWhatDoesNotServeThem) {
  give(take(512 * kMega));
  allocator.empty_cache();
  const StreamHandle stream = driver.create_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(take(2 * kMega, stream));
  for (std::size_t i = 0; i < 100; i += 2) give(blocks[i]);
  allocator.release_stream(stream);
  void* const large = take(8 * kMega, driver.create_stream());
  const std::int64_t had = reserved();
  std::vector<void*> small;
  for (int i = 0; i < 40; ++i) small.push_back(take(2 * kMega, driver.create_stream()));
  EXPECT_EQ(reserved(), had);
  give(large);
  give_all(small);
  for (std::size_t i = 1; i < 100; i += 2) give(blocks[i]);
  judge();
}

TEST_F(StreamsThatShareNothing, HaveWhatStreamsLeftWhereALimitLetsThemCreateNone) {
  allocator.set_memory_fraction(16.0 / 1024);
  for (int i = 0; i < 4; ++i) {
    end_with(16 * kMega);
    driver.run_until_idle();
  }
  EXPECT_EQ(driver.calls("cuMemUnmap"), 0U);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  judge();
}

// Which a flush does not bring.
TEST_F(StreamsThatShareNothing, HavePartsOfPagesAtALimit) {
  allocator.set_memory_fraction(6.0 / 1024);
  const StreamHandle stream = driver.create_stream();
  void* const stays = take(5 * kMega, stream);
  give(take(kMega, stream));
  ASSERT_EQ(reserved(), mebibytes(6));
  allocator.release_stream(stream);
  void* const next = take(kMega, driver.create_stream());
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 0);
  give_all({stays, next});
  judge();
}

// Streams that are over and have nothing free are not asked.
TEST_F(StreamsThatShareNothing, HaveWhatAStreamLeftBehindManyThatLeftNothing) {
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) {
    const StreamHandle stream = driver.create_stream();
    blocks.push_back(take(2 * kMega, stream));
    driver.occupy(stream, 1s);
    allocator.release_stream(stream);
  }
  const StreamHandle last = driver.create_stream();
  give(take(16 * kMega, last));
  allocator.release_stream(last);
  const std::int64_t had = reserved();
  blocks.push_back(take(16 * kMega, driver.create_stream()));
  EXPECT_EQ(reserved(), had);
  give_all(blocks);
  driver.run_until_idle();
  judge();
}

TEST_F(StreamsThatShareNothing, AskFewOfManyThatAreStillAtWork) {
  for (int i = 0; i < 100; ++i) end_with(2 * kMega);
  const std::uint64_t queries = driver.calls("cuEventQuery");
  give(take(2 * kMega, driver.create_stream()));
  EXPECT_LE(driver.calls("cuEventQuery") - queries, 40U);
  driver.run_until_idle();
  judge();
}

TEST_F(StreamsThatShareNothing, HaveNothingOfAStreamWithoutAnEvent) {
  const StreamHandle stream = driver.create_stream();
  void* const block = take(16 * kMega, stream);
  work(block, 16 * kMega, stream);
  give(block);
  driver.fail_call("cuEventRecord", 1, CUDA_ERROR_LAUNCH_FAILED);
  allocator.release_stream(stream);
  driver.run_until_idle();
  void* const next = take(16 * kMega, driver.create_stream());
  EXPECT_EQ(reserved(), mebibytes(32));
  give(next);
  judge();
}

// A capture of the user's own, of which the allocator is not told, and which forbids to ask for events.
TEST_F(StreamsThatShareNothing, AskForEventsInNobodysCapture) {
  end_with(16 * kMega);
  driver.run_until_idle();
  const StreamHandle captured = driver.create_stream();
  const StreamHandle next = driver.create_stream();
  ASSERT_EQ(driver.api().stream_begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  void* const block = take(16 * kMega, next);
  CUgraph graph = nullptr;
  EXPECT_EQ(driver.api().stream_end_capture(captured, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver.api().graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), mebibytes(16));
  give(block);
}

// Streams that have what others left save memory, and no stream loses by it: they do not part (stream_parting.h).
TEST_F(Paged, StreamsOneAfterTheOtherHaveNoMoreThanOne) {
  std::int64_t of_one = 0;
  for (int i = 0; i < 1200; ++i) {
    const StreamHandle stream = driver.create_stream();
    std::vector<void*> blocks;
    for (std::size_t k = 1; k <= 20; ++k) blocks.push_back(take(k * 300'000, stream));
    give_all(blocks);
    allocator.release_stream(stream);
    driver.destroy_stream(stream);
    if (i == 0) of_one = reserved();
  }
  EXPECT_LE(reserved(), of_one + mebibytes(2));
  judge();
}

// They have the numbers of those before them, and so the places that the log knows.
TEST_F(Paged, StreamsThatComeInTensHaveNoMoreThanTen) {
  std::int64_t of_ten = 0;
  for (int round = 0; round < 150; ++round) {
    std::vector<StreamHandle> streams;
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) {
      streams.push_back(driver.create_stream());
      for (std::size_t k = 1; k <= 20; ++k) blocks.push_back(take(k * 300'000, streams.back()));
    }
    give_all(blocks);
    for (const StreamHandle stream : streams) {
      allocator.release_stream(stream);
      driver.destroy_stream(stream);
    }
    if (round == 0) of_ten = reserved();
  }
  EXPECT_EQ(reserved(), of_ten);
  judge();
}

// What is known of streams that go on stays, also of one without bytes.
TEST_F(Paged, StreamsThatEndLeaveThoseThatLive) {
  const StreamHandle from = driver.create_stream();
  const StreamHandle to = driver.create_stream();
  give(take(16 * kMega, from));
  void* const block = take(16 * kMega, to);
  ASSERT_EQ(allocator.hand_over_stats().size(), 1U);
  for (int i = 0; i < 50; ++i) {
    end_a_stream_at_work(kMega, true);
    driver.run_until_idle();
  }
  const std::vector<HandOverStats> stats = allocator.hand_over_stats();
  EXPECT_TRUE(std::ranges::any_of(
      stats, [&](const HandOverStats& pair) { return pair.from == reinterpret_cast<std::intptr_t>(from); }));
  give(block);
  judge();
}

// Random programs whose streams come and end, with the race detector and the heap's own checks.
class ProgramsOfStreamsThatEnd : public StreamsThatComeAndEnd {
 protected:
  // Handles come again.
  struct Alive {
    StreamHandle handle;
    int number;
    friend bool operator==(const Alive&, const Alive&) = default;
  };
  struct Live {
    void* address;
    std::size_t bytes;
    Alive stream;
  };

  ProgramsOfStreamsThatEnd() {
    EXPECT_EQ(driver.api().primary_ctx_retain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().ctx_set_current(context_), CUDA_SUCCESS);
  }
  ~ProgramsOfStreamsThatEnd() override {
    EXPECT_EQ(driver.api().ctx_set_current(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().primary_ctx_release(0), CUDA_SUCCESS);
  }

  // Work of another stream on the block, behind what its own has queued.
  void use(const Live& block, StreamHandle stream) {
    CUevent event = nullptr;
    ASSERT_EQ(driver.api().event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().event_record(event, block.stream.handle), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().stream_wait_event(stream, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().event_destroy(event), CUDA_SUCCESS);
    work(block.address, block.bytes, stream);
    allocator.record_stream(block.address, stream);
  }

  void run(std::uint32_t seed, int operations) {
    std::mt19937_64 random(seed);
    std::vector<Alive> streams = {{driver.create_stream(), 0}};
    std::vector<Live> live;
    std::set<void*> used;
    const auto any = [&](const auto& of) { return of.begin() + static_cast<std::ptrdiff_t>(random() % of.size()); };
    for (int i = 0; i < operations; ++i) {
      const std::uint64_t choice = random() % 100;
      const Alive stream = *any(streams);
      if (choice < 42) {
        const std::size_t bytes = 1 + random() % (choice < 10 ? 9 * kMega : kMega);
        live.push_back({take(bytes, stream.handle), bytes, stream});
        work(live.back().address, bytes, stream.handle);
      } else if (choice < 50 && !live.empty()) {
        // One more use of the same block would race with the one before.
        const Live block = *any(live);
        const bool is_alive = std::ranges::find(streams, block.stream) != streams.end();
        if (is_alive && used.insert(block.address).second) use(block, stream.handle);
      } else if (choice < 86 && !live.empty()) {
        const auto block = any(live);
        give(block->address);
        used.erase(block->address);
        live.erase(block);
      } else if (choice < 89) {
        driver.step();
      } else if (choice < 91) {
        driver.run_until_idle();
      } else if (choice < 95 && streams.size() < 6) {
        streams.push_back({driver.create_stream(), i});
      } else if (choice < 99 && streams.size() > 1) {
        const auto one = any(streams);
        end(one->handle);
        streams.erase(one);
      } else if (choice == 99) {
        allocator.empty_cache();
      }
      if (i % 50 == 0) allocator.check();
    }
    for (const Live& block : live) give(block.address);
    for (const Alive& stream : streams) end(stream.handle);
    driver.run_until_idle();
    judge();
    allocator.empty_cache();
    EXPECT_EQ(driver.used_bytes(), 0U);
  }

 private:
  CUcontext context_ = nullptr;
};

TEST_P(ProgramsOfStreamsThatEnd, AreSound) {
  for (std::uint32_t seed = 1; seed <= static_cast<std::uint32_t>(scaled_programs(100)); ++seed) {
    run(seed, 600);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ProgramsOfStreamsThatEnd,
                         ::testing::Values("oom_dump:off,policy:classic", "oom_dump:off,policy:expandable",
                                           "oom_dump:off,policy:paged", "oom_dump:off,policy:paged,decay_ms:1",
                                           "oom_dump:off,policy:paged,stream_hand_over:never",
                                           "oom_dump:off,policy:paged,stream_hand_over:wait"));

}  // namespace
}  // namespace cistern
