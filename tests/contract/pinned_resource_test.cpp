// Page-locked memory for std::pmr: the contract as far as it is about the host's memory.

#include <cistern/cistern.h>
#include <cistern/integrations/pmr.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace cistern {
namespace {

TEST(PinnedMemoryResource, VectorsLieInPageLockedMemory) {
  PinnedMemoryResource pinned;
  {
    std::pmr::vector<int> values({1, 2, 3}, &pinned);
    EXPECT_TRUE(is_pinned(values.data()));
    EXPECT_EQ(pinned.live_blocks(), 1U);
    EXPECT_EQ(pinned.live_bytes(), 12U);
    std::array<int, 3> back{};
    DeviceBuffer<int> buffer(3);
    copy_async(buffer.data(), values.data(), 12);
    copy_async(back.data(), buffer.data(), 12);
    current_stream().synchronize();
    EXPECT_EQ(back, (std::array<int, 3>{1, 2, 3}));
  }
  EXPECT_EQ(pinned.live_bytes(), 0U);
}

TEST(PinnedMemoryResource, AStandardPoolOverItKeepsMemory) {
  PinnedMemoryResource pinned;
  {
    std::pmr::synchronized_pool_resource pool(&pinned);
    for (int i = 0; i < 100; ++i) pool.deallocate(pool.allocate(100), 100);
    EXPECT_LE(pinned.live_blocks(), 10U);
    EXPECT_GE(pinned.live_blocks(), 1U);
  }
  EXPECT_EQ(pinned.live_blocks(), 0U);
}

TEST(PinnedMemoryResource, AlignsUpToAPageAndRefusesMore) {
  PinnedMemoryResource pinned;
  for (const std::size_t alignment : {1, 64, 4096}) {
    void* const pointer = pinned.allocate(10, alignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % alignment, 0U);
    pinned.deallocate(pointer, 10, alignment);
  }
  EXPECT_THROW(static_cast<void>(pinned.allocate(10, std::size_t{1} << 30)), InvalidArgument);
  EXPECT_EQ(pinned.live_blocks(), 0U);
  void* const nothing = pinned.allocate(0, 1);
  EXPECT_NE(nothing, nullptr);
  EXPECT_EQ(pinned.live_bytes(), 0U);
  pinned.deallocate(nothing, 0, 1);
  EXPECT_EQ(pinned.live_blocks(), 0U);
}

TEST(PinnedMemoryResource, RefusesWhatIsNotItsOwn) {
  PinnedMemoryResource pinned, other;
  void* const pointer = pinned.allocate(1000);
  int foreign = 0;
  const auto said = [](PinnedMemoryResource& resource, void* freed, std::size_t bytes) {
    testing::internal::CaptureStderr();
    resource.deallocate(freed, bytes);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(pinned, &foreign, 4), "");
  EXPECT_NE(said(pinned, static_cast<char*>(pointer) + 8, 1000), "");
  EXPECT_NE(said(pinned, pointer, 999).find("asked for with 1000"), std::string::npos);
  EXPECT_NE(said(other, pointer, 1000), "");
  EXPECT_EQ(pinned.live_bytes(), 1000U);
  EXPECT_EQ(said(pinned, pointer, 1000), "");
  EXPECT_NE(said(pinned, pointer, 1000), "");
  EXPECT_FALSE(pinned.is_equal(other));
}

TEST(PinnedMemoryResource, SaysWhatIsLeftWhenItEnds) {
  testing::internal::CaptureStderr();
  void* pointer = nullptr;
  {
    PinnedMemoryResource pinned;
    pointer = pinned.allocate(100);
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("1 live blocks of 100 bytes"), std::string::npos);
  EXPECT_TRUE(is_pinned(pointer));
}

}  // namespace
}  // namespace cistern
