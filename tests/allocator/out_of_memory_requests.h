#pragma once

// A small device whose allocator is asked for more than it has, and what its reports must add up to.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "tests/byte_units.h"

namespace cistern {

class FailingRequests : public ::testing::Test {
 protected:
  OutOfMemoryReport failing_request(std::size_t bytes) {
    try {
      static_cast<void>(allocator_.allocate(bytes));
    } catch (const OutOfMemoryError& error) {
      text_ = error.what();
      return error.report();
    }
    ADD_FAILURE() << bytes << " bytes were served";
    return {};
  }

  SimulatedDriver driver_{{.capacity_bytes = 128 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
  std::string text_;
};

inline void expect_sum(const OutOfMemoryReport& report) {
  EXPECT_TRUE(report.has_device_figures);
  EXPECT_EQ(report.device_total_bytes, report.device_free_bytes + report.outside_bytes + report.reserved_bytes);
  EXPECT_EQ(report.reserved_bytes,
            report.allocated_bytes + report.pending_free_bytes + report.free_split_bytes + report.free_whole_bytes);
}

}  // namespace cistern
