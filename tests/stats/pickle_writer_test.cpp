// The pickle writer, opcode by opcode: what they mean is pickletools' documentation.

#include "stats/pickle_writer.h"

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "stats/pickle_memo.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

template <class Write>
std::string written(Write&& write, int protocol = 2) {
  std::ostringstream out;
  PickleWriter writer(out, protocol);
  write(writer);
  writer.finish();
  return out.str();
}

// What stands between the protocol and STOP.
template <class Write>
std::string body(Write&& write, int protocol = 2) {
  const std::string whole = written(write, protocol);
  EXPECT_EQ(whole.substr(0, 2), std::string("\x80") + static_cast<char>(protocol));
  EXPECT_EQ(whole.back(), '.');
  return whole.substr(2, whole.size() - 3);
}

template <class Number>
std::string number(Number value) {
  return body([value](PickleWriter& writer) { writer.number(value); });
}

using namespace std::string_literals;

TEST(PickleWriter, IntegersTakeTheShortestOpcode) {
  EXPECT_EQ(number(0), "K\0"s);
  EXPECT_EQ(number(255), "K\xff");
  EXPECT_EQ(number(256), "M\0\1"s);
  EXPECT_EQ(number(65535u), "M\xff\xff");
  EXPECT_EQ(number(65536), "J\0\0\1\0"s);
  EXPECT_EQ(number(-1), "J\xff\xff\xff\xff");
  EXPECT_EQ(number(std::numeric_limits<std::int32_t>::min()), "J\0\0\0\x80"s);
  EXPECT_EQ(number(std::int64_t{1} << 31), "\x8a\5\0\0\0\x80\0"s);
  EXPECT_EQ(number(-(std::int64_t{1} << 31) - 1), "\x8a\5\xff\xff\xff\x7f\xff"s);
  EXPECT_EQ(number(std::int64_t{0x7f0000000000}), "\x8a\6\0\0\0\0\0\x7f"s);
  EXPECT_EQ(number(std::numeric_limits<std::int64_t>::max()), "\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f");
  EXPECT_EQ(number(std::numeric_limits<std::int64_t>::min()), "\x8a\x8\0\0\0\0\0\0\0\x80"s);
}

TEST(PickleWriter, WhatIsUnlimitedIsMinusOneAndOtherLargeNumbersAreRefused) {
  EXPECT_EQ(number(std::numeric_limits<std::uint64_t>::max()), number(-1));
  try {
    number(std::uint64_t{1} << 63);
    FAIL() << "2^63 was written";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("9223372036854775808: expected a number below 2^63"));
  }
}

TEST(PickleWriter, FloatsTextsAndConstantsAreWritten) {
  EXPECT_EQ(number(1.5), "G\x3f\xf8\0\0\0\0\0\0"s);
  EXPECT_EQ(body([](PickleWriter& writer) { writer.boolean(true); }), "\x88");
  EXPECT_EQ(body([](PickleWriter& writer) { writer.boolean(false); }), "\x89");
  EXPECT_EQ(body([](PickleWriter& writer) { writer.null(); }), "N");
  EXPECT_EQ(body([](PickleWriter& writer) { writer.string("né"); }), "X\3\0\0\0n\xc3\xa9"s);
}

TEST(PickleWriter, ShortTextsAreShorterFromProtocolFour) {
  EXPECT_EQ(body([](PickleWriter& writer) { writer.string("ab"); }, 3), "X\2\0\0\0ab"s);
  EXPECT_EQ(body([](PickleWriter& writer) { writer.string("ab"); }, 4), "\x8c\2ab");
  const std::string longest(255, 'x'), longer(256, 'x');
  EXPECT_EQ(body([&](PickleWriter& writer) { writer.string(longest); }, 4), "\x8c\xff" + longest);
  EXPECT_EQ(body([&](PickleWriter& writer) { writer.string(longer); }, 4), "X\0\1\0\0"s + longer);
}

TEST(PickleWriter, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(body([](PickleWriter& writer) { writer.string("a\xff"); }), "X\4\0\0\0a\xef\xbf\xbd"s);
}

