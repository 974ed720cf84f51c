// Each stack once, for as long as something refers to it, within the bound.

#include "stats/raw_stack_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace cistern {
namespace {

struct Frames {
  explicit Frames(std::vector<std::uintptr_t> addresses) : frames(std::move(addresses)) {}
  [[nodiscard]] RawStack raw() const {
    return {frames.data(), static_cast<std::uint32_t>(frames.size()), hash_of(frames.data(), frames.size())};
  }
  std::vector<std::uintptr_t> frames;
};

std::vector<std::uintptr_t> stack_of(const RawStackTable& table, StackId id) {
  RawStackTable::Copy copy;
  table.copy_to(copy);
  const auto frames = copy.stacks[id - 1];
  return {frames.begin(), frames.end()};
}

TEST(RawStackTable, GivesEqualStacksOneNumberAndOthersAnother) {
  RawStackTable table;
  const StackId one = table.intern(Frames({1, 2, 3}).raw());
  EXPECT_EQ(table.intern(Frames({1, 2, 3}).raw()), one);
  const StackId two = table.intern(Frames({1, 2}).raw());
  EXPECT_NE(two, one);
  EXPECT_EQ(stack_of(table, one), (std::vector<std::uintptr_t>{1, 2, 3}));
  EXPECT_EQ(stack_of(table, two), (std::vector<std::uintptr_t>{1, 2}));
  EXPECT_EQ(table.intern({}), kNoStackId) << "an empty stack is none";
  EXPECT_EQ(table.size(), 2U);
}

TEST(RawStackTable, TellsStacksOfOneHashApart) {
  RawStackTable table;
  RawStack a = Frames({1}).raw();
  const Frames frames({2});
  RawStack b = frames.raw();
  b.hash = a.hash;
  const Frames other({1});
  a.frames = other.frames.data();
  EXPECT_NE(table.intern(a), table.intern(b));
}

TEST(RawStackTable, KeepsWhatIsReferredToAndGivesTheRestUpWhenItIsFull) {
  RawStackTable table;
  table.set_limit(10000);
  const StackId kept = table.intern(Frames({7, 7, 7}).raw());
  for (std::uintptr_t i = 0; i < 1000; ++i) {
    const StackId id = table.intern(Frames({i, i + 1}).raw());
    ASSERT_NE(id, kNoStackId) << i;
    table.let_go(id);
    ASSERT_LE(table.bytes(), 10000U);
  }
  EXPECT_EQ(table.lost(), 0U);
  EXPECT_EQ(table.intern(Frames({7, 7, 7}).raw()), kept);
  EXPECT_EQ(stack_of(table, kept), (std::vector<std::uintptr_t>{7, 7, 7}));
}

TEST(RawStackTable, LosesAndCountsWhatDoesNotFit) {
  RawStackTable table;
  table.set_limit(1000);
  std::vector<StackId> held;
  for (std::uintptr_t i = 0; i < 100; ++i) held.push_back(table.intern(Frames({i, i + 1}).raw()));
  EXPECT_LE(table.bytes(), 1000U);
  EXPECT_EQ(held.back(), kNoStackId);
  EXPECT_EQ(table.lost(), 100 - table.size());
  EXPECT_EQ(table.intern(Frames({0, 1}).raw()), held.front()) << "what is known is found still";
}

// To drop the unused ones walks the table: it is not done for each new stack.
TEST(RawStackTable, AtTheLimitNewStacksAreLostUntilAnEighthIsUnused) {
  RawStackTable table;
  table.set_limit(100000);
  std::vector<StackId> held;
  std::uintptr_t next = 0;
  const auto add = [&] { return table.intern(Frames({next, ++next}).raw()); };
  for (StackId id = add(); id != kNoStackId; id = add()) held.push_back(id);
  const std::size_t most = held.size();
  const std::size_t eighth = most / 8 + 1;
  for (std::size_t i = 0; i + 2 < eighth; ++i) {
    table.let_go(held.back());
    held.pop_back();
    ASSERT_EQ(add(), kNoStackId) << i;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    table.let_go(held.back());
    held.pop_back();
  }
  EXPECT_NE(add(), kNoStackId);
  EXPECT_LT(table.size(), most - eighth + 3);
}

TEST(RawStackTable, AgreesWithAMapOverRandomUses) {
  RawStackTable table;
  table.set_limit(60000);
  std::mt19937 random(20261121);
  std::vector<std::pair<StackId, std::vector<std::uintptr_t>>> held;
  for (int step = 0; step < 20000; ++step) {
    if (!held.empty() && random() % 2 == 0) {
      const std::size_t i = random() % held.size();
      ASSERT_EQ(stack_of(table, held[i].first), held[i].second) << "step " << step;
      table.let_go(held[i].first);
      held[i] = held.back();
      held.pop_back();
      continue;
    }
    std::vector<std::uintptr_t> frames(1 + random() % 4);
    for (auto& frame : frames) frame = random() % 6;
    const StackId id = table.intern(Frames(frames).raw());
    ASSERT_NE(id, kNoStackId);
    held.emplace_back(id, frames);
    if (held.size() > 200) {
      table.let_go(held.front().first);
      held.erase(held.begin());
    }
  }
}

// A table whose unused stacks have gone, and others come in their memory.
void replace_all(RawStackTable& table, StackId& stack, std::uintptr_t round) {
  table.let_go(stack);
  table.drop_unused();
  stack = table.intern(Frames({round, round, round, round}).raw());
}

TEST(RawStackTable, ACopyIsReadWhateverTheTableForgets) {
  RawStackTable table;
  StackId stack = table.intern(Frames({1, 2, 3, 4}).raw());
  RawStackTable::Copy first;
  table.copy_to(first);
  replace_all(table, stack, 5);
  RawStackTable::Copy second;
  table.copy_to(second);
  for (std::uintptr_t round = 6; round < 20; ++round) replace_all(table, stack, round);
  EXPECT_THAT(first.stacks, ::testing::ElementsAre(::testing::ElementsAre(1, 2, 3, 4)));
  EXPECT_THAT(second.stacks, ::testing::ElementsAre(::testing::ElementsAre(5, 5, 5, 5)));
  first = {};
  for (std::uintptr_t round = 20; round < 30; ++round) replace_all(table, stack, round);
  EXPECT_THAT(second.stacks, ::testing::ElementsAre(::testing::ElementsAre(5, 5, 5, 5)));
}

TEST(RawStackTable, ACopyOutlivesItsTable) {
  RawStackTable::Copy copy;
  {
    RawStackTable table;
    static_cast<void>(table.intern(Frames({1, 2, 3, 4}).raw()));
    table.copy_to(copy);
  }
  RawStackTable other;
  static_cast<void>(other.intern(Frames({9, 9, 9, 9}).raw()));
  EXPECT_THAT(copy.stacks, ::testing::ElementsAre(::testing::ElementsAre(1, 2, 3, 4)));
}

TEST(RawStackTable, AnEmptyTableIsCopied) {
  const RawStackTable table;
  RawStackTable::Copy copy;
  table.copy_to(copy);
  EXPECT_TRUE(copy.stacks.empty());
}

// For ThreadSanitizer: the reader has no lock, and may be the last that holds.
TEST(RawStackTable, ACopyIsReadWhileTheTableChanges) {
  for (int round = 0; round < 50; ++round) {
    std::optional<RawStackTable> table(std::in_place);
    StackId stack = table->intern(Frames({1, 2, 3, 4}).raw());
    RawStackTable::Copy copy;
    table->copy_to(copy);
    std::atomic<bool> is_whole{false};
    std::thread reader([&copy, &is_whole] {
      is_whole = std::vector<std::uintptr_t>(copy.stacks[0].begin(), copy.stacks[0].end()) ==
                 std::vector<std::uintptr_t>{1, 2, 3, 4};
      copy = {};
    });
    for (std::uintptr_t i = 5; i < 25; ++i) replace_all(*table, stack, i);
    table.reset();
    reader.join();
    ASSERT_TRUE(is_whole) << round;
  }
}

}  // namespace
}  // namespace cistern
