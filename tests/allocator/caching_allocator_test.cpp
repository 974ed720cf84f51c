// What a user of a CachingAllocator sees.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/stream_access.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class CachingAllocatorTest : public ::testing::Test {
 protected:
  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::memory}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
};

TEST_F(CachingAllocatorTest, ZeroBytesIsNoAllocation) {
  EXPECT_EQ(allocator_.allocate(0), nullptr);
  allocator_.deallocate(nullptr);
  EXPECT_EQ(allocator_.memory_stats(),
            CachingAllocator({.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:classic")})
                .memory_stats());
}

TEST_F(CachingAllocatorTest, AFreedBlockServesItsStreamAgainWithoutTheDriver) {
  void* first = allocator_.allocate(3 * kMega);
  allocator_.deallocate(first);
  const std::uint64_t calls = driver_.calls();
  EXPECT_EQ(allocator_.allocate(3 * kMega), first);
  EXPECT_EQ(driver_.calls(), calls);
}

// The core guarantee: on one stream no event is ever recorded, whatever is queued there.
TEST_F(CachingAllocatorTest, ReuseOnOneStreamNeverWaitsForItsWork) {
  const StreamHandle stream = driver_.create_stream();
  void* first = allocator_.allocate(kMega, stream);
  driver_.occupy(stream, 10ms);
  allocator_.deallocate(first);
  EXPECT_EQ(allocator_.allocate(kMega, stream), first);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0U);
  EXPECT_EQ(driver_.host_synchronizations(), 0U);
}

TEST_F(CachingAllocatorTest, FreeBlocksOfOneStreamNeverServeAnother) {
  void* first = allocator_.allocate(kMega, driver_.create_stream());
  allocator_.deallocate(first);
  EXPECT_NE(allocator_.allocate(kMega, driver_.create_stream()), first);
}

// A handle may be reused by the driver for a new stream, which is ordered after nothing.
TEST_F(CachingAllocatorTest, AStreamWithTheHandleOfADestroyedOneInheritsNothing) {
  const StreamHandle old_stream = driver_.create_stream();
  void* first = allocator_.allocate(kMega, old_stream);
  allocator_.deallocate(first);
  driver_.destroy_stream(old_stream);
  for (int i = 0; i < 8; ++i) EXPECT_NE(allocator_.allocate(kMega, driver_.create_stream()), first);
}

TEST_F(CachingAllocatorTest, ARegisteredStreamIsNamedByItsHandleWithoutTheDriver) {
  const StreamHandle stream = driver_.create_stream(1);
  const StreamHandle other = driver_.create_stream(1);
  for (const StreamHandle each : {stream, other})
    allocator_.register_stream(each, 0);  // it is of device 1 all the same
  void* first = allocator_.allocate(3 * kMega, stream);
  allocator_.deallocate(first);
  const std::uint64_t calls = driver_.calls();
  EXPECT_EQ(allocator_.allocate(3 * kMega, stream), first);
  allocator_.deallocate(first, stream);
  EXPECT_EQ(allocator_.allocate(3 * kMega, stream), first);
  allocator_.record_stream(first, other);
  EXPECT_EQ(driver_.calls(), calls);
  EXPECT_EQ(allocator_.memory_stats(1).allocation.all.current, 1);
}

// Nor by a free that waits for it.
TEST_F(CachingAllocatorTest, ARegisteredStreamsUseIsGuardedWithoutAskingWhoseItIs) {
  const StreamHandle user = driver_.create_stream();
  allocator_.register_stream(user);
  const auto asked_for_a_turn = [&] {
    const std::uint64_t asked = driver_.calls("cuStreamGetId");
    void* const used = allocator_.allocate(kMega);
    allocator_.record_stream(used, user);
    driver_.occupy(user, 10ms);
    allocator_.deallocate(used);
    EXPECT_NE(allocator_.allocate(kMega), used) << "work that uses it is queued";
    return driver_.calls("cuStreamGetId") - asked;
  };
  EXPECT_EQ(asked_for_a_turn(), 0U);
  allocator_.release_stream(user);
  EXPECT_EQ(asked_for_a_turn(), 2U) << "where it is named, and before its event is recorded";
}

// Although that one is registered.
TEST_F(CachingAllocatorTest, AUseOfAStreamThatIsGoneIsNotGuardedByOneThatHasItsHandle) {
  const StreamHandle user = driver_.create_stream();
  allocator_.register_stream(user);
  void* const used = allocator_.allocate(kMega);
  allocator_.record_stream(used, user);
  const auto is_done = std::make_shared<bool>();
  driver_.launch(user, {}, {{used, kMega}}, 10ms, [is_done] { *is_done = true; });
  allocator_.release_stream(user);
  driver_.destroy_stream(user);
  StreamHandle reborn = nullptr;
  for (int i = 0; i < 8 && reborn != user; ++i) allocator_.register_stream(reborn = driver_.create_stream());
  ASSERT_EQ(reborn, user);
  allocator_.deallocate(used);
  EXPECT_TRUE(*is_done) << "only the device tells when the work of a stream that is gone is over";
}

// What its owner was to say before it was destroyed.
TEST_F(CachingAllocatorTest, AReleasedStreamsHandleIsAskedForAgain) {
  StreamHandle stream = driver_.create_stream();
  allocator_.register_stream(stream);
  void* first = allocator_.allocate(kMega, stream);
  driver_.occupy(stream, 10ms);
  allocator_.deallocate(first);
  allocator_.release_stream(stream);
  const std::uint64_t asked = driver_.calls("cuStreamGetId");
  static_cast<void>(allocator_.allocate(kMega, stream));
  EXPECT_EQ(driver_.calls("cuStreamGetId"), asked + 1);
}

TEST_F(CachingAllocatorTest, DefaultStreamsAreNotRegistered) {
  allocator_.register_stream(nullptr, 1);
  allocator_.register_stream(per_thread_handle(), 0);
  void* const one = allocator_.allocate(kMega, per_thread_handle(), 1);
  EXPECT_EQ(allocator_.memory_stats(1).allocation.all.current, 1) << "each device has one";
  void* other = nullptr;
  std::thread([&] { other = allocator_.allocate(kMega, per_thread_handle(), 1); }).join();
  allocator_.deallocate(one);
  EXPECT_NE(allocator_.allocate(kMega, nullptr, 1), one);
  allocator_.deallocate(other);
}

// The stream that it was allocated for needs no guard, and another one does, named at the free alone.
TEST_F(CachingAllocatorTest, AFreeThatNamesItsOwnStreamIsPlain) {
  const StreamHandle stream = driver_.create_stream();
  const StreamHandle other = driver_.create_stream();
  void* const block = allocator_.allocate(3 * kMega, stream);
  driver_.occupy(stream, 10ms);
  driver_.occupy(other, 10ms);
  allocator_.deallocate(block, stream);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0U);
  EXPECT_EQ(allocator_.allocate(3 * kMega, stream), block);
  allocator_.deallocate(block, other);
  EXPECT_NE(allocator_.allocate(3 * kMega, stream), block);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 1U);
}

