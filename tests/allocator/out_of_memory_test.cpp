// What an application sees when memory runs out.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/allocator/capturing_driver.h"
#include "tests/allocator/dump_files.h"
#include "tests/allocator/out_of_memory_requests.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

using OutOfMemoryTest = FailingRequests;

TEST_F(OutOfMemoryTest, IsABadAllocAndAnErrorAndAnException) {
  EXPECT_THROW(static_cast<void>(allocator_.allocate(200 * kMega)), std::bad_alloc);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(200 * kMega)), Error);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(200 * kMega)), std::exception);
}

TEST_F(OutOfMemoryTest, TheTextKeepsTheFormsThatProgramsSearchFor) {
  static_cast<void>(allocator_.allocate(100 * kMega));
  failing_request(50 * kMega);
  EXPECT_NE(text_.find("out of memory"), std::string::npos) << text_;
  EXPECT_NE(text_.find("Tried to allocate 50.00 MiB. "), std::string::npos) << text_;
}

TEST_F(OutOfMemoryTest, TheReportAddsUpAndCountsWhatIsOutside) {
  CachingAllocator other({.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:classic")});
  static_cast<void>(other.allocate(40 * kMega));
  static_cast<void>(allocator_.allocate(3 * kMega));
  static_cast<void>(allocator_.allocate(700));
  const OutOfMemoryReport report = failing_request(100 * kMega);
  expect_sum(report);
  EXPECT_EQ(report.outside_bytes, 40 * kMega);
  EXPECT_EQ(report.allocated_bytes, 3 * kMega + 1024);
  EXPECT_EQ(report.free_split_bytes, 19 * kMega - 1024);
  EXPECT_EQ(report.largest_free_block_bytes, 17 * kMega);
}

TEST_F(OutOfMemoryTest, CauseDeviceFull) {
  static_cast<void>(allocator_.allocate(100 * kMega));
  EXPECT_EQ(failing_request(60 * kMega).cause, OutOfMemoryCause::device_full);
}

TEST_F(OutOfMemoryTest, CauseTooLarge) {
  EXPECT_EQ(failing_request(129 * kMega).cause, OutOfMemoryCause::too_large);
  EXPECT_EQ(failing_request(std::size_t{1} << 60).cause, OutOfMemoryCause::too_large);
  EXPECT_EQ(failing_request(~std::size_t{0}).cause, OutOfMemoryCause::too_large);
}

// Six segments of 20 MiB, each with one 8 MiB block in use: 72 MiB are free here, in pieces.
TEST_F(OutOfMemoryTest, CauseFragmentedNamesTheOptionThatMayHelp) {
  std::vector<void*> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(allocator_.allocate(8 * kMega));
  for (std::size_t i = 0; i < blocks.size(); i += 2) allocator_.deallocate(blocks[i]);
  const OutOfMemoryReport report = failing_request(40 * kMega);
  expect_sum(report);
  EXPECT_EQ(report.cause, OutOfMemoryCause::fragmented);
  EXPECT_EQ(report.free_split_bytes, 72 * kMega);
  EXPECT_NE(report.advice.find("max_split_size_mb"), std::string::npos);
}

// In the report it is free for the request; in the text it is allocated, as in PyTorch's.
TEST_F(OutOfMemoryTest, WhatTheRequestsOwnPrivatePoolHasFreeIsToldApart) {
  const MemPool pool(allocator_);
  static_cast<void>(allocator_.allocate(100 * kMega));
  const MemPoolGuard guard(pool);
  static_cast<void>(allocator_.allocate(3 * kMega));
  const OutOfMemoryReport report = failing_request(60 * kMega);
  expect_sum(report);
  EXPECT_EQ(report.free_split_bytes, 17 * kMega);
  EXPECT_EQ(report.own_pool_free_split_bytes, 17 * kMega);
  EXPECT_EQ(report.private_pools_free_bytes, 0U);
  EXPECT_NE(text_.find("120.00 MiB is allocated by cistern, with 17.00 MiB of it free in private pools, and 0 bytes"),
            std::string::npos)
      << text_;
}

TEST_F(OutOfMemoryTest, AFreeMemoryCallbackIsNotAskedForWhatItAsksForItself) {
  int asked = 0;
  allocator_.add_free_memory_callback([&](int, std::size_t) {
    ++asked;
    allocator_.deallocate(allocator_.allocate(30 * kMega));
    return false;
  });
  static_cast<void>(allocator_.allocate(3 * kMega));
  EXPECT_EQ(asked, 1);
}

TEST_F(OutOfMemoryTest, CauseDriverRefusal) {
  driver_.fail_call("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  driver_.fail_call("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failing_request(30 * kMega).cause, OutOfMemoryCause::driver_refusal);
}

// A pending free that completes in the flush may merge into a block that fits. PyTorch does
// not look again (pytorch#189504); the report says which option does.
TEST_F(OutOfMemoryTest, AdviceWhenSearchingAgainWouldHaveServed) {
  const StreamHandle side = driver_.create_stream();
  void* first = allocator_.allocate(60 * kMega);
  static_cast<void>(allocator_.allocate(60 * kMega));
  allocator_.deallocate(first);
  void* part = allocator_.allocate(50 * kMega);
  void* rest = allocator_.allocate(10 * kMega);
  driver_.occupy(side, 1ms);
  allocator_.deallocate(part, side);
  const OutOfMemoryReport report = failing_request(48 * kMega);
  EXPECT_NE(report.advice.find("research_after_flush:True"), std::string::npos) << text_;
  static_cast<void>(rest);

  SimulatedDriver driver({.capacity_bytes = 128 * kMega, .backing = Backing::none});
  CachingAllocator searching(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,research_after_flush:True")});
  const StreamHandle other_side = driver.create_stream();
  first = searching.allocate(60 * kMega);
  static_cast<void>(searching.allocate(60 * kMega));
  searching.deallocate(first);
  part = searching.allocate(50 * kMega);
  static_cast<void>(searching.allocate(10 * kMega));
  driver.occupy(other_side, 1ms);
  searching.deallocate(part, other_side);
  EXPECT_EQ(searching.allocate(48 * kMega), part) << "with the option the same request is served";
}

TEST_F(OutOfMemoryTest, LiveBlocksAndTheCacheStayUsable) {
  void* live = allocator_.allocate(30 * kMega);
  failing_request(120 * kMega);
  EXPECT_NO_THROW(allocator_.check());
  EXPECT_NE(allocator_.allocate(60 * kMega), nullptr);
  allocator_.deallocate(live);
  EXPECT_EQ(allocator_.memory_stats().num_ooms, 1);
}

TEST_F(OutOfMemoryTest, ObserversRunFirstAndMayCallBack) {
  int seen = 0;
  const ObserverId id = allocator_.add_out_of_memory_observer([&](const OutOfMemoryReport& report) {
    ++seen;
    EXPECT_EQ(report.requested_bytes, 200 * kMega);
    allocator_.deallocate(allocator_.allocate(1000));  // no lock is held
  });
  allocator_.add_out_of_memory_observer([](const OutOfMemoryReport&) { throw std::runtime_error("ignored"); });
  failing_request(200 * kMega);
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(allocator_.remove_observer(id));
  EXPECT_FALSE(allocator_.remove_observer(id));
  failing_request(200 * kMega);
  EXPECT_EQ(seen, 1);
}

// Removing a callback ends what it owns, which may free memory while another request misses.
TEST_F(OutOfMemoryTest, ACallbackThatOwnsABlockMayBeRemoved) {
  std::shared_ptr<void> block(allocator_.allocate(1000), [this](void* pointer) { allocator_.deallocate(pointer); });
  const ObserverId id = allocator_.add_free_memory_callback([block](int, std::size_t) { return false; });
  block.reset();
  EXPECT_TRUE(allocator_.remove_observer(id));
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 0);
}

TEST_F(OutOfMemoryTest, AFreeMemoryCallbackMaySaveTheRequest) {
  void* spare = allocator_.allocate(100 * kMega);
  int asked = 0;
  allocator_.add_free_memory_callback([&](int device, std::size_t bytes) {
    ++asked;
    EXPECT_EQ(device, 0);
    EXPECT_EQ(bytes, 90 * kMega);
    allocator_.deallocate(spare);
    return true;
  });
  EXPECT_EQ(allocator_.allocate(90 * kMega), spare);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 0);
}

TEST_F(OutOfMemoryTest, TheSummaryGoesToTheFileThatOomDumpNames) {
  const std::string path = ::testing::TempDir() + "cistern-oom-dump.txt";
  remove_dump(path);
  allocator_.set_options("oom_dump:" + path);
  failing_request(200 * kMega);
  EXPECT_EQ(read_whole(path), "cistern: " + without_snapshot(text_) + "\n" + allocator_.memory_summary() +
                                  "cistern: oom_dump: a snapshot is in '" + snapshot_named_in(text_) + "'\n");
  remove_dump(path);
}

TEST_F(OutOfMemoryTest, TheErrorNamesTheFileAndNoneThatCannotBeOpened) {
  const std::string path = ::testing::TempDir() + "cistern-oom-named.txt";
  allocator_.set_options("oom_dump:" + path);
  failing_request(200 * kMega);
  const std::string snapshot = snapshot_named_in(text_);
  EXPECT_NE(text_.find("The memory summary is in " + path + ". A snapshot is in " + snapshot + "."), std::string::npos)
      << text_;
  EXPECT_TRUE(std::filesystem::exists(snapshot));
  remove_dump(path);

  allocator_.set_options("oom_dump:/nowhere/at/all.txt");
  ::testing::internal::CaptureStderr();
  failing_request(200 * kMega);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text_.find("/nowhere"), std::string::npos) << text_;
  EXPECT_NE(said.find("cannot append to '/nowhere/at/all.txt'"), std::string::npos) << said;
  EXPECT_NE(said.find(allocator_.memory_summary()), std::string::npos) << said;
}

