// What an error says of free blocks that are large enough and do not serve.

#include "tests/allocator/out_of_memory_requests.h"

namespace cistern {
namespace {

using UnusableBlockTest = FailingRequests;

// Enough is free in one piece, and the report says why it does not serve: not that there is none.
TEST_F(UnusableBlockTest, AFreeBlockThatIsLargeEnoughIsNamedWithWhatKeepsItAway) {
  const StreamHandle side = driver_.create_stream();
  static_cast<void>(allocator_.allocate(30 * kMega, side));
  void* first = allocator_.allocate(90 * kMega, side);
  allocator_.deallocate(first);
  static_cast<void>(allocator_.allocate(2 * kMega, side));  // keeps the segment
  const OutOfMemoryReport report = failing_request(60 * kMega);
  EXPECT_EQ(report.cause, OutOfMemoryCause::fragmented);
  ASSERT_TRUE(report.unusable);
  EXPECT_EQ(report.unusable->reason, UnusableBlock::Reason::other_stream);
  EXPECT_EQ(report.unusable->bytes, 88 * kMega);
  EXPECT_NE(text_.find("it has 88.00 MiB, but it belongs to another stream"), std::string::npos) << text_;
  EXPECT_NE(report.advice.find("expandable_segments:True"), std::string::npos) << text_;
}

TEST_F(UnusableBlockTest, AFreeBlockOfAnotherSizeClassIsNamed) {
  void* first = allocator_.allocate(128 * kMega);
  allocator_.deallocate(first);
  static_cast<void>(allocator_.allocate(100 * kMega));
  const OutOfMemoryReport report = failing_request(600 * 1024);
  EXPECT_EQ(report.cause, OutOfMemoryCause::fragmented);
  ASSERT_TRUE(report.unusable);
  EXPECT_EQ(report.unusable->reason, UnusableBlock::Reason::other_size);
  EXPECT_EQ(report.unusable->bytes, 28 * kMega);
  EXPECT_EQ(report.advice, "");
}

// While something is captured, for nothing is given back then; pages, for oversize segments are.
TEST_F(UnusableBlockTest, AFreeBlockThatIsKeptWholeIsNamedBeforeOthers) {
  CachingAllocator allocator(
      {.driver = &driver_.api(),
       .options = AllocatorOptions::parse("oom_dump:off,expandable_segments:True,max_split_size_mb:40")});
  void* whole = allocator.allocate(60 * kMega);
  static_cast<void>(allocator.allocate(60 * kMega));
  const StreamHandle captured = driver_.create_stream();
  allocator.begin_allocate_to_pool(0, {77, 0}, PoolFilter::stream(captured));
  allocator.deallocate(whole);
  try {
    static_cast<void>(allocator.allocate(32 * kMega));
    ADD_FAILURE() << "served";
  } catch (const OutOfMemoryError& error) {
    ASSERT_TRUE(error.report().unusable) << error.what();
    EXPECT_EQ(error.report().unusable->reason, UnusableBlock::Reason::kept_whole) << error.what();
    EXPECT_EQ(error.report().unusable->bytes, 60 * kMega);
  }
  allocator.end_allocate_to_pool(0, {77, 0});
}

// Once the option is off, expandable segments stay but serve nobody: no flush and no other search would help.
TEST_F(UnusableBlockTest, AFreeBlockOfAnExpandableSegmentIsNamedWhileTheOptionIsOff) {
  CachingAllocator allocator(
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,expandable_segments:True")});
  static_cast<void>(allocator.allocate(12 * kMega));
  allocator.set_options("oom_dump:off,expandable_segments:False");
  static_cast<void>(allocator.allocate(104 * kMega));
  try {
    static_cast<void>(allocator.allocate(6 * kMega));
    ADD_FAILURE() << "served";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.report().cause, OutOfMemoryCause::fragmented) << error.what();
    ASSERT_TRUE(error.report().unusable) << error.what();
    EXPECT_EQ(error.report().unusable->reason, UnusableBlock::Reason::expandable_off) << error.what();
    EXPECT_EQ(error.report().unusable->bytes, 8 * kMega);
    EXPECT_EQ(error.report().advice.find("research_after_flush"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace cistern
