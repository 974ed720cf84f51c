#include "runtime/simulated/handle_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace cistern::simulated {
namespace {

TEST(HandleTable, DestroyedHandleStaysUnknownWhenItsSlotIsUsedAgain) {
  HandleTable<int> table(HandleKind::event, 1, HandleReuse::never);
  int* object = nullptr;
  const std::uint64_t first = table.insert(&object);
  table.erase(first);
  const std::uint64_t second = table.insert(&object);
  EXPECT_NE(first, second);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_EQ(table.find(second), object);
}

TEST(HandleTable, ReusedHandleMeansANewObject) {
  HandleTable<int> table(HandleKind::stream, 1, HandleReuse::soon);
  int* object = nullptr;
  const std::uint64_t first = table.insert(&object);
  *object = 7;
  table.erase(first);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_EQ(table.insert(&object), first);
  EXPECT_EQ(*object, 0);
}

TEST(HandleTable, HandlesOfOtherDriversKindsAndNobodyAreUnknown) {
  HandleTable<int> events(HandleKind::event, 1, HandleReuse::never);
  HandleTable<int> others(HandleKind::event, 2, HandleReuse::never);
  HandleTable<int> streams(HandleKind::stream, 1, HandleReuse::never);
  int* object = nullptr;
  const std::uint64_t handle = events.insert(&object);
  (void)others.insert(&object);
  (void)streams.insert(&object);
  EXPECT_EQ(others.find(handle), nullptr);
  EXPECT_EQ(streams.find(handle), nullptr);
  EXPECT_EQ(events.find(0), nullptr);
  EXPECT_EQ(events.find(~std::uint64_t{0}), nullptr);
}

TEST(HandleTable, ObjectsKeepTheirPlaceWhileTheTableGrows) {
  HandleTable<int> table(HandleKind::event, 1, HandleReuse::never);
  std::vector<std::pair<std::uint64_t, int*>> objects;
  for (int i = 0; i < 2000; ++i) {
    int* object = nullptr;
    const std::uint64_t handle = table.insert(&object);
    *object = i;
    objects.emplace_back(handle, object);
  }
  EXPECT_EQ(table.size(), 2000u);
  for (int i = 0; i < 2000; ++i) {
    const auto& [handle, object] = objects[static_cast<std::size_t>(i)];
    EXPECT_EQ(table.find(handle), object);
    EXPECT_EQ(*object, i);
  }
}

// Who reads JSON's numbers as doubles, as PyTorch's viewer does, sees each handle as itself.
TEST(HandleTable, HandlesAreExactAsDoublesAndBeyondAddresses) {
  constexpr std::uint64_t kExact = std::uint64_t{1} << 53;
  constexpr std::uint64_t kAddresses = std::uint64_t{1} << 48;
  EXPECT_LT(make_handle(HandleKind::user_object, 0xffff, 0xffff, (1U << kSlotBits) - 1), kExact);
  EXPECT_GE(make_handle(HandleKind::context, 0, 0, 0), kAddresses);
}

}  // namespace
}  // namespace cistern::simulated
