#pragma once

// A heap of page-locked host memory on a simulated driver of two devices, with a stream of each.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>

#include "tests/byte_units.h"

namespace cistern {

class HostHeapTest : public ::testing::Test {
 protected:
  ~HostHeapTest() override { allocator_.check(); }
  [[nodiscard]] std::uint64_t driver_calls(std::string_view entry) const { return driver_.calls(entry); }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 512 * kMega}};
  CachingAllocator allocator_{{.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off")}};
  const StreamHandle copies_ = driver_.create_stream();
  const StreamHandle others_ = driver_.create_stream(1);
};

}  // namespace cistern
