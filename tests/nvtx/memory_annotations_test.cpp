// The allocator's blocks, as a tool sees them. Each case is a process: NVTX looks for a tool once.

#include <cistern/cistern.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/process_driver.h"
#include "tests/byte_units.h"
#include "tests/nvtx/tool.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string at(const void* pointer) { return std::to_string(reinterpret_cast<std::uintptr_t>(pointer)); }

class MemoryAnnotations : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "cuda", 1);
    setenv("CISTERN_LIBCUDA", CISTERN_FAKE_LIBCUDA, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
};

TEST_F(MemoryAnnotations, ABlockIsARegionOfItsSegment) {
  attach_tool(true);
  void* first = allocate(3 * kMega);
  void* second = allocate(2 * kMega);  // of the same 20 MiB
  EXPECT_THAT(told(), ElementsAre("cistern: heap " + at(first) + " 20971520",
                                  "cistern: region " + at(first) + " 3145728 in " + at(first),
                                  "cistern: region " + at(second) + " 2097152 in " + at(first)));
  deallocate(second);
  EXPECT_THAT(told(), ElementsAre("cistern: no region " + at(second)));
  void* again = allocate(2 * kMega);
  EXPECT_EQ(again, second);
  EXPECT_THAT(told(), ElementsAre("cistern: region " + at(again) + " 2097152 in " + at(first)));
  deallocate(again);
  deallocate(first);
  static_cast<void>(told());
  empty_cache();
  EXPECT_THAT(told(), ElementsAre("cistern: no heap " + at(first)));
}

TEST_F(MemoryAnnotations, ASegmentThatTakesTheOldPlaceIsANewHeap) {
  attach_tool(true);
  void* small = allocate(12 * kMega);
  deallocate(small);
  empty_cache();
  static_cast<void>(told());
  void* large = allocate(40 * kMega);
  EXPECT_EQ(large, small);
  EXPECT_THAT(told(), ElementsAre("cistern: heap " + at(large) + " 41943040",
                                  "cistern: region " + at(large) + " 41943040 in " + at(large)));
  deallocate(large);
}

TEST_F(MemoryAnnotations, WhatIsNoBlockIsNotTold) {
  attach_tool(true);
  void* block = allocate(3 * kMega);
  deallocate(block);
  static_cast<void>(told());
  ::testing::internal::CaptureStderr();
  deallocate(block);
  static_cast<void>(::testing::internal::GetCapturedStderr());
  EXPECT_THAT(told(), IsEmpty());
}

TEST_F(MemoryAnnotations, AreOffWhereNoToolFollowsThem) {
  attach_tool(false);
  deallocate(allocate(kMega));
  EXPECT_EQ(process_driver().note_allocate.function, nullptr);
  EXPECT_EQ(process_driver().note_free.function, nullptr);
  EXPECT_THAT(told(), IsEmpty());
}

TEST_F(MemoryAnnotations, AreOffWithoutATool) {
  unsetenv("NVTX_INJECTION64_PATH");
  deallocate(allocate(kMega));
  EXPECT_EQ(process_driver().note_allocate.function, nullptr);
  EXPECT_EQ(process_driver().note_free.function, nullptr);
}

}  // namespace
}  // namespace cistern
