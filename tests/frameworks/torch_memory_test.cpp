// torch.cuda: memory management.

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tests/byte_units.h"
#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The heap is the process's, and each test of ctest's has a process of its own.
class TorchCudaMemory : public FrameworkDevice {
 protected:
  void TearDown() override {
    empty_cache();
    FrameworkDevice::TearDown();
  }
};

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

TEST_F(TorchCudaMemory, EmptyCacheGivesUnusedMemoryBack) {
  const std::size_t before = memory_info().free;
  void* kept = allocate(4 * kMega);
  void* freed = allocate(64 * kMega);
  deallocate(freed);
  EXPECT_EQ(memory_info().free, before - memory_reserved());
  const std::size_t live = memory_allocated();
  empty_cache();
  EXPECT_EQ(memory_allocated(), live);
  EXPECT_EQ(memory_info().free, before - memory_reserved());
  EXPECT_LT(memory_reserved(), 64 * kMega);
  deallocate(kept);
  empty_cache();
  EXPECT_EQ(memory_info().free, before);
}

TEST_F(TorchCudaMemory, MemoryStatsOfADevice) {
  void* first = allocate(1000);
  void* second = allocate(3 * kMega);
  deallocate(second);
  const auto flat = memory_stats().flat();
  for (const std::string name : {"allocation", "allocated_bytes", "segment", "reserved_bytes", "active", "active_bytes",
                                 "inactive_split", "inactive_split_bytes"})
    for (const std::string pool : {"all", "large_pool", "small_pool"})
      for (const std::string metric : {"current", "peak", "allocated", "freed"})
        EXPECT_TRUE(flat.contains(name + "." + pool + "." + metric)) << name << pool << metric;
  EXPECT_EQ(flat.at("allocation.all.current"), 1);
  EXPECT_EQ(flat.at("allocation.all.peak"), 2);
  EXPECT_EQ(flat.at("allocation.large_pool.freed"), 1);
  EXPECT_EQ(flat.at("allocated_bytes.small_pool.current"), 1024);
  EXPECT_EQ(memory_stats(1).flat().at("allocation.all.allocated"), 0);
  set_device(1);
  EXPECT_EQ(memory_stats().flat().at("allocation.all.allocated"), 0);
  deallocate(first);
}

TEST_F(TorchCudaMemory, OneMebibyteIsSmall) {
  void* small = allocate(kMega);
  EXPECT_EQ(memory_stats().allocation.small_pool.current, 1);
  void* large = allocate(kMega + 1);
  EXPECT_EQ(memory_stats().allocation.large_pool.current, 1);
  deallocate(small);
  deallocate(large);
}

TEST_F(TorchCudaMemory, RetriesAndOutOfMemoryErrorsAreCounted) {
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(static_cast<void>(allocate(std::size_t{1} << 40)), OutOfMemoryError);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("CUDA memory summary"));
  EXPECT_EQ(memory_stats().flat().at("num_alloc_retries"), 1);
  EXPECT_EQ(memory_stats().flat().at("num_ooms"), 1);
}

TEST_F(TorchCudaMemory, MemorySummaryFullAndAbbreviated) {
  const std::string full = memory_summary();
  const std::string abbreviated = memory_summary({}, true);
  EXPECT_THAT(full, HasSubstr("from large pool"));
  EXPECT_THAT(abbreviated, Not(HasSubstr("from large pool")));
  EXPECT_THAT(full, HasSubstr("device ID 0"));
  EXPECT_THAT(memory_summary(1), HasSubstr("device ID 1"));
  set_device(1);
  EXPECT_THAT(memory_summary(), HasSubstr("device ID 1"));
  deallocate(allocate(kMega));  // and so with a heap
  EXPECT_THAT(memory_summary(), HasSubstr("device ID 1"));
}

