#pragma once

// A stream that serves itself, whose blocks another one uses.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <cistern/stats.h>
#include <cistern/stream.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/stream_access.h"
#include "tests/byte_units.h"

namespace cistern {

// Under a policy.
class StreamWaitsTest : public ::testing::TestWithParam<const char*> {
 protected:
  StreamWaitsTest() {
    for (int i = 0; i < 4; ++i) turn(allocator_, kKibi);
    allocator_.reset_accumulated_memory_stats();
    allocator_.reset_peak_memory_stats();
  }

  [[nodiscard]] Stream wrapped(StreamHandle handle) {
    StreamIdentity identity{handle, 0};
    unsigned long long id = 0;
    EXPECT_EQ(driver_.api().stream_get_id(handle, &id), CUDA_SUCCESS);
    identity.id = id;
    return StreamAccess::wrap(driver_.api(), identity, 0, std::make_shared<int>());
  }
  // A block that the reader uses is freed.
  void free_behind(CachingAllocator& allocator, void* block, const Stream& reader) {
    allocator.record_stream(block, reader);
    allocator.deallocate(block);
  }
  void* turn(CachingAllocator& allocator, std::size_t bytes, const Stream& owner) {
    void* block = allocator.allocate(bytes, owner);
    free_behind(allocator, block, reader_);
    return block;
  }
  void* turn(CachingAllocator& allocator, std::size_t bytes) { return turn(allocator, bytes, owner_); }
  [[nodiscard]] std::map<std::string, std::uint64_t> calls_of(const std::function<void()>& work) const {
    const auto before = driver_.calls_by_name();
    work();
    auto calls = driver_.calls_by_name();
    for (const auto& [entry, count] : before) calls[entry] -= count;
    std::erase_if(calls, [](const auto& each) { return each.second == 0; });
    return calls;
  }
  [[nodiscard]] MemoryStats stats() const { return allocator_.memory_stats(); }

  SimulatedDriver driver_{{.capacity_bytes = 1024 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse(std::string("oom_dump:off,policy:") + GetParam())}};
  const StreamHandle owner_handle_ = driver_.create_stream();
  const StreamHandle reader_handle_ = driver_.create_stream();
  const StreamHandle other_handle_ = driver_.create_stream();
  const Stream owner_ = wrapped(owner_handle_);
  const Stream reader_ = wrapped(reader_handle_);
  const Stream other_ = wrapped(other_handle_);
};

// In paged memory streams take each other's bytes, too, and requests what waits: not here.
inline const auto kEachPolicy = ::testing::Values("classic", "expandable", "paged,stream_hand_over:never");

[[nodiscard]] inline std::string name_of_policy(const ::testing::TestParamInfo<const char*>& info) {
  const std::string options = info.param;
  return options.substr(0, options.find(','));
}

}  // namespace cistern