TEST_F(OutOfMemoryTest, ADumpHasTheSnapshotOfItsMoment) {
  const std::string path = ::testing::TempDir() + "cistern-oom-snapshot.txt";
  allocator_.set_options("oom_dump:" + path);
  static_cast<void>(allocator_.allocate(3 * kMega));
  failing_request(200 * kMega);
  const std::string dumped = read_whole(snapshot_named_in(text_));
  Snapshot now = allocator_.snapshot();
  ASSERT_EQ(now.device_traces[0].back().action, TraceAction::snapshot) << "the dump's";
  now.device_traces[0].pop_back();
  std::ostringstream expected;
  write_json(now, expected);
  // Times are counted back from the moment of looking.
  const auto without_times = [](const std::string& json) {
    return std::regex_replace(json, std::regex("\"time_us\": [0-9]+"), "");
  };
  EXPECT_EQ(without_times(dumped), without_times(expected.str()));
  remove_dump(path);
}

// A program that looks for what fits does not fill the disk.
TEST_F(OutOfMemoryTest, SixteenSnapshotsAreKept) {
  const std::string path = ::testing::TempDir() + "cistern-oom-kept.txt";
  allocator_.set_options("oom_dump:" + path);
  std::vector<std::string> names;
  for (int i = 0; i < 17; ++i) {
    failing_request(200 * kMega);
    names.push_back(snapshot_named_in(text_));
  }
  EXPECT_EQ(names.front(), names.back());
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 16U);
  remove_dump(path);
}

