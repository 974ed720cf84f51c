// Marks and ranges. Each case is a process: NVTX looks for a tool once.

#include <cistern/error.h>
#include <cistern/nvtx.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "tests/nvtx/tool.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Nvtx, TellsAToolOfMarksAndRanges) {
  attach_tool();
  nvtx::mark("start");
  EXPECT_EQ(nvtx::range_push("outer"), 0);
  EXPECT_EQ(nvtx::range_push("inner"), 1);
  EXPECT_EQ(nvtx::range_pop(), 1);
  EXPECT_EQ(nvtx::range_pop(), 0);
  EXPECT_THAT(told(), ElementsAre("mark start", "push outer", "push inner", "pop", "pop"));
}

TEST(Nvtx, DepthsAreTheSameWithoutATool) {
  unsetenv("NVTX_INJECTION64_PATH");
  nvtx::mark("nobody hears it");
  EXPECT_EQ(nvtx::range_push("outer"), 0);
  EXPECT_EQ(nvtx::range_push("inner"), 1);
  EXPECT_EQ(nvtx::range_pop(), 1);
  EXPECT_EQ(nvtx::range_push("inner again"), 1);
  EXPECT_EQ(nvtx::range_pop(), 1);
  EXPECT_EQ(nvtx::range_pop(), 0);
  EXPECT_EQ(nvtx::range_pop(), -1);
  const nvtx::Domain domain("nobody's");
  domain.mark("nobody hears it");
  EXPECT_EQ(domain.range_push("first"), 0);
  EXPECT_EQ(domain.range_pop(), 0);
  EXPECT_EQ(domain.range_pop(), -1);
}

TEST(Nvtx, EndsNoRangeThatItDidNotBegin) {
  attach_tool();
  EXPECT_EQ(nvtx::range_pop(), -1);
  const nvtx::Domain domain("lib");
  EXPECT_EQ(domain.range_pop(), -1);
  EXPECT_THAT(told(), IsEmpty());
}

TEST(Nvtx, RangesAreAThreadsOwn) {
  attach_tool();
  nvtx::range_push("here");
  const nvtx::Domain domain("lib");
  domain.range_push("here");
  std::thread([&] {
    EXPECT_EQ(nvtx::range_pop(), -1);
    EXPECT_EQ(nvtx::range_push("there"), 0);
    EXPECT_EQ(domain.range_pop(), -1);
    EXPECT_EQ(domain.range_push("there"), 0);
  }).join();
  EXPECT_EQ(nvtx::range_pop(), 0);
  EXPECT_EQ(domain.range_pop(), 0);
}

TEST(Nvtx, AScopedRangeEndsOnExceptionsToo) {
  attach_tool();
  try {
    const nvtx::ScopedRange outer("outer");
    const nvtx::ScopedRange inner("inner");
    throw InvalidArgument("out of both");
  } catch (const InvalidArgument&) {
  }
  EXPECT_EQ(nvtx::range_push("next"), 0);
  EXPECT_THAT(told(), ElementsAre("push outer", "push inner", "pop", "pop", "push next"));
}

TEST(Nvtx, DomainsHaveRangesOfTheirOwn) {
  attach_tool();
  {
    const nvtx::Domain domain("lib");
    const nvtx::Domain other("other");
    domain.mark("m");
    EXPECT_EQ(domain.range_push("a"), 0);
    EXPECT_EQ(nvtx::range_push("plain"), 0);
    EXPECT_EQ(other.range_push("b"), 0);
    EXPECT_EQ(domain.range_push("c"), 1);
    EXPECT_EQ(domain.range_pop(), 1);
    EXPECT_EQ(other.range_pop(), 0);
    EXPECT_EQ(nvtx::range_pop(), 0);
    EXPECT_EQ(domain.range_pop(), 0);
  }
  EXPECT_THAT(told(), ElementsAre("lib: mark m", "lib: push a", "push plain", "other: push b", "lib: push c",
                                  "lib: pop", "other: pop", "pop", "lib: pop", "other: destroyed", "lib: destroyed"));
}

TEST(Nvtx, OtherBytesAreHandedOnAndNullIsEmpty) {
  attach_tool();
  nvtx::mark("gr\xc3\xbc\xc3\x9f \xff");
  nvtx::mark(nullptr);
  nvtx::mark("");
  EXPECT_THAT(told(), ElementsAre("mark gr\xc3\xbc\xc3\x9f \xff", "mark ", "mark "));
}

using NvtxStreams = ProcessDevice;

TEST_F(NvtxStreams, HaveNames) {
  attach_tool();
  const Stream stream = Stream::create();
  nvtx::name_stream(stream, "copies");
  const std::string handle = std::to_string(reinterpret_cast<std::uintptr_t>(stream.native_handle()));
  EXPECT_THAT(told(), ElementsAre("stream " + handle + " copies"));
  EXPECT_THROW(nvtx::name_stream(Stream::null(), "legacy"), InvalidArgument);
  EXPECT_THROW(nvtx::name_stream(Stream::per_thread(), "own"), InvalidArgument);
}

}  // namespace
}  // namespace cistern
