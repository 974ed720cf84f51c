// The process list where CUDA is the driver: NVML's, in a process of its own that loads libraries
// which look like the driver and like NVML.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/ipc/peer_process.h"

namespace cistern::testing {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

class NvmlProcesses : public ::testing::Test {
 protected:
  NvmlProcesses() {
    set("CISTERN_DEVICE", "cuda");
    set("CISTERN_LIBCUDA", CISTERN_SIMULATED_LIBCUDA);
    set("CISTERN_SIMULATED", "capacity=256MiB");
    set("CISTERN_LIBNVML", CISTERN_FAKE_NVML);
  }
  void set(const std::string& variable, const std::string& value) {
    EXPECT_EQ(peer.ask("set " + variable + " " + value), "ok");
  }
  // The text of list_gpu_processes there, with '|' for the ends of its lines.
  std::string list() { return peer.ask("processes"); }

  PeerProcess peer{PeerProcess::Kind::library, "capacity=256MiB"};
};

TEST_F(NvmlProcesses, AreListedByTheirNumbersWithTheirMemory) {
  set("CISTERN_FAKE_NVML_PROCESSES", "2");
  EXPECT_EQ(list(),
            "GPU:0|process       1000 uses     1000.000 MB GPU memory"
            "|process       1001 uses      unknown MB GPU memory")
      << "NVML does not know the second one's";
}

TEST_F(NvmlProcesses, AreAllListedThoughMoreComeWhileTheyAreAskedFor) {
  set("CISTERN_FAKE_NVML_PROCESSES", "200");
  const std::string text = list();
  EXPECT_THAT(text, StartsWith("GPU:0|process       1000 uses     1000.000 MB GPU memory|process       1001 "));
  EXPECT_THAT(text, EndsWith("|process       1200 uses      unknown MB GPU memory"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '|'), 201);
}

TEST_F(NvmlProcesses, NoneAreSaidToBeNone) { EXPECT_EQ(list(), "GPU:0|no processes are running"); }

TEST_F(NvmlProcesses, WhereNvmlDoesNotLoadTheTextSaysSo) {
  set("CISTERN_LIBNVML", "/nonexistent/libnvidia-ml.so.1");
  EXPECT_THAT(list(), StartsWith("GPU:0|its processes are not known: NVML cannot be loaded: "
                                 "/nonexistent/libnvidia-ml.so.1: cannot open shared object file"));
}

TEST_F(NvmlProcesses, WhatIsNotNvmlIsNamedByWhatItLacks) {
  set("CISTERN_LIBNVML", CISTERN_SIMULATED_LIBCUDA);
  EXPECT_EQ(list(), "GPU:0|its processes are not known: NVML has no nvmlInit_v2");
}

TEST_F(NvmlProcesses, AnNvmlThatRefusesToStartIsAskedAgainTheNextTime) {
  set("CISTERN_FAKE_NVML_INIT", "9");
  EXPECT_EQ(list(), "GPU:0|its processes are not known: nvmlInit: Driver Not Loaded");
  set("CISTERN_FAKE_NVML_INIT", "0");
  EXPECT_EQ(list(), "GPU:0|no processes are running");
}

}  // namespace
}  // namespace cistern::testing
