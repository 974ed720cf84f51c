// Reuse within a capture of blocks that other streams used, on a driver that captures in earnest.
// The race detector looks at every launch: it knows the graph's edges and nothing of when work runs, so
// its silence holds for all orders in which the graph may complete.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

constexpr PoolId kPoolOfGraph{7, 0};

class CaptureReuseTest : public ::testing::Test {
 protected:
  explicit CaptureReuseTest(const char* options = "oom_dump:off,graph_capture_record_stream_reuse:True")
      : allocator_(
            {.driver = &api_, .options = AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))}) {
    CUcontext context = nullptr;
    EXPECT_EQ(api_.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(api_.ctx_set_current(context), CUDA_SUCCESS);
  }
  ~CaptureReuseTest() override {
    EXPECT_NO_THROW(allocator_.check());
    for (const RaceReport& report : driver_.race_reports()) ADD_FAILURE() << report.to_string();
    EXPECT_EQ(api_.ctx_set_current(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(api_.primary_ctx_release(0), CUDA_SUCCESS);
  }

  void begin() {
    ASSERT_EQ(api_.stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    ASSERT_EQ(api_.stream_get_capture_info(stream_, &status, &id, nullptr, nullptr, nullptr), CUDA_SUCCESS);
    allocator_.begin_allocate_to_pool(0, kPoolOfGraph, PoolFilter::capture(id));
  }
  // Ends the capture, and runs its graph twice.
  void end() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    allocator_.end_allocate_to_pool(0, kPoolOfGraph);
    ASSERT_EQ(api_.stream_end_capture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_EQ(api_.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(api_.graph_launch(exec, stream_), CUDA_SUCCESS);
    driver_.run_until_idle();
  }
  // What `later` is given next comes behind what `earlier` has.
  void order(StreamHandle earlier, StreamHandle later) {
    CUevent event = nullptr;
    ASSERT_EQ(api_.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    ASSERT_EQ(api_.event_record(event, earlier), CUDA_SUCCESS);
    ASSERT_EQ(api_.stream_wait_event(later, event, 0), CUDA_SUCCESS);
    ASSERT_EQ(api_.event_destroy(event), CUDA_SUCCESS);
  }
  void write(void* block, StreamHandle on, std::size_t bytes = 12 * kMega) {
    driver_.launch(on, {}, {{block, bytes}}, 1ms, [] {});
  }
  void read(void* block, StreamHandle on, std::size_t bytes = 12 * kMega) {
    driver_.launch(on, {{block, bytes}}, {}, 1ms, [] {});
  }
  void* take(StreamHandle on, std::size_t bytes = 12 * kMega) {
    void* block = allocator_.allocate(bytes, on);
    write(block, on, bytes);
    return block;
  }
  // Used on another stream behind its owner's work, recorded and freed.
  void* used_and_freed(StreamHandle reader) {
    void* block = take(stream_);
    order(stream_, reader);
    read(block, reader);
    allocator_.record_stream(block, reader);
    allocator_.deallocate(block);
    return block;
  }
  [[nodiscard]] std::int64_t active() const { return allocator_.memory_stats().active.all.current; }

  SimulatedDriver driver_{{.capacity_bytes = 1024 * kMega, .backing = Backing::none, .races = RaceMode::collect}};
  const DriverApi& api_ = driver_.api();
  CachingAllocator allocator_;
  const StreamHandle stream_ = driver_.create_stream();
  const StreamHandle fork_ = driver_.create_stream();
  const StreamHandle other_ = driver_.create_stream();
};

class CaptureReuseOffTest : public CaptureReuseTest {
 protected:
  CaptureReuseOffTest() : CaptureReuseTest("oom_dump:off") {}
};

TEST_F(CaptureReuseTest, ABlockIsReusedOnceItsReaderHasJoined) {
  begin();
  void* block = used_and_freed(fork_);
  EXPECT_NE(take(stream_), block) << "nothing orders it behind the reader yet";
  order(fork_, stream_);
  EXPECT_EQ(active(), 2);
  EXPECT_EQ(take(stream_), block);
  EXPECT_EQ(active(), 2) << "the put-off free is complete, and the block handed out";
  end();
}

TEST_F(CaptureReuseOffTest, WithoutTheOptionItIsReusedAfterTheCapture) {
  begin();
  void* block = used_and_freed(fork_);
  order(fork_, stream_);
  EXPECT_NE(take(stream_), block);
  end();
}

TEST_F(CaptureReuseTest, AJoinFromBeforeTheLastUseIsNone) {
  begin();
  void* block = take(stream_);
  order(stream_, fork_);
  read(block, fork_);
  order(fork_, stream_);
  read(block, fork_);
  allocator_.record_stream(block, fork_);
  allocator_.deallocate(block);
  EXPECT_NE(take(stream_), block);
  order(fork_, stream_);
  EXPECT_EQ(take(stream_), block);
  end();
}

TEST_F(CaptureReuseTest, WorkOfTheReaderFromAfterTheFreeIsNotWaitedFor) {
  begin();
  void* block = take(stream_);
  order(stream_, fork_);
  read(block, fork_);
  order(fork_, stream_);
  allocator_.record_stream(block, fork_);
  allocator_.deallocate(block);
  void* scratch = allocator_.allocate(kMega, fork_);
  write(scratch, fork_, kMega);
  EXPECT_EQ(take(stream_), block);
  order(fork_, stream_);
  end();
}

TEST_F(CaptureReuseTest, EveryReaderHasToJoin) {
  begin();
  void* block = take(stream_);
  for (const StreamHandle reader : {fork_, other_}) {
    order(stream_, reader);
    read(block, reader);
    allocator_.record_stream(block, reader);
  }
  allocator_.deallocate(block);
  order(fork_, stream_);
  EXPECT_NE(take(stream_), block);
  order(other_, stream_);
  EXPECT_EQ(take(stream_), block);
  end();
}

TEST_F(CaptureReuseTest, AReaderJoinsThroughAnotherStreamToo) {
  begin();
  void* block = used_and_freed(fork_);
  order(fork_, other_);
  void* between = allocator_.allocate(kMega, other_);
  write(between, other_, kMega);
  order(other_, stream_);
  EXPECT_EQ(take(stream_), block);
  end();
}

TEST_F(CaptureReuseTest, OnlyItsOwnStreamGetsTheBlock) {
  begin();
  void* block = used_and_freed(fork_);
  order(fork_, other_);
  EXPECT_NE(take(other_), block) << "behind all uses, but another stream's";
  order(other_, stream_);
  EXPECT_EQ(take(stream_), block);
  end();
}

TEST_F(CaptureReuseTest, AUseFromBeforeTheCaptureIsWaitedForAfterIt) {
  allocator_.begin_allocate_to_pool(0, kPoolOfGraph, PoolFilter::stream(stream_));
  void* block = take(stream_);
  allocator_.end_allocate_to_pool(0, kPoolOfGraph);
  order(stream_, other_);
  read(block, other_);
  allocator_.record_stream(block, other_);
  driver_.run_until_idle();
  begin();
  order(stream_, other_);
  order(other_, stream_);
  allocator_.deallocate(block);
  EXPECT_NE(take(stream_), block) << "the graph's edges say nothing of that use";
  end();
}

TEST_F(CaptureReuseTest, AUseOnAStreamOutsideTheCaptureIsWaitedForAfterIt) {
  begin();
  void* block = take(stream_);
  allocator_.record_stream(block, other_);
  allocator_.deallocate(block);
  EXPECT_NE(take(stream_), block);
  end();
}

TEST_F(CaptureReuseTest, AUseInAnotherCaptureIsWaitedForAfterIt) {
  begin();
  void* block = take(stream_);
  ASSERT_EQ(api_.stream_begin_capture(other_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  allocator_.record_stream(block, other_);
  allocator_.deallocate(block);
  EXPECT_NE(take(stream_), block);
  CUgraph graph = nullptr;
  ASSERT_EQ(api_.stream_end_capture(other_, &graph), CUDA_SUCCESS);
  EXPECT_NE(take(stream_), block);
  end();
}

TEST_F(CaptureReuseTest, ABlockOfTheDefaultPoolStaysPutOff) {
  void* block = take(stream_);
  begin();
  order(stream_, fork_);
  read(block, fork_);
  allocator_.record_stream(block, fork_);
  allocator_.deallocate(block);
  order(fork_, stream_);
  static_cast<void>(take(stream_));
  EXPECT_EQ(active(), 2) << "the graph may use it until its capture is over";
  allocator_.end_allocate_to_pool(0, kPoolOfGraph);
  CUgraph graph = nullptr;
  EXPECT_EQ(api_.stream_end_capture(stream_, &graph), CUDA_SUCCESS);
}

// Deferred frees are the capture's, whichever thread asks for memory meanwhile.
TEST_F(CaptureReuseOffTest, AnotherThreadsRequestDoesNotCompleteThem) {
  begin();
  void* block = used_and_freed(fork_);
  std::thread([&] { static_cast<void>(allocator_.allocate(kMega, other_)); }).join();
  EXPECT_NE(take(stream_), block) << "its reader has not joined";
  order(fork_, stream_);
  end();
}

TEST_F(CaptureReuseTest, ManyPutOffFreesAreTakenOutOfTheMiddle) {
  begin();
  std::vector<void*> of_fork, of_other;
  for (int i = 0; i < 3; ++i) {
    of_other.push_back(used_and_freed(other_));
    of_fork.push_back(used_and_freed(fork_));
  }
  order(fork_, stream_);
  std::set<void*> again;
  for (int i = 0; i < 3; ++i) again.insert(take(stream_));
  EXPECT_EQ(again, std::set<void*>(of_fork.begin(), of_fork.end()));
  order(other_, stream_);
  end();
  EXPECT_EQ(active(), 6) << "before anything looks at what was put off";
  static_cast<void>(allocator_.allocate(1000, stream_));
  EXPECT_EQ(active(), 4);
}

// --- Random captures --------------------------------------------------------------------

class RandomCapture : public CaptureReuseTest {
 protected:
  struct Held {
    void* block;
    std::size_t owner;
    bool is_shared = false;  // another stream used it
  };

  // `steps` random steps on streams that all take part in the capture. Returns how many blocks
  // were handed out that other streams had used, and that had been freed in it.
  std::size_t run(unsigned seed, int steps) {
    std::mt19937 random(seed);
    const auto any = [&](std::size_t count) {
      return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
    };
    const std::vector<StreamHandle> streams{stream_, fork_, other_};
    std::vector<Held> held;
    std::set<void*> freed;
    std::size_t reused = 0;
    begin();
    for (const StreamHandle each : {fork_, other_}) order(stream_, each);
    for (int step = 0; step < steps; ++step) {
      switch (any(4)) {
        case 0: {
          const std::size_t owner = any(streams.size());
          void* block = take(streams[owner], kBytes);
          reused += freed.erase(block);
          held.push_back({block, owner});
          break;
        }
        case 1:
          if (!held.empty()) use(held[any(held.size())], any(streams.size()), streams);
          break;
        case 2:
          if (!held.empty()) {
            const std::size_t place = any(held.size());
            if (held[place].is_shared) freed.insert(held[place].block);
            allocator_.deallocate(held[place].block);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
          }
          break;
        default:
          order(streams[any(streams.size())], streams[any(streams.size())]);
      }
    }
    for (const Held& each : held) allocator_.deallocate(each.block);
    for (const StreamHandle each : {fork_, other_}) order(each, stream_);
    end();
    return reused;
  }

 private:
  static constexpr std::size_t kBytes = 2 * kMega;

  // The stream comes behind what the owner has done with the block, and says that it uses it.
  void use(Held& held, std::size_t user, const std::vector<StreamHandle>& streams) {
    if (user != held.owner) order(streams[held.owner], streams[user]);
    read(held.block, streams[user], kBytes);
    allocator_.record_stream(held.block, streams[user]);
    held.is_shared = held.is_shared || user != held.owner;
  }
};

TEST_F(RandomCapture, NoReuseIsUnordered) {
  std::size_t reused = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    reused += run(seed, 120);
    ASSERT_TRUE(driver_.race_reports().empty())
        << "seed " << seed << ": " << driver_.race_reports().front().to_string();
    allocator_.empty_cache();
  }
  EXPECT_GT(reused, 200U);
}

}  // namespace
}  // namespace cistern
