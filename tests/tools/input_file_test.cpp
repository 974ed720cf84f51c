#include "tools/input_file.h"

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/temporary_file.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <class Call>
std::string refused_call(Call&& call) {
  try {
    static_cast<void>(call());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(InputFile, PlainBytesAreReadAsTheyAre) {
  const std::string content("a\0b\r\n", 5);
  EXPECT_EQ(read_input_file(TemporaryFile(content).path()), content);
  EXPECT_EQ(read_input_file(TemporaryFile("").path()), "");
}

TEST(InputFile, GzipIsToldByItsBytesNotItsName) {
  EXPECT_EQ(read_input_file(TemporaryFile(gzipped("text\n"), ".trace").path()), "text\n");
  EXPECT_EQ(read_input_file(TemporaryFile(gzipped("text\n"), ".trace.gz").path()), "text\n");
}

TEST(InputFile, LargeFilesAreReadWhole) {
  std::string content;
  for (int line = 0; line < 300000; ++line) content += std::to_string(line) + '\n';
  EXPECT_EQ(read_input_file(TemporaryFile(content).path()), content);
  EXPECT_EQ(read_input_file(TemporaryFile(gzipped(content)).path()), content);
}

TEST(InputFile, ManyGzipMembersAreOneText) {
  EXPECT_EQ(inflate_gzip(gzipped("first\n") + gzipped("") + gzipped("second\n"), "x.gz"), "first\nsecond\n");
}

TEST(InputFile, TruncatedGzipNamesTheLineThatWasReached) {
  const std::string whole = gzipped("first\nsecond\nthird\n");
  // The trailer alone is missing: all lines are there, and the next one would be line 4.
  EXPECT_THAT(refused_call([&] { return inflate_gzip(whole.substr(0, whole.size() - 4), "x.gz"); }),
              AllOf(StartsWith("x.gz:4: ''"), HasSubstr("expected the rest of the gzip data")));
  for (std::size_t size = 2; size < whole.size(); ++size)
    EXPECT_THAT(refused_call([&] { return inflate_gzip(whole.substr(0, size), "x.gz"); }),
                AllOf(StartsWith("x.gz:"), HasSubstr("the rest of the gzip data")))
        << size;
}

TEST(InputFile, DamagedGzipIsRefused) {
  std::string damaged = gzipped("first\nsecond\n");
  damaged[damaged.size() - 6] ^= 1;  // in the checksum
  EXPECT_THAT(refused_call([&] { return inflate_gzip(damaged, "x.gz"); }),
              AllOf(StartsWith("x.gz:3:"), HasSubstr("expected intact gzip data (incorrect data check")));
}

TEST(InputFile, GzipDataThatWouldFillMemoryAreRefused) {
  const std::string bomb = gzipped(std::string(std::size_t{100} << 20, ' '));
  ASSERT_LT(bomb.size(), std::size_t{200} << 10);
  EXPECT_THAT(refused_call([&] { return inflate_gzip(bomb, "x.gz"); }),
              HasSubstr("expected gzip data that inflate to at most 200 times their size"));
  EXPECT_EQ(inflate_gzip(gzipped(std::string(std::size_t{60} << 20, ' ')), "x.gz").size(), std::size_t{60} << 20);
}

TEST(InputFile, BytesAfterTheGzipDataAreRefused) {
  EXPECT_THAT(refused_call([] { return inflate_gzip(gzipped("text\n") + "more", "x.gz"); }),
              HasSubstr("expected nothing after the gzip data"));
}

TEST(InputFile, PlainTextInAGzFileIsRefused) {
  const TemporaryFile file("a 1 1 0\nf 1\n", ".trace.gz");
  EXPECT_EQ(refused_call([&] { return read_input_file(file.path()); }),
            file.path() + ":1: 'a 1 1 0': expected gzip data, as the name says");
}

TEST(InputFile, FileThatCannotBeReadIsNamed) {
  EXPECT_THAT(refused_call([] { return read_input_file("no/such/file.trace"); }),
              AllOf(StartsWith("no/such/file.trace: "), HasSubstr("expected a file")));
  EXPECT_THAT(refused_call([] { return read_input_file(::testing::TempDir()); }), HasSubstr("expected a file"));
}

TEST(InputFile, ErrorsStayOnOneLine) {
  const std::string text =
      refused_call([]() -> int { fail_input("bad\nname", 3, "a\tb\x80\n" + std::string(500, 'x'), "less"); });
  EXPECT_THAT(text, AllOf(StartsWith("bad?name:3: 'a\\tb\\x80\\nxxx"), HasSubstr("...': expected less")));
  EXPECT_LT(text.size(), 150u);
}

}  // namespace
}  // namespace cistern
