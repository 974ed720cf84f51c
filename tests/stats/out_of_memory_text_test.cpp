// What an application reads when there is no memory.

#include "stats/out_of_memory_text.h"
#include "tests/byte_units.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace cistern {
namespace {

// 96 MiB: 26 free, 6 outside, 64 held, of which 40 live.
OutOfMemoryReport failed_request() {
  OutOfMemoryReport report;
  report.device = 1;
  report.cause = OutOfMemoryCause::device_full;
  report.requested_bytes = 30 * kMega - 7;
  report.rounded_bytes = 30 * kMega;
  report.segment_bytes = 32 * kMega;
  report.device_total_bytes = 96 * kMega;
  report.device_free_bytes = 26 * kMega;
  report.outside_bytes = 6 * kMega;
  report.reserved_bytes = 64 * kMega;
  report.allocated_bytes = 40 * kMega;
  report.pending_free_bytes = 3 * kMega;
  report.free_split_bytes = 11 * kMega;
  report.free_whole_bytes = 10 * kMega;
  report.largest_free_block_bytes = 9 * kMega;
  return report;
}

std::string text_of(OutOfMemoryCause cause) {
  OutOfMemoryReport report = failed_request();
  report.cause = cause;
  return std::string(format_out_of_memory(report));
}

TEST(OutOfMemoryText, KeepsTheFormsThatProgramsSearchFor) {
  const std::string text(format_out_of_memory(failed_request()));
  EXPECT_NE(text.find("out of memory"), std::string::npos);
  const std::string before = "Tried to allocate ";
  ASSERT_NE(text.find(before), std::string::npos);
  std::istringstream after(text.substr(text.find(before) + before.size()));
  double number = 0.0;
  std::string unit;
  after >> number >> unit;
  EXPECT_EQ(number, 32.0) << "the segment's size, not the request's";
  EXPECT_EQ(unit, "MiB.") << "the number, one space, the unit";
}

TEST(OutOfMemoryText, SaysWhereAllMemoryIs) {
  EXPECT_EQ(
      format_out_of_memory(failed_request()),
      "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 1 has a total capacity of 96.00 MiB of which 26.00 "
      "MiB is free. cistern holds 64.00 MiB; 6.00 MiB is in use outside it. Of the allocated memory 40.00 MiB is "
      "allocated by cistern, and 24.00 MiB is reserved but unallocated (3.00 MiB freed but awaited by other "
      "streams, 11.00 MiB free in partly used segments, 10.00 MiB free in unused segments or pages; the largest free "
      "block has 9.00 MiB). Cause: the device is full: 32.00 MiB is needed and 26.00 MiB is free; 6.00 MiB is "
      "in use outside cistern.");
}

// As in PyTorch's message: what is free in private pools counts as allocated, and is named.
TEST(OutOfMemoryText, CountsPrivatePoolsAsPyTorchDoes) {
  OutOfMemoryReport report = failed_request();
  report.free_whole_bytes = 4 * kMega;
  report.private_pools_free_bytes = 6 * kMega;
  EXPECT_NE(format_out_of_memory(report).find(
                "Of the allocated memory 46.00 MiB is allocated by cistern, with 6.00 MiB of it free in private "
                "pools, and 18.00 MiB is reserved but unallocated"),
            std::string::npos);
}

// Whose own pool has it free, too: the request of another pool could not have had it.
TEST(OutOfMemoryText, CountsTheRequestsOwnPrivatePoolLikeTheOthers) {
  OutOfMemoryReport report = failed_request();
  report.own_pool_free_split_bytes = 5 * kMega;
  report.own_pool_free_whole_bytes = 2 * kMega;
  EXPECT_NE(format_out_of_memory(report).find(
                "Of the allocated memory 47.00 MiB is allocated by cistern, with 7.00 MiB of it free in private "
                "pools, and 17.00 MiB is reserved but unallocated (3.00 MiB freed but awaited by other streams, 6.00 "
                "MiB free in partly used segments, 8.00 MiB free in unused segments or pages"),
            std::string::npos)
      << format_out_of_memory(report);
}

TEST(OutOfMemoryText, ProcessesStandBetweenTheDeviceAndTheLimit) {
  OutOfMemoryReport report = failed_request();
  report.limit_bytes = 70 * kMega;
  EXPECT_NE(format_out_of_memory(report, "Process 7 has 1.00 MiB memory in use. ")
                .find("is free. Process 7 has 1.00 MiB memory in use. 70.00 MiB allowed; cistern holds"),
            std::string::npos);
}

// A text of fixed size: what does not fit is cut off, nothing else happens.
TEST(OutOfMemoryText, IsCutWhereItWouldNotFit) {
  const std::string long_list(5000, 'x');
  const auto text = format_out_of_memory(failed_request(), long_list);
  EXPECT_EQ(text.size(), text.capacity());
  EXPECT_EQ(std::string(text.c_str()).size(), text.capacity());
}

TEST(OutOfMemoryText, NamesTheLimitOnlyWhenOneIsSet) {
  OutOfMemoryReport report = failed_request();
  EXPECT_EQ(format_out_of_memory(report).find("allowed"), std::string::npos);
  report.limit_bytes = 70 * kMega;
  EXPECT_NE(format_out_of_memory(report).find("is free. 70.00 MiB allowed; cistern holds"), std::string::npos);
}

TEST(OutOfMemoryText, SaysTheCauseWithItsNumbers) {
  EXPECT_NE(
      text_of(OutOfMemoryCause::fragmented)
          .find("Cause: fragmentation: 26.00 MiB is free on the device and 21.00 MiB in cistern's segments, but no "
                "single piece holds the 30.00 MiB"),
      std::string::npos);
  OutOfMemoryReport limited = failed_request();
  limited.cause = OutOfMemoryCause::limit;
  limited.limit_bytes = 70 * kMega;
  EXPECT_NE(format_out_of_memory(limited).find("Cause: the limit: 64.00 MiB held and 32.00 MiB more would exceed the "
                                               "70.00 MiB allowed, although 26.00 MiB is free"),
            std::string::npos);
  EXPECT_NE(text_of(OutOfMemoryCause::pending_frees).find("Cause: pending frees: 3.00 MiB was freed"),
            std::string::npos);
  EXPECT_NE(text_of(OutOfMemoryCause::driver_refusal).find("Cause: the driver refused 32.00 MiB although"),
            std::string::npos);
  EXPECT_NE(text_of(OutOfMemoryCause::too_large).find("larger than the device: 30.00 MiB was asked for"),
            std::string::npos);
}

TEST(OutOfMemoryText, NothingReservedNeedsNoWhereabouts) {
  OutOfMemoryReport report;
  report.segment_bytes = 2 * kMega;
  EXPECT_NE(format_out_of_memory(report).find("and 0 bytes is reserved but unallocated. Cause"), std::string::npos);
}

TEST(OutOfMemoryText, AdviceIsTheReportsOrNone) {
  OutOfMemoryReport report = failed_request();
  for (const char* option : {"expandable_segments", "max_split_size", "garbage_collection", "PYTORCH"})
    EXPECT_EQ(format_out_of_memory(report).find(option), std::string::npos);
  const std::string without(format_out_of_memory(report));
  report.advice = "A larger fraction would allow it.";
  EXPECT_EQ(format_out_of_memory(report), without + " A larger fraction would allow it.");
}

}  // namespace
}  // namespace cistern