TEST_F(CachingAllocatorTest, AddressesAreAlignedAndWritable) {
  for (std::size_t bytes : {std::size_t{1}, std::size_t{513}, 2 * kMega, 33 * kMega}) {
    void* pointer = allocator_.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 512, 0U);
    std::memset(pointer, 1, bytes);
    allocator_.deallocate(pointer);
  }
}

TEST_F(CachingAllocatorTest, DevicesHaveHeapsOfTheirOwn) {
  void* first = allocator_.allocate(3 * kMega, nullptr, 1);
  EXPECT_EQ(allocator_.memory_stats(0).allocation.all.current, 0);
  EXPECT_EQ(allocator_.memory_stats(1).allocation.all.current, 1);
  EXPECT_EQ(driver_.used_bytes(0), 0U);
  EXPECT_EQ(driver_.used_bytes(1), 20 * kMega);
  allocator_.deallocate(first);
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(1), 0U);
}

TEST_F(CachingAllocatorTest, ADeviceThatIsNotThereIsNamed) {
  try {
    static_cast<void>(allocator_.allocate(1, nullptr, 7));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find('7'), std::string::npos) << error.what();
  }
  EXPECT_THROW(allocator_.register_stream(nullptr, 7), InvalidArgument);
  EXPECT_THROW(allocator_.release_stream(nullptr, -1), InvalidArgument);
}

TEST_F(CachingAllocatorTest, FreeingTwiceOrAStrangeAddressChangesNothing) {
  auto* pointer = static_cast<char*>(allocator_.allocate(4 * kMega));
  allocator_.deallocate(pointer + 512);
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 1);
  allocator_.deallocate(pointer);
  const MemoryStats once = allocator_.memory_stats();
  ::testing::internal::CaptureStderr();
  allocator_.deallocate(pointer);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("not the address of a live block"), std::string::npos);
  EXPECT_EQ(allocator_.memory_stats(), once);
  EXPECT_NO_THROW(allocator_.check());
}

