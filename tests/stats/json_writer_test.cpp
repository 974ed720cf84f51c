// The JSON writer, read back by another implementation.

#include "stats/json_writer.h"

#include "stats/utf8.h"
#include "tests/property.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cistern {
namespace {

using nlohmann::json;
[[maybe_unused]] const bool json_writer_configured = configure_properties("JsonWriterProperty", 2000, 200);

template <class Write>
std::string written(Write&& write) {
  std::ostringstream out;
  JsonWriter writer(out);
  write(writer);
  writer.finish();
  return out.str();
}

std::string written_text(std::string_view text) {
  return written([&](JsonWriter& writer) { writer.string(text); });
}

std::string read_back(std::string_view text) { return json::parse(written_text(text)).get<std::string>(); }

TEST(JsonWriter, NestsObjectsAndArrays) {
  const std::string text = written([](JsonWriter& writer) {
    writer.begin_object();
    writer.key("empty object").begin_object().end_object();
    writer.key("empty array").begin_array().end_array();
    writer.key("mixed").begin_array().number(1).string("two").boolean(true).begin_array().number(-3).end_array();
    writer.begin_object().key("four").number(4).end_object().end_array();
    writer.key("last").boolean(false);
    writer.end_object();
  });
  EXPECT_EQ(json::parse(text), json::parse(R"({"empty object": {}, "empty array": [],
                                              "mixed": [1, "two", true, [-3], {"four": 4}], "last": false})"));
}

TEST(JsonWriter, NumbersAreExactWhateverTheLocale) {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::ostringstream out;
  out.imbue(std::locale(std::locale::classic(), new Grouping));
  JsonWriter writer(out);
  writer.begin_array();
  writer.number(std::numeric_limits<std::int64_t>::min()).number(std::numeric_limits<std::uint64_t>::max());
  writer.number(94015774916624).number(0.1).number(-2.5e-300).end_array().finish();
  const json read = json::parse(out.str());
  EXPECT_EQ(read[0].get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read[1].get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read[2].get<std::int64_t>(), 94015774916624);
  EXPECT_EQ(read[3].get<double>(), 0.1);
  EXPECT_EQ(read[4].get<double>(), -2.5e-300);
}

TEST(JsonWriter, WholeDoublesKeepTheirFractionAndNonNumbersAreNull) {
  const auto number = [](double value) { return written([&](JsonWriter& writer) { writer.number(value); }); };
  EXPECT_EQ(number(0.0), "0.0\n");
  EXPECT_EQ(number(3.0), "3.0\n");
  EXPECT_TRUE(json::parse(number(1e300)).is_number_float());
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "null\n");
  EXPECT_EQ(number(std::nan("")), "null\n");
}

TEST(JsonWriter, EscapesWhatJsonReserves) {
  std::string all_ascii;
  for (char character = 0; character >= 0 && character < 127; ++character) all_ascii += character;
  EXPECT_EQ(read_back(all_ascii), all_ascii);
  EXPECT_EQ(written_text("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\n\\u0001\"\n");
}

TEST(JsonWriter, KeysAreEscapedToo) {
  const std::string text =
      written([](JsonWriter& writer) { writer.begin_object().key("quo\"te").number(1).end_object(); });
  EXPECT_EQ(json::parse(text).at("quo\"te"), 1);
}

TEST(JsonWriter, Utf8PassesUnchanged) {
  for (const std::string text :
       {"caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x92\xA7 water", "\xED\x9F\xBF\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(written_text(text), "\"" + text + "\"\n");
    EXPECT_EQ(read_back(text), text);
  }
}

TEST(JsonWriter, WhatIsNoUtf8BecomesReplacementCharacters) {
  const std::string mark(kReplacementCharacter);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\x80", mark},                                   // a continuation byte alone
      {"a\xFFz", "a" + mark + "z"},                     // never a byte of UTF-8
      {"\xC0\xAF", mark + mark},                        // overlong
      {"\xE0\x80\xAF", mark + mark + mark},             // overlong
      {"\xED\xA0\x80", mark + mark + mark},             // a surrogate
      {"\xF4\x90\x80\x80", mark + mark + mark + mark},  // above U+10FFFF
      {"\xE2\x82", mark},                               // cut off: one character was begun
      {"\xF0\x9F\x92z", mark + "z"},                    // cut off by another character
      {"\xC3", mark},
  };
  for (const auto& [bytes, expected] : cases) EXPECT_EQ(read_back(bytes), expected) << ::testing::PrintToString(bytes);
}

TEST(JsonWriter, LongOutputIsHandedOnInPieces) {
  std::ostringstream out;
  JsonWriter writer(out);
  writer.begin_array();
  for (int i = 0; i < 100000; ++i) writer.begin_object().key("i").number(i).end_object();
  EXPECT_GT(out.str().size(), 1000000u) << "before finish()";
  writer.end_array().finish();
  EXPECT_EQ(json::parse(out.str()).size(), 100000u);
}

RC_GTEST_PROP(JsonWriterProperty, AnyBytesMakeTextThatReadsBack, (const std::string& bytes)) {
  // nlohmann's own replacement of what is no UTF-8 is the oracle.
  const std::string expected =
      json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  RC_ASSERT(read_back(bytes) == expected);
}

RC_GTEST_PROP(JsonWriterProperty, LeadBytesInAnyOrderReadBack, ()) {
  // Bytes near the borders of UTF-8's ranges, so that almost-characters are common.
  const auto bytes = *rc::gen::container<std::string>(rc::gen::element<char>(
      'a', '"', '\x7F', '\x80', '\x8F', '\x90', '\x9F', '\xA0', '\xBF', '\xC1', '\xC2', '\xDF', '\xE0', '\xE1', '\xEC',
      '\xED', '\xEE', '\xEF', '\xF0', '\xF1', '\xF3', '\xF4', '\xF5', '\xFF'));
  const std::string expected =
      json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  RC_ASSERT(read_back(bytes) == expected);
}

}  // namespace
}  // namespace cistern
