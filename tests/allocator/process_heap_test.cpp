// The free functions, on the process's own simulated device. Each case runs in a process of
// its own: "before the first use" is a state that does not come back.

#include <cistern/cistern.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "allocator/biased_mutex.h"
#include "allocator/checked_free.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class ProcessHeap : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB", 1);
    unsetenv("CISTERN_ALLOC_CONF");
  }
};

TEST_F(ProcessHeap, BeforeTheFirstUseEverythingIsZeroAndNothingIsMade) {
  EXPECT_EQ(memory_allocated(), 0U);
  EXPECT_TRUE(memory_stats_flat().empty());
  EXPECT_TRUE(memory_stats_nested().entries.empty());
  empty_cache();
  deallocate(nullptr);
  EXPECT_FALSE(is_initialized());
}

TEST_F(ProcessHeap, InitialisedButUnusedHasEveryKeyAtZero) {
  initialize();
  const auto flat = memory_stats_flat();
  EXPECT_EQ(flat.size(), 122U);
  for (const auto& [key, value] : flat) EXPECT_EQ(value, key == "max_split_size" ? -1 : 0) << key;
}

TEST_F(ProcessHeap, AllocatesOnTheCurrentDeviceAndStream) {
  const Stream stream = Stream::create({.device = 1});
  void* pointer = nullptr;
  {
    const StreamGuard guard(stream);
    pointer = allocate(3 * kMega);
  }
  EXPECT_EQ(memory_allocated(0), 0U);
  EXPECT_EQ(memory_allocated(1), 3 * kMega);
  EXPECT_EQ(memory_snapshot().segments.at(0).device, 1);
  deallocate(pointer);
  EXPECT_EQ(memory_allocated(1), 0U);
  EXPECT_EQ(max_memory_allocated(1), 3 * kMega);
  EXPECT_EQ(memory_reserved(1), 4 * kMega);
}

// The event of the free goes on the stream itself: nobody waits, and the work still guards.
TEST_F(ProcessHeap, ARecordedStreamLivesUntilTheFreeIsGuarded) {
  set_options("stream_hand_over:done");
  void* pointer = allocate(kMega);
  {
    const Stream temporary = Stream::create();
    simulated::launch(temporary, {}, {}, 1ms, [] {});
    record_stream(pointer, temporary);
  }  // the last copy of the caller's
  deallocate(pointer);
  EXPECT_EQ(simulated::driver().host_synchronizations(), 0U);
  EXPECT_NE(allocate(kMega), pointer);
  simulated::driver().run_until_idle();
  EXPECT_EQ(allocate(kMega), pointer);
}

// Each device has a default stream of its own, and all of them have the same handle.
TEST_F(ProcessHeap, TheDefaultStreamOfAnotherDeviceIsAnotherStream) {
  void* pointer = allocate(kMega);
  {
    const DeviceGuard guard(1);
    simulated::launch(Stream{}, {}, {}, 1ms, [] {});
    record_stream(pointer, Stream{});
  }
  deallocate(pointer);
  EXPECT_NE(allocate(kMega), pointer);
  synchronize(1);
  EXPECT_EQ(allocate(kMega), pointer);
}

// Handle 2 means the calling thread's own stream: an event recorded through it by the thread
// that frees would guard the wrong stream.
TEST_F(ProcessHeap, WorkOnAnotherThreadsDefaultStreamIsDoneBeforeReuse) {
  void* pointer = allocate(kMega);
  bool done = false;
  std::thread([&] {
    simulated::launch(Stream::per_thread(), {}, {}, 1ms, [&] { done = true; });
    record_stream(pointer, Stream::per_thread());
  }).join();
  EXPECT_FALSE(done);
  deallocate(pointer);
  EXPECT_TRUE(allocate(kMega) != pointer || done);
  EXPECT_TRUE(done) << "the free could only wait";
}

TEST_F(ProcessHeap, DeviceBuffersFreeThemselvesAndMove) {
  {
    DeviceBuffer<float> buffer(1000);
    EXPECT_EQ(buffer.size_bytes(), 4000U);
    DeviceBuffer<float> moved = std::move(buffer);
    EXPECT_TRUE(buffer.empty());  // NOLINT(bugprone-use-after-move): what a move leaves is part of the contract
    EXPECT_EQ(buffer.stream(), moved.stream());
    EXPECT_EQ(memory_allocated(), 4096U);
    EXPECT_THROW(DeviceBuffer<double>(~std::size_t{0} / 4), std::bad_array_new_length);
  }
  EXPECT_EQ(memory_allocated(), 0U);
}

TEST_F(ProcessHeap, BuffersFreedByStaticDestructorsAreHarmless) {
  // Ends after main: the heap is never destroyed.
  static DeviceBuffer<int> buffer(100);
  EXPECT_FALSE(buffer.empty());
}