// A block whose segment the driver refuses to take must not come back as another block.
TEST_F(CachingAllocatorTest, DirectNeverReusesASegmentThatTheDriverKept) {
  CachingAllocator direct({.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:direct")});
  void* first = direct.allocate(5 * kMega);
  driver_.fail_call("cuMemFree", 1, CUDA_ERROR_LAUNCH_FAILED);
  direct.deallocate(first);
  EXPECT_NE(direct.allocate(5 * kMega), first);
  EXPECT_EQ(driver_.used_bytes(), 12 * kMega);
  direct.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 6 * kMega);
}

TEST_F(CachingAllocatorTest, ASizeThatNoDeviceHasIsRefusedBeforeAnythingMoves) {
  static_cast<void>(allocator_.allocate(1000));
  const MemoryStats before = allocator_.memory_stats();
  EXPECT_THROW(static_cast<void>(allocator_.allocate(std::size_t{1} << 60)), OutOfMemoryError);
  EXPECT_EQ(allocator_.memory_stats(), before);
}

TEST_F(CachingAllocatorTest, AskingForAFractionDoesNotFixThePolicy) {
  EXPECT_EQ(allocator_.memory_fraction(), 1.0);
  allocator_.set_options("policy:direct,oom_dump:off");
  allocator_.deallocate(allocator_.allocate(5 * kMega));
  EXPECT_EQ(driver_.used_bytes(), 0U) << "direct is in force";
}

TEST_F(CachingAllocatorTest, AFractionThatATextNamedHoldsForHeapsMadeLater) {
  allocator_.set_options("oom_dump:off,pytorch_rules:2.4,per_process_memory_fraction:1.0");
  allocator_.set_options("oom_dump:off,pytorch_rules:2.4");
  try {
    static_cast<void>(allocator_.allocate(300 * kMega));
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().limit_bytes.value_or(0), 256 * kMega);
  }
}

TEST_F(CachingAllocatorTest, AFractionOfZeroIsALimit) {
  allocator_.set_memory_fraction(0.0);
  try {
    static_cast<void>(allocator_.allocate(1));
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::limit);
  }
}

// Several threads free the same address at once: exactly one of them frees it.
TEST_F(CachingAllocatorTest, OfSeveralFreesOfOneAddressOneCounts) {
  std::vector<void*> pointers;
  for (int i = 0; i < 200; ++i) pointers.push_back(allocator_.allocate(1000));
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (void* pointer : pointers) allocator_.deallocate(pointer);
    });
  for (std::thread& thread : threads) thread.join();
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(allocator_.memory_stats().allocation.all, (Stat{0, 200, 200, 200}));
  EXPECT_NO_THROW(allocator_.check());
}

TEST_F(CachingAllocatorTest, TrimGivesTheLargestFreeSegmentsBackFirst) {
  void* kept = allocator_.allocate(1000);
  std::vector<void*> blocks;
  for (std::size_t size : {12, 40, 24}) blocks.push_back(allocator_.allocate(size * kMega));
  for (void* block : blocks) allocator_.deallocate(block);
  EXPECT_EQ(allocator_.trim(50 * kMega), 40 * kMega) << "38 MiB are left: below the target";
  EXPECT_EQ(allocator_.trim(0), 36 * kMega) << "the segment in use stays";
  allocator_.deallocate(kept);
  EXPECT_EQ(allocator_.trim(0), 2 * kMega);
}

TEST_F(CachingAllocatorTest, EmptyCacheLeavesWhatLiveBlocksNeed) {
  void* kept = allocator_.allocate(3 * kMega);
  allocator_.deallocate(allocator_.allocate(30 * kMega));
  allocator_.empty_cache();
  EXPECT_EQ(driver_.used_bytes(), 20 * kMega);
  EXPECT_EQ(allocator_.memory_stats().num_sync_all_streams, 1);
  allocator_.deallocate(kept);
}

TEST_F(CachingAllocatorTest, FractionLimitsWhatIsHeldAndFailsWithoutTheDriver) {
  allocator_.set_memory_fraction(0.25);
  EXPECT_EQ(allocator_.memory_fraction(), 0.25);
  static_cast<void>(allocator_.allocate(60 * kMega));
  const std::uint64_t attempts = driver_.calls("cuMemAlloc");
  try {
    static_cast<void>(allocator_.allocate(5 * kMega));
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::limit);
    EXPECT_EQ(error.report().limit_bytes, 64 * kMega);
  }
  EXPECT_EQ(driver_.calls("cuMemAlloc"), attempts);
  allocator_.set_memory_fraction(1.0);
  EXPECT_NE(allocator_.allocate(5 * kMega), nullptr);
}

TEST_F(CachingAllocatorTest, AnAllocationThatTheDriverFailsTakesNothingOffTheLimit) {
  allocator_.set_memory_fraction(0.25);
  driver_.fail_call("cuMemAlloc", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(60 * kMega)), DriverError);
  EXPECT_NE(allocator_.allocate(60 * kMega), nullptr);
}

