// The functions for C: stories of C, each in a process of its own.

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/c_api/stories.h"

namespace {

class CApi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=4GiB", 1);
    setenv("CISTERN_ALLOC_CONF", "oom_dump:off,policy:classic", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("NVTX_INJECTION64_PATH");
  }
};

TEST_F(CApi, TellsItsVersions) { EXPECT_EQ(story_versions(), 0); }
TEST_F(CApi, ReadsAndWritesStructsOfOtherVersions) { EXPECT_EQ(story_sizes_of_structs(), 0); }
TEST_F(CApi, HasDevices) { EXPECT_EQ(story_devices(), 0); }
TEST_F(CApi, HasStreamsEventsAndCopies) { EXPECT_EQ(story_streams_and_events(), 0); }
TEST_F(CApi, AllocatesAndFreesAndRefusesWhatIsWrong) { EXPECT_EQ(story_blocks(), 0); }
TEST_F(CApi, ReportsOutOfMemoryToCallerAndObservers) { EXPECT_EQ(story_out_of_memory(), 0); }
TEST_F(CApi, HasPools) { EXPECT_EQ(story_pools(), 0); }
TEST_F(CApi, SendsMemoryToOtherProcesses) { EXPECT_EQ(story_sent_memory(), 0); }
TEST_F(CApi, SharesMemoryAsDescriptors) { EXPECT_EQ(story_shared_descriptors(), 0); }
TEST_F(CApi, HasStatistics) { EXPECT_EQ(story_statistics(), 0); }
TEST_F(CApi, HasScopesTagsAndBudgets) { EXPECT_EQ(story_scopes(), 0); }
TEST_F(CApi, SendsSnapshotsToFilesAndCallbacks) { EXPECT_EQ(story_snapshots(), 0); }
TEST_F(CApi, IsUsedWithoutExceptions) { EXPECT_EQ(story_without_exceptions(), 0); }
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
