// Scopes, tags, budgets and the figures around them on the process's own heap.

#include <cistern/cistern.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/byte_units.h"

namespace cistern {
namespace {

class ProcessScopes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB", 1);
    setenv("CISTERN_ALLOC_CONF", "policy:classic", 1);
  }
};

TEST_F(ProcessScopes, BeforeTheFirstUseThereIsNothingAndNothingIsMade) {
  ASSERT_EQ(tag_stats().size(), 1U);
  EXPECT_EQ(tag_stats()[0].allocated_bytes, Stat{});
  EXPECT_TRUE(stream_stats().empty());
  EXPECT_FALSE(oldest_pending_free());
  EXPECT_EQ(fragmentation_stats(512).free_bytes, 0U);
  EXPECT_FALSE(is_initialized());
}

TEST_F(ProcessScopes, AScopeIsOfTheDeviceThatWasCurrent) {
  PeakScope scope;
  const PeakScope all = PeakScope::of_all_devices();
  {
    const DeviceGuard guard(1);
    deallocate(allocate(3 * kMega));
    EXPECT_EQ(scope.peak_bytes(), 0) << "it stays with its device";
    EXPECT_EQ(all.peak_bytes(), 3 * kSignedMega) << "one of all devices shows the current one";
  }
  void* block = allocate(2 * kMega);
  scope.stop();
  deallocate(block);
  EXPECT_EQ(scope.stats().allocated_bytes.all, (Stat{2 * kSignedMega, 2 * kSignedMega, 2 * kSignedMega, 0}));
  EXPECT_EQ(all.stats(0).allocation.all.freed, 1);
  EXPECT_THROW(PeakScope(7), InvalidArgument);
}

TEST_F(ProcessScopes, TagsAndBudgetsWorkOnTheFreeFunctions) {
  BudgetOptions options;
  options.tag = "cache";
  options.hard_bytes = 4 * kMega;
  const Budget budget(options);
  {
    const TagScope scope("cache");
    static_cast<void>(allocate(3 * kMega));
    EXPECT_THROW(static_cast<void>(allocate(2 * kMega)), OutOfMemoryError);
  }
  ASSERT_EQ(tag_stats(0).size(), 2U);
  EXPECT_EQ(tag_stats(0)[1].tag, "cache");
  EXPECT_EQ(tag_stats(0)[1].allocated_bytes.current, 3 * kSignedMega);
  EXPECT_EQ(fragmentation_stats(4 * kMega).usable_bytes, 17 * kMega);
  EXPECT_EQ(stream_stats().at(0).live_bytes, 3 * kSignedMega);
  EXPECT_EQ(device_memory_stats().outside, 0U);
  EXPECT_NE(memory_report().find("Owners by tag, of 3.00 MiB in callers' blocks:\n  cache "), std::string::npos)
      << memory_report();
}

TEST_F(ProcessScopes, AForkedChildReadsTagsAndIsToldThatAScopeIsNotItsOwn) {
  const PeakScope scope;
  PeakScope stopped;
  stopped.stop();
  {
    const TagScope tag("inherited");
    static_cast<void>(allocate(2 * kMega));
  }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool refused = false;
    try {
      static_cast<void>(scope.stats());
    } catch (const NotSupported&) {
      refused = true;
    }
    const TagScope tag("the child's");
    _exit(refused && tag_stats(0).at(1).tag == "inherited" && stopped.stats().allocation.all.allocated == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(scope.stats().allocation.all.allocated, 1);
}

}  // namespace
}  // namespace cistern
