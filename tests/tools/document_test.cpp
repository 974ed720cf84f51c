#include "tools/document.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace cistern {
namespace {

using Kind = Value::Kind;

TEST(Document, IntegersOfSixtyFourBitsAreKept) {
  Document document;
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t number :
       {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 59) - 1, std::int64_t{1} << 59, -(std::int64_t{1} << 59),
        -(std::int64_t{1} << 59) - 1, least, most}) {
    const Value value = document.make_integer(number);
    EXPECT_EQ(document.as_signed(value), number);
    EXPECT_EQ(document.as_unsigned(value),
              number < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(number)));
  }
  const Value large = document.make_unsigned(std::uint64_t{1} << 63);
  EXPECT_EQ(document.as_unsigned(large), std::uint64_t{1} << 63);
  EXPECT_EQ(document.as_signed(large), std::nullopt);
  EXPECT_EQ(document.as_signed(document.make_unsigned(static_cast<std::uint64_t>(most))), most);
}

TEST(Document, TextsAreKeptOnce) {
  Document document;
  const std::string first = "frames";
  EXPECT_EQ(document.make_string(first), document.make_string(std::string("fra") + "mes"));
  EXPECT_NE(document.make_string(first), document.make_string(""));
  EXPECT_EQ(document.text(document.make_string("")), "");
  EXPECT_EQ(document.find_string("missing"), std::nullopt);
}

TEST(Document, ContainersMadeSharedAreOneWhereTheyAreEqual) {
  Document document;
  const std::vector<Value> content{document.make_integer(1), document.make_string("a")};
  const Value list = document.make_shared_container(Kind::list, content);
  EXPECT_EQ(document.make_shared_container(Kind::list, content), list);
  EXPECT_NE(document.make_shared_container(Kind::tuple, content), list);
  EXPECT_NE(document.make_container(Kind::list, content), list);
  EXPECT_EQ(document.make_shared_container(Kind::list, {&list, 1}),
            document.make_shared_container(Kind::list, {&list, 1}));
}

TEST(Document, ListsGrowInAnyOrder) {
  Document document;
  const Value a = document.make_container(Kind::list, {});
  const Value b = document.make_container(Kind::list, {});
  for (std::int64_t i = 0; i < 1000; ++i) {
    const Value number = document.make_integer(i);
    document.append(i % 3 == 0 ? a : b, {&number, 1});
  }
  ASSERT_EQ(document.elements(a).size(), 334u);
  ASSERT_EQ(document.elements(b).size(), 666u);
  EXPECT_EQ(document.as_signed(document.elements(a)[333]), 999);
  EXPECT_EQ(document.as_signed(document.elements(b)[665]), 998);
}

TEST(Document, MembersAreReplacedAndRemovedInPlace) {
  Document document;
  const Value a = document.make_string("a"), b = document.make_string("b"), c = document.make_string("c");
  const std::vector<Value> content{a, document.make_integer(1), b, document.make_integer(2)};
  const Value object = document.make_container(Kind::object, content);
  document.replace_member(object, a, {c, document.make_integer(3)});
  EXPECT_EQ(document.find(object, a), nullptr);
  EXPECT_EQ(document.as_signed(*document.find(object, c)), 3);
  document.remove_member(object, c);
  document.remove_member(object, c);
  ASSERT_EQ(document.members(object).size(), 1u);
  EXPECT_EQ(document.members(object)[0].name, b);
}

// A list in a list in a list.
Value nested(Document& document, std::size_t levels) {
  Value value = document.make_integer(1);
  for (std::size_t level = 0; level < levels; ++level) value = document.make_container(Kind::list, {&value, 1});
  return value;
}

TEST(Document, ExtentCountsWhatIsSharedEachTime) {
  Document document;
  const Value three = nested(document, 2);
  const std::vector<Value> twice{three, three};
  document.set_root(document.make_container(Kind::list, twice));
  EXPECT_EQ(document.extent().levels, 3u);
  EXPECT_EQ(document.extent().values, 7u);
}

TEST(Document, ExtentOfWhatIsTooDeepOrInItselfIsTooDeep) {
  Document document;
  document.set_root(nested(document, Document::kMostLevels));
  EXPECT_EQ(document.extent().levels, Document::kMostLevels);
  document.set_root(nested(document, Document::kMostLevels + 1));
  EXPECT_GT(document.extent().levels, Document::kMostLevels);
  const Value list = document.make_container(Kind::list, {});
  document.append(list, {&list, 1});
  document.set_root(list);
  EXPECT_GT(document.extent().levels, Document::kMostLevels);
}

TEST(Document, ExtentDoesNotOverflow) {
  Document document;
  Value value = document.make_integer(1);
  for (int level = 0; level < 60; ++level) {
    const std::vector<Value> many(100, value);
    value = document.make_container(Kind::list, many);
  }
  document.set_root(value);
  EXPECT_EQ(document.extent().values, std::numeric_limits<std::uint64_t>::max());
}

}  // namespace
}  // namespace cistern
