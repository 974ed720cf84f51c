// The reader of pickles: what it reads, and what it refuses of files that mean harm.

#include "tools/pickle_document.h"

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cistern {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = Value::Kind;

Document read(std::string_view text) {
  ByteSource source = ByteSource::of_text(text, "p.pickle");
  return read_pickle_document(source);
}

// Of protocol 2, without its first two bytes and STOP.
Document read_body(const std::string& body) { return read("\x80\2" + body + "."); }

std::string refusal(std::string_view text) {
  try {
    static_cast<void>(read(text));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of_body(const std::string& body) { return refusal("\x80\2" + body + "."); }

std::int64_t integer(const std::string& body) {
  const Document document = read_body(body);
  return document.as_signed(document.root()).value();
}

TEST(PickleDocument, IntegersOfEachOpcodeAreRead) {
  EXPECT_EQ(integer("K\xff"), 255);
  EXPECT_EQ(integer("M\xff\xff"), 65535);
  EXPECT_EQ(integer("J\xff\xff\xff\xff"), -1);
  EXPECT_EQ(integer("\x8a\0"s), 0);
  EXPECT_EQ(integer("\x8a\1\xff"), -1);
  EXPECT_EQ(integer("\x8a\6\0\0\0\0\0\x7f"s), 0x7f0000000000);
  EXPECT_EQ(integer("\x8a\x8\0\0\0\0\0\0\0\x80"s), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(integer("\x8b\2\0\0\0\1\1"s), 257);
  // Longer than needed is not larger.
  EXPECT_EQ(integer("\x8a\xc\5\0\0\0\0\0\0\0\0\0\0\0"s), 5);
  EXPECT_EQ(integer("\x8a\xc\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), -1);
}

TEST(PickleDocument, IntegersBeyondSixtyFourBitsAreRefused) {
  const Document largest = read_body("\x8a\x9\xff\xff\xff\xff\xff\xff\xff\xff\0"s);
  EXPECT_EQ(largest.as_unsigned(largest.root()), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(largest.as_signed(largest.root()), std::nullopt);
  EXPECT_EQ(refusal_of_body("\x8a\x9\0\0\0\0\0\0\0\0\1"s),
            "p.pickle: 'LONG1 at byte 2': expected an integer from -2^63 to 2^64 - 1");
  EXPECT_THAT(refusal_of_body("\x8a\x9\0\0\0\0\0\0\0\0\xff"s), HasSubstr("expected an integer from -2^63"));
  EXPECT_THAT(refusal_of_body("\x8a\x9\xff\xff\xff\xff\xff\xff\xff\x7f\xff"s), HasSubstr("expected an integer"));
}

TEST(PickleDocument, OtherScalarsAreRead) {
  const Document document = read_body("(N\x88\x89G\x3f\xf8\0\0\0\0\0\0G\x7f\xf8\0\0\0\0\0\0X\3\0\0\0n\xc3\xa9l"s);
  const auto elements = document.elements(document.root());
  ASSERT_EQ(elements.size(), 6u);
  EXPECT_TRUE(elements[0].is(Kind::null));
  EXPECT_TRUE(document.boolean(elements[1]));
  EXPECT_FALSE(document.boolean(elements[2]));
  EXPECT_EQ(document.number(elements[3]), 1.5);
  EXPECT_TRUE(std::isnan(document.number(elements[4])));
  EXPECT_EQ(document.text(elements[5]), "né");
}

TEST(PickleDocument, ListsTuplesAndDictsAreTold) {
  const Document document =
      read_body("(]K\1a](K\2K\3e)K\4\x85K\5K\6\x86K\7K\10K\11\x87(K\12t}X\1\0\0\0aK\1s(X\1\0\0\0bNdl"s);
  const auto elements = document.elements(document.root());
  ASSERT_EQ(elements.size(), 9u);
  const Kind kinds[] = {Kind::list,  Kind::list,  Kind::tuple,  Kind::tuple, Kind::tuple,
                        Kind::tuple, Kind::tuple, Kind::object, Kind::object};
  const std::size_t sizes[] = {1, 2, 0, 1, 2, 3, 1, 2, 2};
  for (std::size_t i = 0; i < elements.size(); ++i) {
    EXPECT_EQ(elements[i].kind(), kinds[i]) << i;
    EXPECT_EQ(document.elements(elements[i]).size(), sizes[i]) << i;
  }
}

TEST(PickleDocument, WhatTheMemoSharesIsOneObject) {
  const Document document = read_body("(]q\5h\5h\5K\1al"s);
  const auto elements = document.elements(document.root());
  ASSERT_EQ(elements.size(), 3u);
  EXPECT_EQ(elements[0], elements[1]);
  EXPECT_EQ(elements[0], elements[2]);
  EXPECT_EQ(document.elements(elements[0]).size(), 1u) << "filled after it was kept";
}

TEST(PickleDocument, MemoizeCountsWhatWasKept) {
  const Document document = read("\x80\4(K\1\x94K\2\x94h\0h\1j\1\0\0\0l."s);
  const auto elements = document.elements(document.root());
  ASSERT_EQ(elements.size(), 5u);
  EXPECT_EQ(document.as_signed(elements[2]), 1);
  EXPECT_EQ(document.as_signed(elements[3]), 2);
  EXPECT_EQ(document.as_signed(elements[4]), 2);
}

TEST(PickleDocument, OfARepeatedKeyTheLastValueCounts) {
  for (const std::string& body :
       {"}(X\1\0\0\0aK\1X\1\0\0\0bK\2X\1\0\0\0aK\3u"s, "}X\1\0\0\0aK\1sX\1\0\0\0bK\2sX\1\0\0\0aK\3s"s,
        "(X\1\0\0\0aK\1X\1\0\0\0bK\2X\1\0\0\0aK\3d"s}) {
    const Document document = read_body(body);
    ASSERT_EQ(document.members(document.root()).size(), 2u);
    EXPECT_EQ(document.as_signed(*document.find(document.root(), "a")), 3);
  }
}

TEST(PickleDocument, ManyKeysSetOneByOneTakeNoLongerThanTheyAreLong) {
  std::string body = "}";
  for (int i = 0; i < 200000; ++i) {
    const std::string name = std::to_string(i % 150000);
    body += "X" + std::string(1, static_cast<char>(name.size())) + "\0\0\0"s + name + "NS"s;
    body.back() = 's';
  }
  const Document document = read_body(body);
  EXPECT_EQ(document.members(document.root()).size(), 150000u);
}

TEST(PickleDocument, WhatMakesObjectsOrCallsFunctionsIsRefusedByName) {
  EXPECT_EQ(refusal("\x80\2cos\nsystem\nX\4\0\0\0true\x85R."s),
            "p.pickle: 'GLOBAL at byte 2': expected containers, numbers and texts alone, which is what a snapshot's "
            "pickle is made of");
  const std::pair<char, const char*> opcodes[] = {
      {'R', "REDUCE"},
      {'b', "BUILD"},
      {'i', "INST"},
      {'o', "OBJ"},
      {'\x81', "NEWOBJ"},
      {'\x92', "NEWOBJ_EX"},
      {'\x93', "STACK_GLOBAL"},
      {'\x82', "EXT1"},
      {'P', "PERSID"},
      {'Q', "BINPERSID"},
      {'B', "BINBYTES"},
      {'C', "SHORT_BINBYTES"},
      {'\x96', "BYTEARRAY8"},
      {'\x97', "NEXT_BUFFER"},
      {'\x8f', "EMPTY_SET"},
      {'I', "INT"},
      {'F', "FLOAT"},
      {'V', "UNICODE"},
      {'p', "PUT"},
      {'g', "GET"},
      {'0', "POP"},
      {'2', "DUP"},
      {'\x80', "PROTO"},
  };
  for (const auto& [opcode, name] : opcodes)
    EXPECT_THAT(refusal_of_body("N"s + opcode + "rest"),
                AllOf(StartsWith("p.pickle: '" + std::string(name) + " at byte 3'"), HasSubstr("texts alone")));
  EXPECT_THAT(refusal_of_body("\xee"), HasSubstr("'0xee at byte 2'"));
}

TEST(PickleDocument, ProtocolsTwoToFiveAreRead) {
  for (char protocol = 2; protocol <= 5; ++protocol) EXPECT_EQ(refusal("\x80"s + protocol + "N."), "");
  EXPECT_THAT(refusal("\x80\1N."), HasSubstr("expected a protocol from 2 to 5, not 1"));
  EXPECT_THAT(refusal("\x80\6N."), HasSubstr("not 6"));
  EXPECT_THAT(refusal("N."), HasSubstr("which begins with the byte 0x80"));
}

TEST(PickleDocument, LengthsThatLieTakeNoMemoryAndAreRefused) {
  EXPECT_EQ(refusal_of_body("X\xff\xff\xff\xff"s + "abc"),
            "p.pickle: 'BINUNICODE at byte 2': expected 4294967295 bytes, which it says follow: the file ends after 4");
  EXPECT_THAT(refusal_of_body("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), HasSubstr("BINUNICODE8"));
  EXPECT_THAT(refusal_of_body("\x8b\xff\xff\xff\x7f"), HasSubstr("LONG4"));
  EXPECT_THAT(refusal_of_body("\x8c\xff"), HasSubstr("expected 255 bytes"));
}

TEST(PickleDocument, FramesMustEndWhereAnOpcodeDoes) {
  EXPECT_EQ(refusal("\x80\4\x95\2\0\0\0\0\0\0\0N."s), "");
  EXPECT_EQ(refusal("\x80\4\x95\1\0\0\0\0\0\0\0N\x95\1\0\0\0\0\0\0\0."s), "");
  EXPECT_THAT(refusal("\x80\4\x95\3\0\0\0\0\0\0\0N."s), HasSubstr("expected the end of its frame"));
  EXPECT_THAT(refusal("\x80\4\x95\1\0\0\0\0\0\0\0K\1."s), HasSubstr("an opcode that ends in its frame"));
  EXPECT_THAT(refusal("\x80\4\x95\4\0\0\0\0\0\0\0X\4\0\0\0abcd."s), HasSubstr("an opcode that ends in its frame"));
  EXPECT_THAT(refusal("\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\xffN."s), HasSubstr("a frame that ends in the file"));
  EXPECT_THAT(refusal("\x80\4\x95\x10\0\0\0\0\0\0\0\x95\1\0\0\0\0\0\0\0N."s), HasSubstr("no frame inside another"));
}

TEST(PickleDocument, TextThatIsNoUtf8IsRefused) {
  EXPECT_EQ(refusal_of_body("X\1\0\0\0\xff"s), "p.pickle: 'BINUNICODE at byte 2': expected text in UTF-8");
  EXPECT_THAT(refusal_of_body("X\3\0\0\0\xed\xa0\x80"s), HasSubstr("expected text in UTF-8"));  // half a character
}

TEST(PickleDocument, KeysAreTexts) {
  for (const std::string& body : {"}K\1K\2s"s, "}(K\1K\2u"s, "(K\1K\2d"s})
    EXPECT_THAT(refusal_of_body(body), HasSubstr("expected texts as a dict's keys")) << body;
  EXPECT_THAT(refusal_of_body("}(X\1\0\0\0au"s), HasSubstr("expected a value for each key"));
}

TEST(PickleDocument, OpcodesNeedWhatTheyWorkOn) {
  for (const std::string& body : {"]e"s, "u"s, "t"s, "l"s, "d"s})
    EXPECT_THAT(refusal_of_body(body), HasSubstr("a MARK"));
  for (const std::string& body : {"a"s, "s"s, "\x86"s, "K\1\x86"s, "]a"s, "(](a"s, "q\1"s, "(q\1"s})
    EXPECT_THAT(refusal_of_body(body), HasSubstr("before it")) << body;
  EXPECT_THAT(refusal_of_body("NNa"), HasSubstr("a list before it"));
  EXPECT_THAT(refusal_of_body("](X\1\0\0\0aNu"s), HasSubstr("a dict before it"));
  EXPECT_THAT(refusal_of_body(")(Ne"), HasSubstr("a list before it"));
  // The list is below another mark.
  EXPECT_THAT(refusal_of_body("]((Ne"), HasSubstr("a list before it"));
  EXPECT_THAT(refusal_of_body("NN"), HasSubstr("expected one value at the end, not 2 and 0 open"));
  EXPECT_THAT(refusal_of_body("(N"), HasSubstr("1 open"));
  EXPECT_THAT(refusal_of_body(""), HasSubstr("expected one value at the end"));
}

TEST(PickleDocument, PlacesInTheMemoAreFilledBeforeTheyAreReadAndNotFarApart) {
  EXPECT_THAT(refusal_of_body("h\0"s), HasSubstr("expected a place in the memo that was filled, not 0"));
  EXPECT_THAT(refusal_of_body("Nq\2h\1"s), HasSubstr("not 1"));
  EXPECT_THAT(refusal_of_body("j\xff\xff\xff\xff"s), HasSubstr("not 4294967295"));
  EXPECT_THAT(refusal_of_body("Nr\xff\xff\xff\xff"s), HasSubstr("expected a place in the memo below"));
}

TEST(PickleDocument, WhatIsInItselfIsRefused) {
  EXPECT_THAT(refusal_of_body("]q\0h\0a"s), HasSubstr("at most 64 levels"));
  EXPECT_THAT(refusal_of_body("]q\0]q\1h\0aa"s), HasSubstr("at most 64 levels"));
  EXPECT_THAT(refusal_of_body("]q\0(h\0ta"s), HasSubstr("at most 64 levels"));
}

TEST(PickleDocument, TenThousandLevelsAreRefused) {
  const std::string lists(10000, ']'), appends(9999, 'a'), marks(10000, '('), tuples(10000, 't');
  EXPECT_THAT(refusal_of_body(lists + appends), HasSubstr("at most 64 levels"));
  EXPECT_THAT(refusal_of_body(marks + tuples), HasSubstr("at most 64 levels"));
  EXPECT_THAT(refusal_of_body(marks), HasSubstr("10000 open"));
  EXPECT_EQ(refusal_of_body(std::string(64, ']') + std::string(63, 'a')), "");
  EXPECT_THAT(refusal_of_body(std::string(65, ']') + std::string(64, 'a')), HasSubstr("at most 64 levels"));
}

TEST(PickleDocument, ReferencesThatFillOutToFarMoreThanTheFileAreRefused) {
  std::string bomb = "]q\0"s;
  for (char level = 1; level < 60; ++level)
    bomb += "]q"s + level + "(h" + static_cast<char>(level - 1) + "h" + static_cast<char>(level - 1) + "e";
  EXPECT_THAT(refusal_of_body("(" + bomb + "l"), HasSubstr("expected references that fill out to at most"));
  // The same list a thousand times is what snapshots have.
  std::string shared = "](](";
  for (int i = 0; i < 20; ++i) shared += "K\1";
  shared += "eq\0"s;
  for (int i = 0; i < 1000; ++i) shared += "h\0"s;
  EXPECT_EQ(refusal_of_body(shared + "e"), "");
}

TEST(PickleDocument, NothingFollowsTheEnd) {
  EXPECT_THAT(refusal("\x80\2N.."), HasSubstr("expected the end of the file after the pickle's"));
}

TEST(PickleDocument, EveryTruncationIsRefused) {
  const std::string whole =
      "\x80\4\x95\x3d\0\0\0\0\0\0\0}\x94(\x8c\1a\x94](K\1M\1\1J\1\1\1\1\x8a\5\1\1\1\1\1G\1\1\1\1\1\1\1\1e\x8c\1b}X\3\0\0\0cde)\x85s\x8c\1dh\1\x8c\1eN\x88\x86u."s;
  std::string fitting = whole;
  fitting[3] = static_cast<char>(whole.size() - 11);
  ASSERT_EQ(refusal(fitting), "");
  for (std::size_t size = 0; size < fitting.size(); ++size) EXPECT_NE(refusal(fitting.substr(0, size)), "") << size;
}

}  // namespace
}  // namespace cistern
