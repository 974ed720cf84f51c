// Budgets: what is refused, who is told, and that nothing else changes.

#include <cistern/allocator.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/byte_units.h"

namespace cistern {
namespace {

class BudgetTest : public ::testing::Test {
 protected:
  ~BudgetTest() override { EXPECT_NO_THROW(allocator_.check()); }

  Budget hard(const std::string& tag, std::size_t bytes) {
    BudgetOptions options;
    options.tag = tag;
    options.hard_bytes = bytes;
    return Budget(allocator_, options);
  }
  // Its crossings are put into crossings_.
  Budget soft(const std::string& tag, std::size_t bytes) {
    BudgetOptions options;
    options.tag = tag;
    options.soft_bytes = bytes;
    options.on_soft = [this](const BudgetCrossing& crossing) { crossings_.push_back(crossing); };
    return Budget(allocator_, options);
  }
  void* allocate(const char* tag, std::size_t bytes) {
    const TagScope scope(tag);
    return allocator_.allocate(bytes);
  }
  OutOfMemoryReport refused(const char* tag, std::size_t bytes) {
    try {
      static_cast<void>(allocate(tag, bytes));
    } catch (const OutOfMemoryError& error) {
      text_ = error.what();
      return error.report();
    }
    ADD_FAILURE() << bytes << " bytes were served";
    return {};
  }

