// Priorities: each framework's scale, the device's range; streams as CuPy's flags make them.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <functional>
#include <optional>
#include <string>

#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Priorities, OfPyTorchAreHighAndLow) {
  EXPECT_EQ(Priority::pytorch(), Priority(0));
  EXPECT_EQ(Priority::pytorch(0), Priority(0));
  EXPECT_EQ(Priority::pytorch(-1), Priority(-1));
  for (const int wrong : {1, 2, -2})
    EXPECT_THAT(refusal_of([&] { static_cast<void>(Priority::pytorch(wrong)); }),
                AllOf(HasSubstr("priority " + std::to_string(wrong)), HasSubstr("-1 (high) or 0 (low)")));
}

TEST(Priorities, OfPaddleAreOneAndTwo) {
  EXPECT_EQ(Priority::paddle(), Priority(0));
  EXPECT_EQ(Priority::paddle(std::nullopt), Priority(0));
  EXPECT_EQ(Priority::paddle(2), Priority(0));
  EXPECT_EQ(Priority::paddle(1), Priority(-1));
  for (const int wrong : {0, 3, -1})
    EXPECT_THAT(refusal_of([&] { static_cast<void>(Priority::paddle(wrong)); }),
                AllOf(HasSubstr("priority " + std::to_string(wrong)), HasSubstr("1 (high) or 2 (normal)")));
}

TEST(Priorities, OfCuPyAndMindSporeAreTheDrivers) {
  EXPECT_EQ(Priority::cupy(), Priority(0));
  EXPECT_EQ(Priority::cupy(-3), Priority(-3));
  EXPECT_EQ(Priority::mindspore(), Priority(0));
  EXPECT_EQ(Priority::mindspore(-2), Priority(-2));
  EXPECT_EQ(Priority(), Priority(0));
  EXPECT_NE(Priority(-1), Priority(0));
}

class StreamPriorities : public ProcessDevice {};

TEST_F(StreamPriorities, ConversionsMakeStreams) {
  EXPECT_EQ(Stream::create({.priority = Priority::paddle(1)}).priority(), -1);
  EXPECT_EQ(Stream::from_pool({.priority = Priority::pytorch(-1)}).priority(), -1);
  EXPECT_EQ(Stream::create({.priority = Priority::mindspore()}).priority(), 0);
}

TEST_F(StreamPriorities, RangesAreTheDevicesAndThePools) {
  const PriorityRange range = stream_priority_range(1);
  EXPECT_EQ(Stream::create({.device = 1, .priority = -1000}).priority(), range.greatest);
  EXPECT_EQ(Stream::create({.device = 1, .priority = 1000}).priority(), range.least);
  EXPECT_EQ(Stream::priority_range(1).least, 0);
  EXPECT_EQ(Stream::priority_range(1).greatest, Stream::from_pool({.device = 1, .priority = -1000}).priority());
  EXPECT_THROW(static_cast<void>(Stream::priority_range(9)), InvalidArgument);
}

TEST_F(StreamPriorities, NullWinsOverPerThreadAndBothIgnoreTheRest) {
  EXPECT_EQ(Stream::from_flags({.null = true, .non_blocking = true, .per_thread = true, .priority = -1}),
            Stream::null());
  EXPECT_EQ(Stream::from_flags({.non_blocking = true, .per_thread = true, .priority = -1}), Stream::per_thread());
  EXPECT_FALSE(Stream::from_flags({.non_blocking = true, .per_thread = true}).is_non_blocking());
}

TEST_F(StreamPriorities, PlainFlagsMakeABlockingStreamOfTheCurrentDevice) {
  const DeviceGuard guard(1);
  const Stream plain = Stream::from_flags({});
  EXPECT_FALSE(plain.is_non_blocking());
  EXPECT_EQ(plain.priority(), 0);
  EXPECT_EQ(plain.device(), Device(1));
  EXPECT_NE(plain, Stream::from_flags({}));
  EXPECT_TRUE(Stream::from_flags({.non_blocking = true}).is_non_blocking());
  EXPECT_EQ(Stream::from_flags({.priority = -2}).priority(), -2);
}

}  // namespace
}  // namespace cistern
