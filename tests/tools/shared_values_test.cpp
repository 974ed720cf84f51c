// Files in which references make much of little: what snapshots never share is refused, and what they do share
// is kept once.

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tools/snapshot_reader.h"

namespace cistern {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

std::string text(std::string_view characters) {
  std::string pickle = "X";
  for (int byte = 0; byte < 4; ++byte) pickle += static_cast<char>((characters.size() >> (8 * byte)) & 0xff);
  return pickle.append(characters);
}

std::string list(const std::string& elements) { return "](" + elements + "e"; }
std::string object(const std::string& members) { return "}(" + members + "u"; }
// A value, and references to it.
std::string repeated(const std::string& value, std::size_t times) {
  std::string pickle = value + "q\0"s;
  for (std::size_t i = 1; i < times; ++i) pickle += "h\0"s;
  return pickle;
}

std::string pickle_of(const std::string& segments, const std::string& entries, const std::string& more = "") {
  return "\x80\2"s + object(text("segments") + list(segments) + text("device_traces") + list(list(entries)) + more) +
         ".";
}

std::string entry(const std::string& more) {
  return object(text("action") + text("snapshot") + text("size") + "K\0"s + text("stream") + "K\0"s + more);
}

std::string frame(const std::string& name) {
  return object(text("filename") + text("a.py") + text("line") + "K\1" + text("name") + text(name));
}

std::string refusal(const std::string& pickle) {
  try {
    static_cast<void>(parse_snapshot(pickle, "s"));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(SharedValues, RecordsByReferenceAreRefused) {
  constexpr std::string_view expected = "expected an object of its own, which no reference shares";
  const std::string blocks = text("blocks");
  EXPECT_EQ(refusal(pickle_of(repeated(object(blocks + "]"), 2), "")),
            "s: 'segments[1]: {...}': " + std::string(expected));
  EXPECT_EQ(refusal(pickle_of(object(blocks + list(repeated("}", 2))), "")),
            "s: 'segments[0].blocks[1]: {}': " + std::string(expected));
  EXPECT_EQ(refusal(pickle_of("", repeated(entry(""), 2))),
            "s: 'device_traces[0][1]: {...}': " + std::string(expected));
  for (const char* name : {"external_annotations", "device_stats", "modules"})
    EXPECT_EQ(refusal(pickle_of("", "", text(name) + list(repeated("}", 2)))),
              "s: '" + std::string(name) + "[1]: {}': " + std::string(expected));
  EXPECT_EQ(refusal(pickle_of("", "", text("stacks") + list(repeated("]", 2)))),
            "s: 'stacks[1]: []': " + std::string(expected));
}

TEST(SharedValues, AListOfRecordsByReferenceIsRefused) {
  const std::string pickle =
      "\x80\2"s + object(text("segments") + "]" + text("device_traces") + list(repeated(list(entry("")), 2))) + ".";
  EXPECT_THAT(refusal(pickle), HasSubstr("device_traces[1][0]"));
}

TEST(SharedValues, ALongTextByReferenceFillsOutToMoreThanAShortOne) {
  const auto tags = [](std::size_t length, std::size_t times) {
    return pickle_of("", "", text("tags") + list(repeated(text(std::string(length, 'a')), times)));
  };
  EXPECT_THAT(refusal(tags(40000, 50000)), HasSubstr("expected references that fill out to at most"));
  EXPECT_EQ(refusal(tags(40, 50000)), "");
}

TEST(SharedValues, WhatIsCopiedOfTextsStaysInProportionToTheFile) {
  const std::string tags = text("tags") + list(repeated(text(std::string(400, 'a')), 100000));
  EXPECT_NO_THROW(static_cast<void>(parse_snapshot_file(pickle_of("", "", tags), "s")));
  EXPECT_THAT(refusal(pickle_of("", "", tags)), HasSubstr("expected references to texts that fill out to at most 32"));
}

TEST(SharedValues, StacksShareTheirFrames) {
  const std::string stack = text("frames") + list(repeated(frame(std::string(400, 'f')), 50000));
  const Snapshot snapshot = parse_snapshot(pickle_of("", entry(stack)), "s");
  ASSERT_EQ(snapshot.stacks.size(), 1u);
  ASSERT_EQ(snapshot.stacks[0].size(), 50000u);
  EXPECT_EQ(snapshot.stacks[0].front().operator->(), snapshot.stacks[0].back().operator->());
}

}  // namespace
}  // namespace cistern
