// What is no stream or event is refused by its type: Python's TypeError, at compile time.

#include <cistern/cistern.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace cistern {
namespace {

template <class T>
concept Recorded = requires(const Stream& stream, T&& event) {
  stream.record_event(event);
};
template <class T>
concept Awaited = requires(const Stream& stream, const T& event) {
  stream.wait_event(event);
};
template <class T>
concept AwaitedStream = requires(const Stream& stream, const T& other) {
  stream.wait_stream(other);
};
template <class T>
concept Wrapped = requires(const T& object) {
  Stream::external(object, Device(0));
};

TEST(FrameworksCompile, WhatIsNoStreamOrEventDoesNotCompile) {
  EXPECT_TRUE((Recorded<Event&> && Awaited<Event> && AwaitedStream<Stream> && Wrapped<StreamHandle>));
  EXPECT_FALSE((Recorded<int> || Recorded<const char*> || Recorded<const Stream&> || Recorded<void*>));
  EXPECT_FALSE((Recorded<const Event&>));
  EXPECT_FALSE((Awaited<int> || Awaited<const char*> || Awaited<Stream> || Awaited<std::nullptr_t>));
  EXPECT_FALSE((AwaitedStream<int> || AwaitedStream<Event> || AwaitedStream<std::nullptr_t>));
  EXPECT_FALSE((Wrapped<int> || Wrapped<const char*> || Wrapped<Event> || Wrapped<Stream>));
}

}  // namespace
}  // namespace cistern
