#include <gmock/gmock.h>

#include "tests/byte_units.h"
#include "tests/command/command_fixture.h"
#include "tests/command/made_snapshot.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DiffCommandTest : public CommandTest {
 protected:
  // Between the two: optimizer appears, cache grows by a block of 3 MiB, weights stay, old goes; the numbers of
  // stacks and tags are others.
  DiffCommandTest() {
    before_ = make_snapshot(
        {{0x1000000, {{2 * kSignedMega, kLive, 0, 0}, {kSignedMega, kLive, 1, 1}, {9 * kSignedMega, kFree}}},
         {0x2000000, {{4 * kSignedMega, kLive, 2, 2}}}});
    before_.stacks = {make_stack({"load", "main"}), make_stack({"keep", "main"}), make_stack({"old", "main"})};
    before_.tags = {"weights", "cache", "old"};
    after_ = make_snapshot(
        {{0x5000000, {{kSignedMega, kLive, 0, 0}, {3 * kSignedMega, kLive, 0, 0}, {8 * kSignedMega, kPending, 3, 2}}},
         {0x6000000, {{2 * kSignedMega, kLive, 1, 1}, {5 * kSignedMega, kLive, 2, 2, 100}}, 9}});
    after_.stacks = {make_stack({"keep", "main"}), make_stack({"load", "main"}), make_stack({"adam", "main"}),
                     make_stack({"freed"})};
    after_.tags = {"cache", "weights", "optimizer"};
    write_torch_json(before_, path("a.json"));
    write_pickle(after_, path("b.pickle"));
  }

  Result diff(Arguments options = {}) const {
    options.insert(options.begin(), {"diff", path("a.json"), path("b.pickle")});
    return run(options);
  }
  nlohmann::json diff_json(Arguments options = {}) const {
    options.push_back("--json");
    const Result result = diff(options);
    EXPECT_EQ(result.status, kExitSuccess) << result.err;
    return nlohmann::json::parse(result.out);
  }
  static nlohmann::json owner(const nlohmann::json& list, const std::string& key, const std::string& name) {
    for (const auto& each : list["owners"])
      if ((key == "tag" ? each["tag"] : each["frames"][0]["name"]) == name) return each;
    return {};
  }

  Snapshot before_;
  Snapshot after_;
};

TEST_F(DiffCommandTest, OwnersAppearGrowAndGo) {
  const auto json = diff_json();
  for (const auto& [list, key, names] :
       {std::tuple(json["by_tag"], "tag", std::array<std::string, 4>{"optimizer", "cache", "old", "weights"}),
        std::tuple(json["by_stack"], "stack", std::array<std::string, 4>{"adam", "keep", "old", "load"})}) {
    EXPECT_EQ(list["changed"], 3);
    EXPECT_EQ(list["unchanged"], 1);
    const auto appeared = owner(list, key, names[0]);
    EXPECT_EQ(appeared["change"], "appeared");
    EXPECT_EQ(appeared["bytes"], 5 * kSignedMega);
    EXPECT_EQ(appeared["a"], (nlohmann::json{{"blocks", 0}, {"bytes", 0}, {"requested_bytes", 0}}));
    EXPECT_EQ(appeared["b"],
              (nlohmann::json{{"blocks", 1}, {"bytes", 5 * kSignedMega}, {"requested_bytes", 5 * kSignedMega - 100}}));
    const auto grown = owner(list, key, names[1]);
    EXPECT_EQ(grown["change"], "grown");
    EXPECT_EQ(grown["bytes"], 3 * kSignedMega);
    EXPECT_EQ(grown["blocks"], 1);
    const auto gone = owner(list, key, names[2]);
    EXPECT_EQ(gone["change"], "gone");
    EXPECT_EQ(gone["bytes"], -4 * kSignedMega);
    EXPECT_EQ(owner(list, key, names[3]), nullptr);
  }
}

TEST_F(DiffCommandTest, TheOtherWayRoundWhatHadGrownHasShrunk) {
  const Result result = run({"diff", path("b.pickle"), path("a.json"), "--json"});
  const auto list = nlohmann::json::parse(result.out)["by_tag"];
  EXPECT_EQ(owner(list, "tag", "cache")["change"], "shrunk");
  EXPECT_EQ(owner(list, "tag", "cache")["bytes"], -3 * kSignedMega);
  EXPECT_EQ(owner(list, "tag", "optimizer")["change"], "gone");
  EXPECT_EQ(owner(list, "tag", "old")["change"], "appeared");
}

