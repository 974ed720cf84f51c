// The functions for C: stories of C, each in a process of its own.

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/c_api/stories.h"

namespace {

class CApi : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=4GiB", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("NVTX_INJECTION64_PATH");
  }
};

TEST_F(CApi, SavesAndSetsRandomStates) { EXPECT_EQ(story_random_states(), 0); }
TEST_F(CApi, FillsWithRandomNumbers) { EXPECT_EQ(story_random_fills(), 0); }
TEST_F(CApi, MarksAndRanges) { EXPECT_EQ(story_nvtx(), 0); }
TEST_F(CApi, HasACublasHandleOrSaysWhyNot) { EXPECT_EQ(story_blas(), 0); }
TEST_F(CApi, HasPyTorchsOtherNames) { EXPECT_EQ(story_memory(), 0); }
TEST_F(CApi, ListsProcesses) { EXPECT_EQ(story_processes(), 0); }
TEST_F(CApi, BroadcastsTensors) { EXPECT_EQ(story_broadcasts(), 0); }
TEST_F(CApi, SumsCutsAndJoinsTensors) { EXPECT_EQ(story_sums_and_parts(), 0); }
TEST_F(CApi, HandsTensorsToDlpackAndBack) { EXPECT_EQ(story_tensors(), 0); }
TEST_F(CApi, TellsErrorsApart) { EXPECT_EQ(story_errors(), 0); }

}  // namespace
