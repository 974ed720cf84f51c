// Pages of the node that is nearest to a device.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "allocator/numa_preference.h"
#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

// The memory policy of the calling thread: its mode, and whether node 0 is its node.
std::optional<std::pair<int, bool>> thread_policy() {
  int mode = 0;
  std::array<unsigned long, 16> nodes{};
  if (::syscall(SYS_get_mempolicy, &mode, nodes.data(), 1024UL, nullptr, 0UL) != 0) return std::nullopt;
  return std::pair(mode, nodes[0] == 1);
}

TEST(NumaPreferenceTest, PagesComeFromTheDevicesNodeForAScope) {
  const auto before = thread_policy();
  if (!before) GTEST_SKIP() << "the kernel tells nothing of memory policies here";
  {
    const NumaPreference none(std::nullopt);
    EXPECT_EQ(thread_policy(), before);
    const NumaPreference preference(0);
    EXPECT_EQ(thread_policy(), std::pair(int{MPOL_PREFERRED}, true));
  }
  EXPECT_EQ(thread_policy(), before);
}

// The simulated driver, with a node of its own, which looks at the policy of the thread that allocates.
TEST(NumaPreferenceTest, TheDriverAllocatesUnderIt) {
  if (!thread_policy()) GTEST_SKIP() << "the kernel tells nothing of memory policies here";
  struct Watch {
    SimulatedDriver driver{{.capacity_bytes = 64 * kMega}};
    std::optional<std::pair<int, bool>> seen;
    int questions = 0;
  } watch;
  DriverApi api = watch.driver.api();
  api.device_get_attribute = {&watch, [](void* self, int* value, CUdevice_attribute attribute, CUdevice device) {
                                auto& of = *static_cast<Watch*>(self);
                                if (static_cast<int>(attribute) != 134)
                                  return of.driver.api().device_get_attribute(value, attribute, device);
                                ++of.questions;
                                *value = 0;
                                return CUDA_SUCCESS;
                              }};
  api.mem_host_alloc = {&watch, [](void* self, void** pointer, std::size_t bytes, unsigned flags) {
                          auto& of = *static_cast<Watch*>(self);
                          of.seen = thread_policy();
                          return of.driver.api().mem_host_alloc(pointer, bytes, flags);
                        }};
  CachingAllocator allocator({.driver = &api});
  static_cast<void>(allocator.allocate_host(kMega));
  static_cast<void>(allocator.allocate_host(4 * kMega));
  EXPECT_EQ(watch.seen, std::pair(int{MPOL_PREFERRED}, true));
  EXPECT_EQ(watch.questions, 1);
}

}  // namespace
}  // namespace cistern