TEST_F(TorchCudaMemory, MemorySnapshotHasTheBlocksOfAllDevices) {
  void* here = allocate(kMega, default_stream(0));
  void* there = allocate(kMega, default_stream(1));
  const Snapshot snapshot = memory_snapshot();
  std::set<int> devices;
  for (const auto& segment : snapshot.segments) devices.insert(segment.device);
  EXPECT_THAT(devices, ::testing::ElementsAre(0, 1));
  deallocate(here);
  deallocate(there);
}

TEST_F(TorchCudaMemory, ScalarsAreOfTheDeviceThatIsNamed) {
  void* memory = allocate(5 * kMega, default_stream(1));
  EXPECT_EQ(memory_allocated(), 0U);
  EXPECT_EQ(memory_allocated(1), 5 * kMega);
  EXPECT_EQ(memory_reserved(1), 20 * kMega);
  EXPECT_EQ(max_memory_allocated(1), 5 * kMega);
  EXPECT_EQ(max_memory_reserved(1), 20 * kMega);
  EXPECT_EQ(memory_reserved(), 0U);
  EXPECT_EQ(max_memory_allocated(), 0U);
  EXPECT_EQ(max_memory_reserved(), 0U);
  set_device(1);
  EXPECT_EQ(memory_allocated(), 5 * kMega);
  EXPECT_EQ(memory_reserved(), 20 * kMega);
  EXPECT_EQ(max_memory_allocated(), 5 * kMega);
  EXPECT_EQ(max_memory_reserved(), 20 * kMega);
  EXPECT_THAT(memory_report(1), HasSubstr("20.00 MiB"));
  deallocate(memory);
}

TEST_F(TorchCudaMemory, PeaksStartAgainAtAReset) {
  deallocate(allocate(30 * kMega));
  EXPECT_EQ(max_memory_allocated(), 30 * kMega);
  reset_peak_memory_stats();
  EXPECT_EQ(max_memory_allocated(), 0U);
  EXPECT_EQ(max_memory_reserved(), memory_reserved());
  deallocate(allocate(2 * kMega));
  EXPECT_EQ(max_memory_allocated(), 2 * kMega);
}

TEST_F(TorchCudaMemory, PeaksOfTheCurrentDeviceStartAgain) {
  for (const int device : {0, 1}) deallocate(allocate(30 * kMega, default_stream(device)));
  set_device(1);
  reset_peak_memory_stats();
  EXPECT_EQ(max_memory_allocated(0), 30 * kMega);
  EXPECT_EQ(max_memory_allocated(1), 0U);
}

TEST_F(TorchCudaMemory, MemoryFractionLimitsTheAllocator) {
  set_memory_fraction(0.5);
  EXPECT_LE(memory_info().free, memory_info().total);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(static_cast<void>(allocate(memory_info().total / 2 + 2 * kMega)), OutOfMemoryError);
  static_cast<void>(::testing::internal::GetCapturedStderr());
  deallocate(allocate(memory_info().total / 4));
  void* there = allocate(memory_info(1).total / 2 + 2 * kMega, default_stream(1));  // not limited
  deallocate(there);
  set_memory_fraction(1.0);
  EXPECT_THROW(set_memory_fraction(1.5), InvalidArgument);
  EXPECT_THROW(set_memory_fraction(-0.1), InvalidArgument);
  set_device(1);
  set_memory_fraction(0.25);
  EXPECT_EQ(memory_fraction(), 0.25);
  EXPECT_EQ(memory_fraction(1), 0.25);
  EXPECT_EQ(memory_fraction(0), 1.0);
}

TEST_F(TorchCudaMemory, ListGpuProcessesIsAPrintout) {
  void* memory = allocate(5 * kMega, default_stream(1));
  EXPECT_THAT(list_gpu_processes(), HasSubstr("GPU:0\n"));
  EXPECT_THAT(list_gpu_processes(1), HasSubstr("GPU:1\n"));
  set_device(1);
  EXPECT_EQ(list_gpu_processes(), "GPU:1\nprocess " + padded(std::to_string(getpid()), 10) + " uses " +
                                      padded("20.000", 12) + " MB GPU memory");
  deallocate(memory);
}

}  // namespace
}  // namespace cistern