TEST_F(CachingAllocatorTest, FractionOneIsALimitOnlyByTheOldRules) {
  CachingAllocator current(
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  CachingAllocator old(
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,pytorch_rules:2.4")});
  for (CachingAllocator* allocator : {&current, &old}) {
    allocator->set_memory_fraction(1.0);
    try {
      static_cast<void>(allocator->allocate(300 * kMega));
      FAIL();
    } catch (const OutOfMemoryError& error) {
      EXPECT_EQ(error.report().limit_bytes.value_or(0), allocator == &old ? 256 * kMega : 0U);
    }
  }
}

TEST_F(CachingAllocatorTest, FractionsOutsideZeroToOneAreRefused) {
  for (double fraction : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(allocator_.set_memory_fraction(fraction), InvalidArgument);
  EXPECT_EQ(allocator_.memory_fraction(), 1.0);
}

TEST_F(CachingAllocatorTest, ThePolicyIsFixedByTheFirstAllocation) {
  allocator_.set_options("policy:direct,oom_dump:off");
  static_cast<void>(allocator_.allocate(1));
  EXPECT_THROW(allocator_.set_options("policy:classic"), NotSupported);
  EXPECT_EQ(allocator_.options().policy, Policy::direct);
}

TEST_F(CachingAllocatorTest, DirectReachesTheDriverEachTime) {
  CachingAllocator direct({.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:direct")});
  for (int i = 0; i < 3; ++i) direct.deallocate(direct.allocate(5 * kMega));
  EXPECT_EQ(driver_.calls("cuMemAlloc"), 3U);
  EXPECT_EQ(driver_.calls("cuMemFree"), 3U);
  const MemoryStats stats = direct.memory_stats();
  EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  EXPECT_EQ(stats.reserved_bytes.all.allocated, static_cast<std::int64_t>(15 * kMega));
  EXPECT_EQ(stats.num_device_free, 3);
}

TEST_F(CachingAllocatorTest, AnAllocatorThatEndsGivesBackLiveBlocksToo) {
  {
    CachingAllocator ending({.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:classic")});
    static_cast<void>(ending.allocate(5 * kMega));
    void* pending = ending.allocate(40 * kMega);
    const StreamHandle busy = driver_.create_stream();
    driver_.occupy(busy, 1ms);
    ending.deallocate(pending, busy);
    EXPECT_EQ(driver_.used_bytes(), 60 * kMega);
  }
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

// The fields of the struct are held to the same rules as the text.
TEST_F(CachingAllocatorTest, OptionsAsFieldsAreChecked) {
  const auto make = [&](auto change) {
    AllocatorOptions options;
    change(options);
    CachingAllocator allocator({.driver = &driver_.api(), .options = options});
    return allocator.memory_fraction();
  };
  EXPECT_THROW(make([](auto& options) { options.pinned_num_register_threads = 3; }), InvalidArgument);
  EXPECT_THROW(make([](auto& options) { options.max_split_size_bytes = kMega; }), InvalidArgument);
  EXPECT_THROW(make([](auto& options) { options.max_non_split_rounding_bytes = 0; }), InvalidArgument);
  EXPECT_THROW(make([](auto& options) { options.roundup_power2_divisions[3] = 3; }), InvalidArgument);
  EXPECT_THROW(make([](auto& options) { options.garbage_collection_threshold = 1.0; }), InvalidArgument);
  EXPECT_THROW(make([](auto& options) { options.per_process_memory_fraction = 1.5; }), InvalidArgument);
  EXPECT_THROW(make([](auto& options) { options.summary_title = "a"; }), InvalidArgument);
  EXPECT_EQ(make([](auto& options) { options.per_process_memory_fraction = 0.5; }), 0.5);
}

// A text that is refused must not leave half of it in force.
TEST_F(CachingAllocatorTest, OptionsThatAreRefusedChangeNothing) {
  allocator_.set_options("oom_dump:off,max_split_size_mb:64");
  EXPECT_THROW(allocator_.set_options("max_split_size_mb:32,no_such_key:1"), InvalidArgument);
  EXPECT_EQ(allocator_.options().max_split_size_bytes, 64 * kMega);
}

TEST_F(CachingAllocatorTest, AFailureThatIsNotAboutMemoryIsThrownAndHarmless) {
  driver_.fail_call("cuMemAlloc", 1, CUDA_ERROR_LAUNCH_FAILED);
  try {
    static_cast<void>(allocator_.allocate(kMega));
    FAIL();
  } catch (const DriverError& error) {
    EXPECT_EQ(error.code(), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(error.call(), "cuMemAlloc");
  }
  EXPECT_EQ(allocator_.memory_stats().reserved_bytes.all.current, 0);
  EXPECT_NE(allocator_.allocate(kMega), nullptr);
}

}  // namespace
}  // namespace cistern