TEST_F(ProcessHeap, OptionsComeFromTheEnvironment) {
  setenv("CISTERN_ALLOC_CONF", "max_split_size_mb:64,pinned_num_register_threads:4", 1);
  ::testing::internal::CaptureStderr();
  deallocate(allocate(1));
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("pinned_num_register_threads"), std::string::npos);
  EXPECT_EQ(memory_stats().max_split_size, static_cast<std::int64_t>(64 * kMega));
  EXPECT_NE(effective_config().find("max_split_size_mb"), std::string::npos);
  EXPECT_NE(effective_config().find("pinned_num_register_threads"), std::string::npos);
  ::testing::internal::CaptureStderr();
  set_options("pinned_num_register_threads:4");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "said once";
}

TEST_F(ProcessHeap, ABadOptionIsNamedWithItsVariable) {
  setenv("CISTERN_ALLOC_CONF", "max_split_size:64", 1);
  try {
    static_cast<void>(allocate(1));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("CISTERN_ALLOC_CONF"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("max_split_size"), std::string::npos);
  }
}

TEST_F(ProcessHeap, PytorchsAsyncBackendIsTheDriversPool) {
  set_options("backend:cudaMallocAsync");
  void* const block = allocate(kMega);
  EXPECT_EQ(simulated::driver().calls("cuMemAllocFromPoolAsync"), 1U);
  EXPECT_EQ(memory_allocated(), kMega);
  EXPECT_THROW(set_options("policy:classic"), NotSupported);
  deallocate(block);
  EXPECT_EQ(simulated::driver().calls("cuMemFreeAsync"), 1U);
}

TEST_F(ProcessHeap, AForkedChildLeavesItsParentsAllocatorsAlone) {
  auto own = std::make_unique<CachingAllocator>();
  static_cast<void>(own->allocate(kMega));
  const SimulatedDriver& driver = simulated::driver();
  const std::uint64_t calls = driver.calls();
  const pid_t child = fork();
  if (child == 0) {
    own.reset();
    _exit(driver.calls() == calls ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  own.reset();
  EXPECT_GT(driver.calls(), calls);
}

// Whatever other threads were at when the process was forked.
TEST_F(ProcessHeap, AForkedChildFindsNoLockOfAnAllocatorHeld) {
  CachingAllocator own;
  static_cast<void>(own.allocate(kMega));
  const std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) static_cast<void>(own.memory_stats());
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // it would wait for ever
      _exit(own.memory_stats().allocated_bytes.all.current == kMega ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "the child of fork " << i << " waited for a lock";
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
}

// Allocators that ended are not looked at.
TEST_F(ProcessHeap, AForkAfterTheEndOfAnAllocatorIsAsAny) {
  const std::jthread ends([](const std::stop_token& stop) {
    while (!stop.stop_requested()) static_cast<void>(CachingAllocator().allocate(kMega));
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
  }
}

TEST_F(ProcessHeap, AForkedChildReadsStatisticsAndIsRefusedTheRest) {
  void* pointer = allocate(3 * kMega);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int wrong = 0;
    if (memory_allocated() != 3 * kMega) wrong |= 1;
    try {
      static_cast<void>(allocate(1));
      wrong |= 2;
    } catch (const NotSupported&) {
    }
    deallocate(pointer);
    if (memory_allocated() != 3 * kMega) wrong |= 4;
    if (memory_summary().empty()) wrong |= 8;
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  deallocate(pointer);
  EXPECT_EQ(memory_allocated(), 0U);
}

TEST_F(ProcessHeap, EachThreadStartsOnTheDefaultStreamOfDeviceZero) {
  set_stream(Stream::create({.device = 1}));
  std::thread([] {
    EXPECT_EQ(current_device().index(), 0);
    void* pointer = allocate(kMega);
    EXPECT_EQ(memory_allocated(0), kMega);
    deallocate(pointer);
  }).join();
}

// The lock of a stream leans towards a thread that looks at it often enough: also towards one that a pool is for.
TEST_F(ProcessHeap, WhoLooksOftenAndIsInAPoolGetsNothingThatStands) {
  if (!HostProcessors::has_barrier()) GTEST_SKIP() << "no lock leans on this system";
  const Stream stream = Stream::create();
  const MemPool pool;
  const MemPoolGuard guard(pool);
  void* kept = nullptr;
  std::thread([&] {
    kept = allocate(512, stream);
    for (int i = 0; i < 100; ++i) deallocate(allocate(kKibi, stream));
  }).join();
  for (int i = 0; i < 1000; ++i) EXPECT_THROW(deallocate_checked(kept, 513), InvalidArgument);
  void* const inside = allocate(kKibi, stream);
  const auto is_inside = [&](const SegmentInfo& segment) {
    const auto address = reinterpret_cast<std::uintptr_t>(inside);
    return address >= segment.address && address < segment.address + static_cast<std::uint64_t>(segment.total_size);
  };
  const std::vector<SegmentInfo> segments = memory_snapshot(0, pool.id());
  EXPECT_TRUE(std::any_of(segments.begin(), segments.end(), is_inside));
  deallocate(inside);
  deallocate(kept);
}

}  // namespace
}  // namespace cistern