TEST_F(DiffCommandTest, WhereBytesAreTheSameBlocksDecide) {
  write_pickle(make_snapshot({{0x1000000, {{6 * kSignedMega}}}}), path("one"));
  write_pickle(make_snapshot({{0x1000000, {{2 * kSignedMega}, {4 * kSignedMega}}}}), path("two"));
  const auto changes = [this](const char* a, const char* b) {
    return nlohmann::json::parse(run({"diff", path(a), path(b), "--json"}).out)["by_tag"];
  };
  EXPECT_EQ(changes("one", "two")["owners"][0]["change"], "grown");
  EXPECT_EQ(changes("two", "one")["owners"][0]["change"], "shrunk");
  EXPECT_EQ(changes("two", "two")["changed"], 0);
  EXPECT_EQ(changes("two", "two")["unchanged"], 1);
}

TEST_F(DiffCommandTest, TheLargestChangeIsFirstWhateverItsSign) {
  std::vector<std::int64_t> bytes;
  const auto json = diff_json();
  for (const auto& each : json["by_tag"]["owners"]) bytes.push_back(each["bytes"]);
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{5 * kSignedMega, -4 * kSignedMega, 3 * kSignedMega}));
}

TEST_F(DiffCommandTest, TheHeadSaysWhereTheMemoryOfBothIs) {
  const auto json = diff_json();
  EXPECT_EQ(json["a"]["live_bytes"], 7 * kSignedMega);
  EXPECT_EQ(json["a"]["live_blocks"], 3);
  EXPECT_EQ(json["a"]["free_split_bytes"], 9 * kSignedMega);
  EXPECT_EQ(json["a"]["reserved_bytes"], 16 * kSignedMega);
  EXPECT_EQ(json["b"]["live_bytes"], 11 * kSignedMega - 100);
  EXPECT_EQ(json["b"]["rounding_bytes"], 100);
  EXPECT_EQ(json["b"]["pending_bytes"], 8 * kSignedMega);
  EXPECT_EQ(json["b"]["reserved_bytes"], 19 * kSignedMega);
}

TEST_F(DiffCommandTest, FiltersAndLimitsNarrowIt) {
  const auto by_stream = diff_json({"--stream", "9", "--by", "tag"});
  EXPECT_FALSE(by_stream.contains("by_stack"));
  EXPECT_EQ(by_stream["by_tag"]["changed"], 2);  // what stream 9 holds, and did not
  const auto limited = diff_json({"--limit", "1", "--frames", "1", "--by", "stack"});
  EXPECT_EQ(limited["by_stack"]["changed"], 3);
  ASSERT_EQ(limited["by_stack"]["owners"].size(), 1u);
  EXPECT_EQ(limited["by_stack"]["owners"][0]["frames"].size(), 1u);
}

TEST_F(DiffCommandTest, TheTextNamesOwnersChangesAndFrames) {
  const std::string out = diff().out;
  EXPECT_THAT(out, HasSubstr("by tag: 3 changed, 1 unchanged\n"));
  EXPECT_THAT(out, HasSubstr("appeared       +5.00 MiB"));
  EXPECT_THAT(out, HasSubstr("gone           -4.00 MiB"));
  EXPECT_THAT(out, HasSubstr("    adam  adam.cpp:4\n    main  main.cpp:4\n"));
  EXPECT_THAT(out, Not(HasSubstr("weights")));
  EXPECT_THAT(diff({"--frames", "1"}).out, HasSubstr("    adam  adam.cpp:4\n    ... 1 more\n"));
  EXPECT_THAT(diff({"--limit", "1"}).out, HasSubstr("... 2 more\n"));
}

TEST_F(DiffCommandTest, BlocksWithoutAStackOrATagAreAnOwnerToo) {
  write_pickle(make_snapshot({{0x1000000, {{6 * kSignedMega}}}}), path("one"));
  write_pickle(make_snapshot({}), path("none"));
  const Result result = run({"diff", path("none"), path("one")});
  EXPECT_THAT(result.out, HasSubstr("(no tag)"));
  EXPECT_THAT(result.out, HasSubstr("(no stack)"));
  const auto json = nlohmann::json::parse(run({"diff", path("none"), path("one"), "--json"}).out);
  EXPECT_EQ(json["by_tag"]["owners"][0]["tag"], nullptr);
  EXPECT_EQ(json["by_stack"]["owners"][0]["frames"].size(), 0u);
}

TEST_F(DiffCommandTest, StandardInputCanBeOneOfTheTwo) {
  expect_refused(run({"diff", "-", "-"}), {"cistern diff", "- -", "at most one"});
}

TEST_F(DiffCommandTest, ASecondFileThatIsCutLeavesNothingPrinted) {
  expect_refused(run({"diff", path("a.json"), write("cut.json", "{\"segments\": [{\"device\"")}), {"cut.json"});
}

}  // namespace
}  // namespace cistern
