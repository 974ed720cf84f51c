#include "allocator/hash_index.h"

#include "tests/allocator/mapped_pages.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace cistern {
namespace {

using Number = HashIndex::Number;
using Tag = HashIndex::Tag;

Tag some_tag(std::mt19937& random) { return static_cast<Tag>(random()); }

// What is in it, beside the index: a tag of each number.
class TestedIndex {
 public:
  void add(Number number, Tag tag) {
    index_.provide(1);
    ASSERT_TRUE(index_.add(tag, number));
    tags_.emplace(number, tag);
  }
  void remove(Number number) {
    index_.remove(tags_.at(number), number);
    tags_.erase(number);
  }
  void compare() const {
    index_.audit();
    ASSERT_EQ(index_.size(), tags_.size());
    for (const auto& [number, tag] : tags_) ASSERT_EQ(find(number, tag), number);
  }
  [[nodiscard]] Number find(Number number, Tag tag) const {
    return index_.find(tag, [number](Number other) { return other == number; });
  }
  [[nodiscard]] const std::map<Number, Tag>& tags() const { return tags_; }
  [[nodiscard]] HashIndex& index() { return index_; }

 private:
  HashIndex index_;
  std::map<Number, Tag> tags_;
};

TEST(HashIndexTest, WhatIsThereIsFoundAndNothingElse) {
  std::mt19937 random(20261127);
  TestedIndex tested;
  EXPECT_EQ(tested.find(0, 0), HashIndex::kNone);
  Number next = 0;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 3000; ++i, ++next)
      tested.add(next, i % 3 == 0 ? some_tag(random) % 4096 * 0x00400401U : some_tag(random));
    tested.compare();
    for (int i = 0; i < 2500; ++i) {
      auto some = tested.tags().lower_bound(some_tag(random) % next);
      tested.remove(some == tested.tags().end() ? tested.tags().begin()->first : some->first);
    }
    tested.compare();
    for (int i = 0; i < 1000; ++i) {
      const Tag tag = some_tag(random);
      ASSERT_EQ(tested.find(next, tag), HashIndex::kNone);
    }
  }
}

// One of several with the same tag is meant, by its number or by who asks.
TEST(HashIndexTest, NumbersMayHaveOneTag) {
  TestedIndex tested;
  for (Number number = 0; number < 40; ++number) tested.add(number, 77);
  tested.add(100, 78);
  tested.compare();
  for (Number number = 0; number < 40; number += 2) tested.remove(number);
  tested.compare();
  EXPECT_EQ(tested.find(4, 77), HashIndex::kNone);
  tested.index().replace(77, 5, 500);
  EXPECT_EQ(tested.find(5, 77), HashIndex::kNone);
  EXPECT_EQ(tested.find(500, 77), 500U);
  EXPECT_EQ(tested.find(100, 78), 100U);
}

TEST(HashIndexTest, WhatIsProvidedForIsAddedAndNoMore) {
  HashIndex index;
  EXPECT_FALSE(index.has_room(1));
  EXPECT_FALSE(index.add(1, 1));
  std::mt19937 random(7);
  index.provide(1);
  std::size_t added = 0;
  while (index.has_room(1)) {
    ASSERT_TRUE(index.add(some_tag(random), static_cast<Number>(added)));
    ++added;
  }
  // What has no room is left out, and nothing else goes for it.
  std::size_t refused = 0;
  for (int i = 0; i < 2000; ++i) (index.add(some_tag(random), static_cast<Number>(added)) ? added : refused) += 1;
  EXPECT_GT(refused, 0U);
  EXPECT_EQ(index.size(), added);
  index.audit();
  index.provide(1);
  EXPECT_TRUE(index.has_room(1));
  EXPECT_TRUE(index.add(some_tag(random), static_cast<Number>(added)));
}

