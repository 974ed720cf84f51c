#pragma once

// A heap of `classic` on two devices, with streams on the first; its audit holds at the end.

#include <cistern/allocator.h>
#include <cistern/options.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include "tests/byte_units.h"

namespace cistern {

class ClassicHeapCase : public ::testing::Test {
 protected:
  ~ClassicHeapCase() override { EXPECT_NO_THROW(allocator_.check()); }

  static CachingAllocatorOptions options(SimulatedDriver& driver) {
    return {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")};
  }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{options(driver_)};
  const StreamHandle stream_ = driver_.create_stream();
  const StreamHandle other_ = driver_.create_stream();
};

}  // namespace cistern
