// Device memory runs out while the host has none either: from the driver's refusal on, every
// malloc and every operator new of this thread fails, and error, report and dump are whole.

#include <cistern/allocator.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/dump_files.h"
#include "tests/allocator/refusing_driver.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

struct Failure {
  OutOfMemoryReport report;
  OutOfMemoryError::Text text;
};

// What a request that must fail throws; afterwards there is host memory again.
std::optional<Failure> failure_of(CachingAllocator& allocator, std::size_t bytes) {
  std::optional<Failure> failure;
  try {
    static_cast<void>(allocator.allocate(bytes));
  } catch (const OutOfMemoryError& error) {
    failure = Failure{error.report(), OutOfMemoryError::Text(error.what())};
  }
  testing_host::is_gone = false;
  return failure;
}

class NoHostMemoryTest : public ::testing::Test {
 protected:
  ~NoHostMemoryTest() override { remove_dump(path_); }
  [[nodiscard]] std::string dumped() const { return read_whole(path_); }

  const std::string path_ =
      ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() + "-dump.txt";
  RefusingDriver driver_;
  CachingAllocator allocator_{
      {.driver = &driver_.api(),
       .options = AllocatorOptions::parse("oom_dump:" + path_, AllocatorOptions::parse("policy:classic"))}};
};

// Uses that are over leave their place to those that come.
TEST_F(NoHostMemoryTest, ABlockIsRecordedAgainOnAnotherStream) {
  const StreamHandle user = driver_.driver.create_stream();
  const auto pair = [&] {
    void* block = allocator_.allocate(kMega);
    allocator_.record_stream(block, user);
    allocator_.deallocate(block);
  };
  for (int i = 0; i < 5; ++i) pair();
  testing_host::is_gone = true;
  EXPECT_NO_THROW(pair());
  testing_host::is_gone = false;
  EXPECT_EQ(allocator_.memory_stats().allocation.all.allocated, 6);
}

// While steps are followed: one that cannot be noted is refused, and the block and the steps are as they were.
TEST_F(NoHostMemoryTest, AUseThatIsFollowedIsRefusedOrNoted) {
  const StreamHandle user = driver_.driver.create_stream();
  constexpr std::size_t kBlocks = 100;  // more than nodes are kept for
  std::vector<void*> blocks(kBlocks);
  const auto round = [&](bool is_gone) {
    for (void*& block : blocks) block = allocator_.allocate(kKibi);
    int refused = 0;
    testing_host::is_gone = is_gone;
    for (void* block : blocks) {
      try {
        allocator_.record_stream(block, user);
      } catch (const std::bad_alloc&) {
        ++refused;
        testing_host::is_gone = false;
        allocator_.record_stream(block, user);
        testing_host::is_gone = true;
      }
    }
    testing_host::is_gone = false;
    for (void* block : blocks) allocator_.deallocate(block);
    return refused;
  };
  for (int i = 0; i < 60; ++i) EXPECT_EQ(round(false), 0);
  EXPECT_GT(round(true), 0);
  EXPECT_EQ(round(false), 0);
  EXPECT_EQ(allocator_.memory_stats().allocation.all.allocated, 62 * static_cast<std::int64_t>(kBlocks));
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 0);
  allocator_.empty_cache();
  EXPECT_EQ(allocator_.memory_stats().active.all.current, 0);
  EXPECT_NO_THROW(allocator_.check());
}

TEST_F(NoHostMemoryTest, ErrorReportAndDumpAreThoseOfAnyOtherFailure) {
  void* live = allocator_.allocate(100 * kMega);
  const std::optional<Failure> with = failure_of(allocator_, 50 * kMega);
  const std::string dumped_with = dumped();
  std::remove(path_.c_str());
  allocator_.deallocate(live);
  allocator_.empty_cache();
  allocator_.reset_accumulated_memory_stats();
  allocator_.reset_peak_memory_stats();

  live = allocator_.allocate(100 * kMega);
  driver_.armed = true;
  testing_host::refused_requests = 0;
  const std::optional<Failure> without = failure_of(allocator_, 50 * kMega);
  ASSERT_TRUE(with && without);
  EXPECT_GT(testing_host::refused_requests, 0) << "nothing asked for host memory: it was not gone";
  EXPECT_EQ(without->report.cause, OutOfMemoryCause::device_full);
  EXPECT_EQ(without->report.allocated_bytes, 100 * kMega);
  const std::string whole = "cistern: " + without_snapshot(without->text) + "\n" + allocator_.memory_summary();
  EXPECT_EQ(dumped().substr(0, whole.size()), whole);
  EXPECT_EQ(dumped().substr(whole.size()),
            "cistern: oom_dump: a snapshot is in '" + snapshot_named_in(without->text) +
                "', written while other threads waited, and with addresses in place of functions' names, for there was "
                "no host memory for a copy\n");
  // But for who uses the device, which takes host memory to ask.
  const std::string line = "cistern: oom_dump: a snapshot is in '" + snapshot_named_in(with->text) + "'\n";
  EXPECT_EQ(dumped_with.size() - line.size() - without_snapshot(with->text).size(),
            whole.size() - without_snapshot(without->text).size());
  EXPECT_NO_THROW(allocator_.check());
  allocator_.deallocate(live);
}

TEST_F(NoHostMemoryTest, ObserversAreToldAndWhatTheyThrowIsKeptFromTheCaller) {
  int told = 0;
  allocator_.add_out_of_memory_observer([&](const OutOfMemoryReport& report) {
    told += report.requested_bytes == 200 * kMega ? 1 : 0;
    throw std::bad_alloc();
  });
  driver_.armed = true;
  EXPECT_TRUE(failure_of(allocator_, 200 * kMega));
  EXPECT_EQ(told, 1);
}

TEST_F(NoHostMemoryTest, ManyThreadsAtOnceEachGetTheirOwnWholeDump) {
  static_cast<void>(allocator_.allocate(100 * kMega));
  driver_.armed = true;
  std::atomic<int> whole{0};
  constexpr int kFailing = 8;
  std::vector<std::thread> threads;
  for (int i = 0; i < kFailing; ++i)
    threads.emplace_back([&, i] {
      const auto bytes = static_cast<std::size_t>(50 + i) * kMega;
      const std::optional<Failure> failure = failure_of(allocator_, bytes);
      whole += failure && failure->report.requested_bytes == bytes ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole, kFailing);
  const std::string text = dumped();
  std::size_t begins = 0;
  for (std::size_t at = text.find("cistern: CUDA"); at != std::string::npos; at = text.find("cistern: CUDA", at + 1))
    ++begins;
  EXPECT_EQ(begins, kFailing);
  EXPECT_EQ(allocator_.memory_stats().num_ooms, kFailing);
}

}  // namespace
}  // namespace cistern