TEST(PickleWriter, ContainersNestAndEmptyOnesHaveNoGroup) {
  const std::string text = body([](PickleWriter& writer) {
    writer.begin_object();
    writer.key("a").begin_array().end_array();
    writer.key("b").begin_object().end_object();
    writer.key("c").begin_array().number(1).begin_array().number(2).end_array().end_array();
    writer.end_object();
  });
  EXPECT_EQ(text, "}(X\1\0\0\0a]X\1\0\0\0b}X\1\0\0\0c](K\1](K\2eeu"s);
}

TEST(PickleWriter, TuplesOfEachLengthAreWritten) {
  const auto tuple = [](std::size_t size) {
    return body([size](PickleWriter& writer) {
      writer.begin_tuple(size);
      for (std::size_t i = 0; i < size; ++i) writer.number(i);
      writer.end_tuple();
    });
  };
  EXPECT_EQ(tuple(0), ")");
  EXPECT_EQ(tuple(1), "K\0\x85"s);
  EXPECT_EQ(tuple(2), "K\0K\1\x86"s);
  EXPECT_EQ(tuple(3), "K\0K\1K\2\x87"s);
  EXPECT_EQ(tuple(4), "(K\0K\1K\2K\3t"s);
}

TEST(PickleWriter, GroupsHaveAtMostAThousandItems) {
  const auto list = [](int size) {
    return body([size](PickleWriter& writer) {
      writer.begin_array();
      for (int i = 0; i < size; ++i) writer.boolean(true);
      writer.end_array();
    });
  };
  const std::string thousand(1000, '\x88');
  EXPECT_EQ(list(1000), "](" + thousand + "e");
  EXPECT_EQ(list(1001), "](" + thousand + "e(\x88"s + "e");
  EXPECT_EQ(list(2500), "](" + thousand + "e(" + thousand + "e(" + std::string(500, '\x88') + "e");
}

TEST(PickleWriter, OtherProtocolsAreRefused) {
  std::ostringstream out;
  for (const int protocol : {-1, 0, 1, 5, 1000}) EXPECT_THROW(PickleWriter(out, protocol), InvalidArgument) << protocol;
  EXPECT_EQ(out.str(), "");
}

// Lists of one number each, by their memo numbers.
std::string memoized(const std::vector<std::size_t>& objects, int protocol) {
  return body(
      [&](PickleWriter& writer) {
        PickleMemo memo(writer);
        writer.begin_array();
        for (const std::size_t object : objects)
          memo.write(object, [&] { writer.begin_array().number(object).end_array(); });
        writer.end_array();
      },
      protocol);
}

TEST(PickleMemo, WhatIsSharedIsWrittenOnceAndNamedAfterwards) {
  EXPECT_EQ(memoized({7, 8, 7, 8}, 4), "](](K\7e\x94](K\10e\x94h\0h\1e"s);
  EXPECT_EQ(memoized({7, 8, 7, 8}, 2), "](](K\7eq\0](K\10eq\1h\0h\1e"s);
}

TEST(PickleMemo, OlderProtocolsUseTheOldestSlotAgain) {
  std::vector<std::size_t> objects;
  for (std::size_t i = 0; i <= 256; ++i) objects.push_back(i);
  objects.push_back(256);  // kept in slot 0, which object 0 had
  objects.push_back(0);    // so that it is written again, into slot 1
  objects.push_back(1);    // which object 1 had
  const std::string text = memoized(objects, 2);
  EXPECT_TRUE(text.ends_with("](M\0\1eq\0h\0](K\0eq\1](K\1eq\2e"s)) << ::testing::PrintToString(text);
}

TEST(PickleMemo, ProtocolFourNamesAnyNumberOfSlots) {
  std::vector<std::size_t> objects;
  for (std::size_t i = 0; i <= 256; ++i) objects.push_back(i);
  objects.push_back(255);
  objects.push_back(256);
  EXPECT_TRUE(memoized(objects, 4).ends_with("h\xffj\0\1\0\0e"s));
}

}  // namespace
}  // namespace cistern