// Of much that is provided for each may part a segment; of the two here each does.
TEST(HashIndexTest, WhatIsProvidedForInOneGoIsAdded) {
  HashIndex index;
  std::mt19937 random(3);
  for (const std::size_t many : {2U, 1000U, 20'000U}) {
    index.provide(many);
    const std::size_t before = index.size();
    for (std::size_t i = 0; i < many; ++i) ASSERT_TRUE(index.add(some_tag(random), static_cast<Number>(before + i)));
  }
  HashIndex full;
  full.provide(2);
  for (Number number = 0; full.size() < 2 * 96; ++number) {
    const Tag upper = number % 2 << 31;
    // The second bit is the same, so that both halves are one segment each until they are full.
    const Tag tag = upper | (some_tag(random) >> 1);
    full.provide(2);
    ASSERT_TRUE(full.add(tag, number));
  }
  full.provide(2);
  ASSERT_TRUE(full.add(some_tag(random) >> 1, 5000));
  ASSERT_TRUE(full.add(Tag{1} << 31 | some_tag(random) >> 1, 5001));
  full.audit();
}

TEST(HashIndexTest, WhatIsExpectedMapsNothing) {
  std::mt19937 random(5);
  HashIndex index;
  index.expect(100'000);
  const std::int64_t before = testing_host::mapped_pages();
  for (Number number = 0; number < 100'000; ++number) {
    index.provide(1);
    ASSERT_TRUE(index.add(some_tag(random), number));
  }
  EXPECT_EQ(testing_host::mapped_pages(), before);
}

TEST(HashIndexTest, TwoThatAreSwappedAreEachOther) {
  HashIndex first;
  HashIndex second;
  std::mt19937 random(9);
  std::map<Number, Tag> tags;
  for (Number number = 0; number < 2000; ++number) {
    first.provide(1);
    ASSERT_TRUE(first.add(tags.emplace(number, some_tag(random)).first->second, number));
  }
  second.provide(1);
  ASSERT_TRUE(second.add(1, 1));
  first.swap(second);
  EXPECT_EQ(first.size(), 1U);
  EXPECT_EQ(second.size(), 2000U);
  for (const auto& [number, tag] : tags) {
    second.remove(tag, number);
    first.provide(1);
    ASSERT_TRUE(first.add(tag, number + 2));
  }
  first.audit();
  second.audit();
}

// However many have the same upper bits, and lower ones.
TEST(HashIndexTest, OfOneTagThereIsRoomForSome) {
  const std::int64_t before = testing_host::mapped_pages();
  HashIndex index;
  std::size_t added = 0;
  for (Number number = 0; number < 1000; ++number) {
    index.provide(64);
    added += index.add(0xABCD1234U, number) ? 1 : 0;
  }
  EXPECT_GE(added, 64U);
  EXPECT_LT(added, 128U) << "a search has to end";
  EXPECT_EQ(index.size(), added);
  index.provide(64);
  EXPECT_LT(testing_host::mapped_pages() - before, 2000) << "the directory is as large as there are segments";
  EXPECT_TRUE(index.add(0x0BCD1234U, 1000));
  EXPECT_EQ(index.find(0xABCD1234U, [](Number) { return false; }), HashIndex::kNone);
  index.audit();
}

TEST(HashIndexTest, OnceItIsClearedTheSameHasRoom) {
  std::mt19937 random(11);
  std::map<Number, Tag> tags;
  HashIndex index;
  for (Number number = 0; number < 20'000; ++number) {
    const Tag tag = tags.emplace(number, some_tag(random)).first->second;
    index.provide(1);
    ASSERT_TRUE(index.add(tag, number));
  }
  index.clear();
  EXPECT_EQ(index.size(), 0U);
  EXPECT_EQ(index.find(tags.at(0), [](Number) { return true; }), HashIndex::kNone);
  for (const auto& [number, tag] : tags) ASSERT_TRUE(index.add(tag, number));
  EXPECT_EQ(index.size(), tags.size());
  index.audit();
}

}  // namespace
}  // namespace cistern