TEST_F(OutOfMemoryTest, ADeviceAsThePlaceGetsNoSnapshotBesideIt) {
  allocator_.set_options("oom_dump:/dev/null");
  failing_request(200 * kMega);
  EXPECT_NE(text_.find("The memory summary is in /dev/null."), std::string::npos) << text_;
}

// A file system that is full, or here a limit on the size of files.
TEST_F(OutOfMemoryTest, ASnapshotThatCannotBeWrittenWholeIsRemovedAndTheDumpSaysSo) {
  const std::string path = ::testing::TempDir() + "cistern-oom-limited.txt";
  allocator_.set_options("oom_dump:" + path);
  for (int i = 0; i < 400; ++i) static_cast<void>(allocator_.allocate(1000));
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limited { 32 * 1024, before.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  failing_request(200 * kMega);
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  static_cast<void>(std::signal(SIGXFSZ, handler));
  EXPECT_EQ(snapshot_named_in(text_), "");
  const std::regex said("oom_dump: cannot write '.*\\.json': error 27\n");
  EXPECT_TRUE(std::regex_search(read_whole(path), said)) << read_whole(path);
  for (const auto& file : std::filesystem::directory_iterator(::testing::TempDir()))
    EXPECT_FALSE(file.path().string().starts_with(path + "." + std::to_string(::getpid()))) << file.path();
  remove_dump(path);
}

// Another thread's request is served between the driver's answer and the heap's.
TEST(OutOfMemoryMeanwhile, TheReportIsOfOneMomentAndAddsUpInAnyCase) {
  for (const int changes : {1, 3, 1000}) {
    SimulatedDriver driver({.capacity_bytes = 1024 * kMega, .backing = Backing::none});
    struct Asked {
      const DriverApi& driver;
      CachingAllocator* allocator;
      int changes;
    } asked{driver.api(), nullptr, changes};
    DriverApi api = driver.api();
    api.mem_get_info = {&asked, [](void* self, std::size_t* free, std::size_t* total) {
                          auto& me = *static_cast<Asked*>(self);
                          const CUresult result = me.driver.mem_get_info(free, total);
                          if (me.allocator != nullptr && me.changes-- > 0)
                            static_cast<void>(me.allocator->allocate(20 * kMega));
                          return result;
                        }};
    CachingAllocator allocator({.driver = &api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
    static_cast<void>(allocator.allocate(500 * kMega));
    asked.allocator = &allocator;
    try {
      static_cast<void>(allocator.allocate(600 * kMega));
      FAIL() << "it was served";
    } catch (const OutOfMemoryError& error) {
      expect_sum(error.report());
      EXPECT_EQ(error.report().outside_bytes, 0U) << changes;
      if (changes < 8) {
        EXPECT_EQ(error.report().device_free_bytes, (1024 - 500 - 20 * static_cast<std::size_t>(changes)) * kMega);
      }
    }
    asked.allocator = nullptr;
  }
}

TEST_F(OutOfMemoryTest, ADriverThatDoesNotSayWhatIsFreeChangesNeitherTheErrorNorTheDump) {
  static_cast<void>(allocator_.allocate(3 * kMega));
  driver_.fail_call("cuMemGetInfo", 1, CUDA_ERROR_UNKNOWN);
  const OutOfMemoryReport report = failing_request(120 * kMega);
  EXPECT_FALSE(report.has_device_figures);
  EXPECT_EQ(report.cause, OutOfMemoryCause::driver_refusal);
  EXPECT_EQ(report.device_total_bytes, 128 * kMega);
  EXPECT_EQ(report.device_free_bytes + report.outside_bytes, 0U);
  EXPECT_EQ(report.reserved_bytes, 20 * kMega);
  EXPECT_EQ(report.allocated_bytes + report.free_split_bytes, 20 * kMega);
  EXPECT_EQ(
      text_,
      "CUDA out of memory. Tried to allocate 120.00 MiB. GPU 0 has a total capacity of 128.00 MiB; how much of "
      "it is free is not known, for the driver did not say. Including memory outside cistern, this process has "
      "20.00 MiB memory in use. cistern holds 20.00 MiB; of the allocated memory "
      "3.00 MiB is allocated by cistern, and 17.00 MiB is reserved but unallocated (0 bytes freed but awaited "
      "by other streams, 17.00 MiB free in partly used segments, 0 bytes free in unused segments or pages; the largest "
      "free block has 17.00 MiB). Cause: the driver refused 120.00 MiB.");
  driver_.fail_call("cuMemGetInfo", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(failing_request(~std::size_t{0}).cause, OutOfMemoryCause::too_large);
  allocator_.set_memory_fraction(0.5);
  driver_.fail_call("cuMemGetInfo", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(failing_request(100 * kMega).cause, OutOfMemoryCause::limit);
  EXPECT_NE(text_.find("100.00 MiB more would exceed the 64.00 MiB allowed."), std::string::npos) << text_;
}

// The figures stand in PyTorch's order, and add up to the device and to what is held.
TEST_F(OutOfMemoryTest, TheTextNamesWhoUsesTheDeviceAndAddsUp) {
  CachingAllocator other({.driver = &driver_.api(), .options = AllocatorOptions::parse("policy:classic")});
  static_cast<void>(other.allocate(40 * kMega));
  static_cast<void>(allocator_.allocate(3 * kMega));
  allocator_.set_memory_fraction(0.75);
  failing_request(100 * kMega);
  EXPECT_EQ(text_,
            "CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 128.00 MiB of which 68.00 "
            "MiB is free. Including memory outside cistern, this process has 60.00 MiB memory in use. 96.00 MiB "
            "allowed; cistern holds 20.00 MiB; 40.00 MiB is in use outside it. Of the allocated memory 3.00 MiB is "
            "allocated by cistern, and 17.00 MiB is reserved but unallocated (0 bytes freed but awaited by other "
            "streams, 17.00 MiB free in partly used segments, 0 bytes free in unused segments or pages; the largest "
            "free block "
            "has 17.00 MiB). Cause: the device is full: 100.00 MiB is needed and 68.00 MiB is free; 40.00 MiB is in "
            "use outside cistern.");
}

// An observer that runs out itself is told so, once, and ends; nobody else is.
TEST_F(OutOfMemoryTest, AFailureInsideAnObserverReachesItsCallerAlone) {
  const std::string path = ::testing::TempDir() + "cistern-oom-nested.txt";
  remove_dump(path);
  allocator_.set_options("oom_dump:" + path);
  int seen = 0;
  int nested = 0;
  allocator_.add_out_of_memory_observer([&](const OutOfMemoryReport&) {
    ++seen;
    try {
      static_cast<void>(allocator_.allocate(300 * kMega));
    } catch (const OutOfMemoryError& error) {
      nested += error.report().requested_bytes == 300 * kMega ? 1 : 0;
    }
  });
  failing_request(200 * kMega);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(nested, 1);
  EXPECT_EQ(allocator_.memory_stats().num_ooms, 2);
  const std::string written = read_whole(path);
  EXPECT_EQ(written.find("cistern: CUDA"), written.rfind("cistern: CUDA")) << "one dump";
  remove_dump(path);
}

TEST_F(OutOfMemoryTest, TheSummaryGoesToStandardErrorByDefault) {
  allocator_.set_options("oom_dump:stderr");
  ::testing::internal::CaptureStderr();
  failing_request(200 * kMega);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(allocator_.memory_summary()), std::string::npos);
}

// Nothing is flushed and nothing waited for while a stream is captured: that would end the capture.
// The cached 60 MiB serve again as soon as it is over.
TEST(OutOfMemoryInCapture, LeavesTheCaptureAndTheCacheAloneAndARetryAfterwardsIsServed) {
  CapturingDriver captures({.capacity_bytes = 128 * kMega, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &captures.api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  const StreamHandle stream = captures.driver.create_stream();
  const StreamHandle side = captures.driver.create_stream();
  allocator.deallocate(allocator.allocate(40 * kMega, stream));
  void* awaited = allocator.allocate(60 * kMega, stream);
  captures.driver.occupy(side, 1ms);
  allocator.deallocate(awaited, side);

  captures.begin_capture(stream, 7);
  allocator.begin_allocate_to_pool(0, {1, 0}, PoolFilter::capture(7));
  const MemoryStats before = allocator.memory_stats();
  std::string text;
  OutOfMemoryReport report;
  try {
    static_cast<void>(allocator.allocate(100 * kMega, stream));
  } catch (const OutOfMemoryError& error) {
    text = error.what();
    report = error.report();
  }
  EXPECT_EQ(report.pending_free_bytes, 60 * kMega);
  EXPECT_EQ(report.free_whole_bytes, 40 * kMega);
  EXPECT_NE(text.find("A capture is under way"), std::string::npos) << text;
  MemoryStats after = allocator.memory_stats();
  EXPECT_EQ(after.num_ooms, 1);
  after.num_ooms = 0;
  EXPECT_EQ(after, before) << "nothing else has changed";
  EXPECT_EQ(captures.driver.host_synchronizations(), 0U);
  void* in_graph = allocator.allocate(2 * kMega, stream);
  EXPECT_FALSE(captures.invalidated());
  allocator.end_allocate_to_pool(0, {1, 0});
  captures.end_capture(stream);

  void* block = allocator.allocate(100 * kMega, stream);
  EXPECT_EQ(allocator.memory_stats().num_alloc_retries, 1);
  allocator.deallocate(block);
  allocator.deallocate(in_graph);
  allocator.release_pool(0, {1, 0});
  EXPECT_NO_THROW(allocator.check());
}

}  // namespace
}  // namespace cistern
