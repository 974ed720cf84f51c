// Owners and allocators of C++ beside the suite: what is theirs alone.

#include <cistern/cistern.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace cistern {
namespace {

TEST(DeviceUniquePtr, IsAsLargeAsAPointerAndFreesOnItsStream) {
  static_assert(sizeof(DeviceUniquePtr<float[]>) == sizeof(void*));
  const Stream stream = Stream::create({0});
  {
    const DeviceUniquePtr<double> one = make_device_unique<double>(stream);
    auto many = make_device_unique<float[]>(250, stream);
    EXPECT_EQ(memory_stats(0).requested_bytes.all.current, 1008);
    const auto moved = std::move(many);
    EXPECT_EQ(many, nullptr);  // NOLINT(bugprone-use-after-move): that it is empty is the point
    EXPECT_EQ(memory_stats(0).allocation.all.current, 2);
  }
  EXPECT_EQ(memory_allocated(0), 0U);
  EXPECT_EQ(make_device_unique<float[]>(0, stream), nullptr);
  EXPECT_THROW(static_cast<void>(make_device_unique<float[]>(SIZE_MAX / 2, stream)), std::bad_array_new_length);
}

TEST(StreamAllocator, ContainersLeaveTheirValuesToTheDevice) {
  using Values = std::vector<float, StreamAllocator<float>>;
  const Stream stream = Stream::create({0}), other = Stream::create({0});
  Values values(1000, StreamAllocator<float>(stream));
  EXPECT_EQ(memory_stats(0).requested_bytes.all.current, 4000);
  fill_async(values.data(), 0, 4000, stream);
  Values moved = std::move(values);
  EXPECT_EQ(moved.get_allocator(), StreamAllocator<float>(stream));
  EXPECT_NE(moved.get_allocator(), StreamAllocator<float>(other));
  EXPECT_EQ(StreamAllocator<char>(stream), StreamAllocator<float>(stream));
  moved = Values();
  EXPECT_EQ(memory_allocated(0), 0U);
  EXPECT_THROW(static_cast<void>(StreamAllocator<float>(stream).allocate(SIZE_MAX / 2)), std::bad_array_new_length);
}

}  // namespace
}  // namespace cistern
