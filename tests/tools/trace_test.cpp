#include "tools/trace.h"

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <map>
#include <sstream>

#include "tests/property.h"
#include "tests/tools/temporary_file.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Operation = TraceOperation;

std::string refused_trace(std::string_view text) {
  try {
    static_cast<void>(parse_trace(text, "t.trace"));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::string written(const Trace& trace) {
  std::ostringstream out;
  write_trace(trace, out);
  return out.str();
}

TEST(Trace, OperationsAreReadInOrder) {
  const Trace trace = parse_trace("a 7 1000 0\nr 7 3\ni\nf 7\n", "t.trace");
  EXPECT_EQ(trace.name, "t.trace");
  EXPECT_THAT(trace.operations, ElementsAre(Operation{.bytes = 1000, .id = 0, .stream = 0, .kind = Operation::allocate},
                                            Operation{.bytes = 0, .id = 0, .stream = 3, .kind = Operation::record},
                                            Operation{},  // a step
                                            Operation{.bytes = 0, .id = 0, .stream = 0, .kind = Operation::free}));
  EXPECT_EQ(trace.allocations, 1u);
  EXPECT_EQ(trace.records, 1u);
  EXPECT_EQ(trace.frees, 1u);
  EXPECT_EQ(trace.steps, 1u);
  EXPECT_EQ(trace.requests(), 3u);
  EXPECT_THAT(trace.streams, ElementsAre(0u, 3u));
}

TEST(Trace, EmptyTextIsATraceWithoutOperations) {
  EXPECT_TRUE(parse_trace("", "t.trace").operations.empty());
  EXPECT_EQ(parse_trace("", "t.trace").peak_live_bytes, 0u);
}

TEST(Trace, LastLineMayLackItsLineFeed) { EXPECT_EQ(parse_trace("a 1 10 0\nf 1", "t.trace").operations.size(), 2u); }

TEST(Trace, CommentsAreKept) {
  EXPECT_THAT(parse_trace("# first\n#\na 1 10 0\n#second\n", "t.trace").comments, ElementsAre("first", "", "second"));
}

TEST(Trace, BlocksOfNoBytesCount) {
  const Trace trace = parse_trace("a 1 0 0\nf 1\n", "t.trace");
  EXPECT_EQ(trace.allocations, 1u);
  EXPECT_EQ(trace.peak_live_bytes, 0u);
}

TEST(Trace, PeakIsOfWhatLivesAtOnce) {
  EXPECT_EQ(parse_trace("a 1 100 0\na 2 50 0\nf 1\na 3 70 0\nf 2\nf 3\n", "t.trace").peak_live_bytes, 150u);
  EXPECT_EQ(parse_trace("a 1 100 0\nf 1\na 1 130 0\n", "t.trace").peak_live_bytes, 130u);
}

TEST(Trace, IdsAreReusedSoThatTheyStayFew) {
  std::string text;
  for (std::uint64_t block = 0; block < 1000; ++block)
    text += "a " + std::to_string(1000000007 * block) + " 8 0\nf " + std::to_string(1000000007 * block) + '\n';
  EXPECT_EQ(parse_trace(text, "t.trace").id_count, 1u);
  EXPECT_EQ(parse_trace("a 5 1 0\na 9 1 0\nf 5\na 7 1 0\n", "t.trace").id_count, 2u);
}

TEST(Trace, IdMayComeAgainAfterItsFree) { EXPECT_EQ(refused_trace("a 1 10 0\nf 1\na 1 20 0\nf 1\n"), ""); }

TEST(Trace, LargestNumbersAreRead) {
  const Trace trace =
      parse_trace("a 18446744073709551615 9223372036854775807 4294967295\nf 18446744073709551615\n", "t.trace");
  EXPECT_EQ(trace.peak_live_bytes, 9223372036854775807u);
  EXPECT_THAT(trace.streams, ElementsAre(4294967295u));
}

TEST(Trace, ErrorsNameFileLineTextAndWhatWasExpected) {
  EXPECT_EQ(refused_trace("# header\na 1 10 0\nx 1\n"),
            "t.trace:3: 'x 1': expected 'a ID BYTES STREAM', 'r ID STREAM', 'f ID', 'i' or '# TEXT'");
  EXPECT_EQ(refused_trace("a 1 10 0\na 1 20 0\n"),
            "t.trace:2: 'a 1 20 0': expected an id that is not live, and block 1 is");
  EXPECT_EQ(refused_trace("f 3\n"), "t.trace:1: 'f 3': expected the id of a live block, and 3 is not");
}

TEST(Trace, OnlyLiveBlocksAreRecordedAndFreed) {
  EXPECT_THAT(refused_trace("r 3 1\n"), HasSubstr("the id of a live block, and 3 is not"));
  EXPECT_THAT(refused_trace("a 1 10 0\nf 1\nf 1\n"), StartsWith("t.trace:3: 'f 1'"));
  EXPECT_THAT(refused_trace("a 1 10 0\nf 1\nr 1 2\n"), StartsWith("t.trace:3: 'r 1 2'"));
  EXPECT_THAT(refused_trace("f 18446744073709551615\n"), HasSubstr("18446744073709551615 is not"));
}

TEST(Trace, MalformedLinesAreRefused) {
  for (const char* line : {"",           " ",         "a",         "a 1",        "a 1 10",     "a 1 10 ",   "a 1 10 0 ",
                           "a 1 10 0 5", "a  1 10 0", " a 1 10 0", "a 1 10 0\r", "a\t1 10 0",  "a 1 ten 0", "a -1 10 0",
                           "a 1 -10 0",  "a 1 +10 0", "a 1 10 -1", "a 1 1.5 0",  "a 0x1 10 0", "a 1 10k 0", "A 1 10 0",
                           "aa 1 10 0",  "r 0",       "r 0 1 2",   "r",          "f",          "f ",        "f 0 0",
                           "f x",        "i ",        "i 1",       "ii",         "free 0",     "// text"})
    EXPECT_THAT(refused_trace("a 0 8 0\n" + std::string(line) + "\nf 0\n"), StartsWith("t.trace:2: '")) << line;
}

TEST(Trace, NumbersThatDoNotFitAreRefused) {
  EXPECT_THAT(refused_trace("a 18446744073709551616 1 0\n"), HasSubstr("at most 18446744073709551615"));
  EXPECT_THAT(refused_trace("a 1 9223372036854775808 0\n"), HasSubstr("at most 9223372036854775807"));
  EXPECT_THAT(refused_trace("a 1 1 4294967296\n"), HasSubstr("at most 4294967295"));
  EXPECT_THAT(refused_trace("a 1 9223372036854775807 0\na 2 1 0\n"), HasSubstr("fewer than 2^63 live bytes"));
}

TEST(Trace, ErrorsAreOneShortLine) {
  const std::string text = refused_trace(std::string("a 1\x01\x80 ") + std::string(10000, '9') + "\n");
  EXPECT_THAT(text, HasSubstr("a 1\\x01\\x80 999"));
  EXPECT_LT(text.size(), 250u);
}

TEST(Trace, FilesAreReadPlainAndCompressed) {
  const std::string text = "# header\na 1 10 0\nf 1\n";
  const TemporaryFile plain(text, ".trace"), compressed(gzipped(text), ".trace.gz");
  EXPECT_EQ(read_trace(plain.path()).operations, read_trace(compressed.path()).operations);
  EXPECT_EQ(read_trace(plain.path()).name, plain.path());
  EXPECT_EQ(read_trace(compressed.path()).comments, std::vector<std::string>{"header"});
}

TEST(Trace, WritingGivesTheFormatBack) {
  const std::string text = "# header\n# \na 0 1000 0\na 1 20 3\nr 0 3\ni\nf 0\nf 1\n";
  EXPECT_EQ(written(parse_trace(text, "t.trace")), text);
}

TEST(Trace, CommentOfSeveralLinesStaysAComment) {
  Trace trace;
  trace.comments = {"first\nsecond"};
  EXPECT_THAT(parse_trace(written(trace), "t.trace").comments, ElementsAre("first", "second"));
}

[[maybe_unused]] const bool trace_configured = configure_properties("TraceProperties", 2000, 100);

// A random valid trace as text, with the peak that a map of its live blocks gives.
struct RandomTrace {
  std::string text;
  std::uint64_t peak = 0;
};

RandomTrace random_trace() {
  RandomTrace result;
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t live_bytes = 0;
  const auto operations = *rc::gen::inRange<std::size_t>(0, 200);
  for (std::size_t index = 0; index < operations; ++index) {
    // Ids of all magnitudes, so that those too large for a table come, too.
    const auto id = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 50), rc::gen::arbitrary<std::uint64_t>());
    const auto stream = *rc::gen::inRange<std::uint32_t>(0, 4);
    const std::string id_text = std::to_string(id), stream_text = std::to_string(stream);
    if (const auto found = live.find(id); found == live.end()) {
      const auto bytes = *rc::gen::inRange<std::uint64_t>(0, 1 << 30);
      result.text += "a " + id_text + ' ' + std::to_string(bytes) + ' ' + stream_text + '\n';
      live[id] = bytes;
      live_bytes += bytes;
      result.peak = std::max(result.peak, live_bytes);
    } else if (*rc::gen::arbitrary<bool>()) {
      result.text += "r " + id_text + ' ' + stream_text + '\n';
    } else {
      result.text += "f " + id_text + '\n';
      live_bytes -= found->second;
      live.erase(found);
    }
  }
  return result;
}

RC_GTEST_PROP(TraceProperties, WhatIsWrittenIsReadBack, ()) {
  const RandomTrace random = random_trace();
  const Trace trace = parse_trace(random.text, "random.trace");
  RC_ASSERT(trace.peak_live_bytes == random.peak);
  const Trace again = parse_trace(written(trace), "written.trace");
  RC_ASSERT(again.operations == trace.operations);
  RC_ASSERT(again.peak_live_bytes == trace.peak_live_bytes);
  RC_ASSERT(again.id_count == trace.id_count);
}

RC_GTEST_PROP(TraceProperties, LiveBlocksNeverShareAnId, ()) {
  const Trace trace = parse_trace(random_trace().text, "random.trace");
  std::vector<bool> is_live(trace.id_count, false);
  for (const Operation& operation : trace.operations) {
    RC_ASSERT(is_live.at(operation.id) == (operation.kind != Operation::allocate));
    if (operation.kind != Operation::record) is_live[operation.id] = operation.kind == Operation::allocate;
  }
}

}  // namespace
}  // namespace cistern