  SimulatedDriver driver_{{.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
  std::vector<BudgetCrossing> crossings_;
  std::string text_;
};

TEST_F(BudgetTest, AHardLimitRefusesWhatWouldPassItAndNamesTheNumbers) {
  const Budget budget = hard("cache", 8 * kMega);
  static_cast<void>(allocate("cache", 6 * kMega));
  const OutOfMemoryReport report = refused("cache", 3 * kMega);
  EXPECT_EQ(report.cause, OutOfMemoryCause::limit);
  ASSERT_TRUE(report.budget);
  EXPECT_EQ(report.budget->tag, "cache");
  EXPECT_EQ(report.budget->hard_bytes, 8 * kMega);
  EXPECT_EQ(report.budget->live_bytes, 6 * kMega);
  EXPECT_EQ(report.budget->block_bytes, 3 * kMega);
  EXPECT_EQ(report.requested_bytes, 3 * kMega);
  EXPECT_NE(text_.find("out of memory"), std::string::npos) << text_;
  EXPECT_NE(text_.find("Tried to allocate 3.00 MiB. "), std::string::npos) << text_;
  EXPECT_NE(text_.find("Cause: the budget of tag 'cache': 6.00 MiB live and 3.00 MiB more would exceed the 8.00 MiB "
                       "allowed."),
            std::string::npos)
      << text_;
  EXPECT_NE(allocate("cache", 2 * kMega), nullptr) << "up to the limit";
  EXPECT_NE(allocate("other", 30 * kMega), nullptr) << "others are not concerned";
}

TEST_F(BudgetTest, ARefusalCountsAndReleasesNothing) {
  const Budget budget = hard("cache", 8 * kMega);
  allocator_.deallocate(allocate("other", 30 * kMega));
  int told = 0;
  allocator_.add_out_of_memory_observer([&](const OutOfMemoryReport&) { ++told; });
  const MemoryStats before = allocator_.memory_stats();
  const std::uint64_t used = driver_.used_bytes();
  refused("cache", 9 * kMega);
  refused("cache", 40 * kMega);
  EXPECT_EQ(allocator_.memory_stats(), before);
  EXPECT_EQ(driver_.used_bytes(), used);
  EXPECT_EQ(told, 0);
}

TEST_F(BudgetTest, WhatIsFreedMayBeUsedAgain) {
  const Budget budget = hard("cache", 8 * kMega);
  void* block = allocate("cache", 8 * kMega);
  refused("cache", 512);
  allocator_.deallocate(block);
  EXPECT_NE(allocate("cache", 8 * kMega), nullptr);
}

TEST_F(BudgetTest, ABudgetWithoutATagIsTheDevices) {
  const Budget budget = hard("", 8 * kMega);
  static_cast<void>(allocate("one", 4 * kMega));
  static_cast<void>(allocator_.allocate(3 * kMega));
  EXPECT_EQ(refused("another", 2 * kMega).budget->live_bytes, 7 * kMega);
  EXPECT_NE(text_.find("the budget of the device: "), std::string::npos) << text_;
  EXPECT_NE(allocator_.allocate(30 * kMega, nullptr, 1), nullptr) << "of one device only";
}

// 10.5 MiB would be served by a segment of 12 MiB, of which the rest is too small to be split off.
TEST_F(BudgetTest, TheWholeBlockCountsWhereTheRestIsNotSplitOff) {
  const Budget budget = hard("cache", 11 * kMega);
  const std::size_t bytes = 11 * kMega + kMega / 2;
  EXPECT_EQ(refused("cache", bytes).budget->block_bytes, 12 * kMega);
  EXPECT_EQ(driver_.used_bytes(), 0U);
  allocator_.deallocate(allocate("other", 12 * kMega));
  const MemoryStats before = allocator_.memory_stats();
  EXPECT_EQ(refused("cache", 11 * kMega).budget->block_bytes, 12 * kMega) << "the cached block";
  EXPECT_EQ(allocator_.memory_stats(), before);
  EXPECT_NE(allocate("other", 12 * kMega), nullptr) << "it went back";
}

TEST_F(BudgetTest, ABudgetThatEndedLimitsNobody) {
  {
    const Budget budget = hard("cache", kMega);
    refused("cache", 2 * kMega);
  }
  EXPECT_NE(allocate("cache", 2 * kMega), nullptr);
  std::optional<Budget> first(hard("cache", kMega));
  const Budget second = std::move(*first);
  first.reset();
  refused("cache", 2 * kMega);
}

TEST_F(BudgetTest, SeveralAreJudgedEach) {
  const Budget loose = hard("cache", 100 * kMega);
  const Budget tight = hard("cache", 4 * kMega);
  const Budget all = hard("", 10 * kMega);
  EXPECT_EQ(refused("cache", 5 * kMega).budget->hard_bytes, 4 * kMega);
  static_cast<void>(allocate("other", 8 * kMega));
  EXPECT_EQ(refused("cache", 3 * kMega).budget->tag, "");
}

TEST_F(BudgetTest, MemoryPoolsAreWithinTheBudgetToo) {
  const MemPool pool(allocator_, {.no_split = true});
  const Budget budget = hard("cache", 4 * kMega);
  const TagScope scope("cache");
  EXPECT_THROW(static_cast<void>(pool.allocate(3 * kMega)), OutOfMemoryError) << "a block is a whole segment there";
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

TEST_F(BudgetTest, ASoftLimitIsToldOncePerCrossing) {
  const Budget budget = soft("cache", 4 * kMega);
  void* first = allocate("cache", 4 * kMega);
  EXPECT_TRUE(crossings_.empty()) << "at the limit, not above it";
  void* second = allocate("cache", 2 * kMega);
  static_cast<void>(allocate("cache", 2 * kMega));
  ASSERT_EQ(crossings_.size(), 1U);
  EXPECT_EQ(crossings_[0].tag, "cache");
  EXPECT_EQ(crossings_[0].device, 0);
  EXPECT_EQ(crossings_[0].soft_bytes, 4 * kMega);
  EXPECT_EQ(crossings_[0].live_bytes, 6 * kMega);
  EXPECT_EQ(crossings_[0].allocated_bytes, 2 * kMega);
  allocator_.deallocate(first);
  static_cast<void>(allocate("other", 30 * kMega));
  EXPECT_EQ(crossings_.size(), 1U);
  allocator_.deallocate(second);
  static_cast<void>(allocate("cache", 3 * kMega));
  EXPECT_EQ(crossings_.size(), 2U) << "it was left in between";
}

TEST_F(BudgetTest, ACallbackMayAllocateFreeAndThrow) {
  void* cached = nullptr;
  BudgetOptions options;
  options.tag = "cache";
  options.soft_bytes = 4 * kMega;
  options.on_soft = [&](const BudgetCrossing&) {
    static_cast<void>(allocator_.allocate(512));
    allocator_.check();
    allocator_.deallocate(cached);
    throw std::runtime_error("nobody hears this");
  };
  const Budget budget(allocator_, options);
  cached = allocate("cache", 3 * kMega);
  EXPECT_NE(allocate("cache", 3 * kMega), nullptr);
  EXPECT_EQ(allocator_.memory_stats().allocation.all.current, 2);
}

TEST_F(BudgetTest, TheBudgetMayEndInItsOwnCallback) {
  std::optional<Budget> budget;
  BudgetOptions options;
  options.soft_bytes = kMega;
  int told = 0;
  options.on_soft = [&](const BudgetCrossing&) {
    ++told;
    budget.reset();
  };
  budget.emplace(allocator_, options);
  const Budget after = soft("", kMega);
  static_cast<void>(allocator_.allocate(2 * kMega));
  EXPECT_EQ(told, 1);
  EXPECT_EQ(crossings_.size(), 1U) << "the next one is told all the same";
  static_cast<void>(allocator_.allocate(2 * kMega));
  EXPECT_EQ(told, 1);
}

TEST_F(BudgetTest, LimitsThatMakeNoSenseAreRefused) {
  BudgetOptions options;
  EXPECT_THROW(Budget(allocator_, options), InvalidArgument) << "no limit";
  options.soft_bytes = 10;
  EXPECT_THROW(Budget(allocator_, options), InvalidArgument) << "no callback";
  options.on_soft = [](const BudgetCrossing&) {};
  options.hard_bytes = 9;
  EXPECT_THROW(Budget(allocator_, options), InvalidArgument) << "hard below soft";
  options.soft_bytes = kUnlimited;
  EXPECT_THROW(Budget(allocator_, options), InvalidArgument) << "a callback for nothing";
  options.on_soft = nullptr;
  options.tag = "two\nlines";
  EXPECT_THROW(Budget(allocator_, options), InvalidArgument);
  options.tag = "cache";
  options.device = 2;
  EXPECT_THROW(Budget(allocator_, options), InvalidArgument);
}

TEST_F(BudgetTest, ItMayOutliveTheAllocator) {
  std::optional<CachingAllocator> allocator(std::in_place, CachingAllocatorOptions{.driver = &driver_.api()});
  BudgetOptions options;
  options.hard_bytes = kMega;
  const Budget budget(*allocator, options);
  allocator.reset();
}

// However threads meet, what is live never passes the limit.
TEST_F(BudgetTest, ThreadsTogetherStayWithinIt) {
  const Budget budget = hard("cache", 8 * kMega);
  std::atomic<int> refusals{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const TagScope scope("cache");
      for (int i = 0; i < 200; ++i) {
        try {
          allocator_.deallocate(allocator_.allocate(3 * kMega));
        } catch (const OutOfMemoryError&) {
          ++refusals;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const TagStats& stats : allocator_.tag_stats())
    if (stats.tag == "cache") {
      EXPECT_LE(stats.allocated_bytes.peak, static_cast<std::int64_t>(8 * kMega));
      EXPECT_EQ(stats.allocation.allocated + refusals, 800);
    }
}

}  // namespace
}  // namespace cistern
