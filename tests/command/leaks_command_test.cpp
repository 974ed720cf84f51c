#include <gmock/gmock.h>

#include "tests/byte_units.h"
#include "tests/command/command_fixture.h"
#include "tests/command/made_snapshot.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kFirst = 0x1000000, kSecond = kFirst + kSignedMega, kThird = kFirst + 3 * kSignedMega;

class LeaksCommandTest : public CommandTest {
 protected:
  // Live: 1 MiB from before the history, 2 MiB allocated at 200 and 4 MiB allocated at 400. Within the history,
  // 3 MiB lived from 150 to 300 and 5 MiB, at the second one's place, from 160 to 180.
  LeaksCommandTest() {
    snapshot_ = make_snapshot({{kFirst,
                                {{kSignedMega, kLive, 0, 0},
                                 {2 * kSignedMega, kLive, 1, 1, 24},
                                 {4 * kSignedMega, kLive, 1, 1},
                                 {8 * kSignedMega, kPending, 0},
                                 {5 * kSignedMega, kFree}}}});
    snapshot_.stacks = {make_stack({"load", "main"}), make_stack({"step", "main"}), make_stack({"drop", "main"})};
    snapshot_.tags = {"weights", "activations"};
    using enum TraceAction;
    snapshot_.device_traces[0] = {
        make_entry(alloc, 0x9000000, 3 * kSignedMega, 150, 2),
        make_entry(alloc, kSecond, 5 * kSignedMega, 160, 2),
        make_entry(free_requested, kSecond, 5 * kSignedMega, 180),
        make_entry(free_completed, kSecond, 5 * kSignedMega, 180),
        make_entry(alloc, kSecond, 2 * kSignedMega - 24, 200, 1),
        make_entry(free_requested, 0x9000000, 3 * kSignedMega, 300),
        make_entry(free_completed, 0x9000000, 3 * kSignedMega, 300),
        make_entry(alloc, kThird, 4 * kSignedMega, 400, 1),
    };
    snapshot_.external_annotations = {{"step", true, 0, 140}, {"step", false, 0, 250}, {"eval", true, 0, 350}};
  }

  Result leaks(Arguments options = {}) const {
    write_pickle(snapshot_, path("s.pickle"));
    options.insert(options.begin(), {"leaks", path("s.pickle")});
    return run(options);
  }
  // Each group's bytes, the most first.
  std::vector<std::int64_t> groups(Arguments options = {}) const {
    options.push_back("--json");
    const Result result = leaks(options);
    std::vector<std::int64_t> bytes;
    EXPECT_EQ(result.err, "");
    const auto json = nlohmann::json::parse(result.out);
    for (const auto& group : json["groups"]) bytes.push_back(group["bytes"]);
    EXPECT_EQ(result.status, bytes.empty() ? kExitSuccess : kExitLeaks);
    return bytes;
  }
  using Bytes = std::vector<std::int64_t>;

  Snapshot snapshot_;
};

TEST_F(LeaksCommandTest, AtTheEndOfTheProcessWhatIsInCallersHandsIsALeak) {
  EXPECT_EQ(groups(), (Bytes{6 * kSignedMega, kSignedMega}));
  const auto json = nlohmann::json::parse(leaks({"--json"}).out);
  EXPECT_EQ(json["blocks"], 3);
  EXPECT_EQ(json["bytes"], 7 * kSignedMega);
  EXPECT_EQ(json["requested_bytes"], 7 * kSignedMega - 24);
  EXPECT_EQ(json["freed_later"], 0);
  EXPECT_EQ(json["groups"][0]["tag"], "activations");
  EXPECT_EQ(json["groups"][0]["blocks"], 2);
  EXPECT_EQ(json["groups"][0]["frames"][0]["name"], "step");
  EXPECT_EQ(json["since_us"], nullptr);
}

// A name that is misspelt would pass for a process without leaks.
TEST_F(LeaksCommandTest, ADeviceOrATagThatIsNotThereIsRefused) {
  expect_refused(leaks({"--device", "1"}), {"--device 1", "snapshot's 1"});
  expect_refused(leaks({"--tag", "wieghts"}), {"--tag 'wieghts'", "'weights', 'activations'"});
  snapshot_.tags = {"weights", "activations", "unused"};
  EXPECT_EQ(groups({"--tag", "unused"}), (Bytes{}));
  EXPECT_EQ(groups({"--device", "0", "--tag", ""}), (Bytes{}));
}

TEST_F(LeaksCommandTest, WithoutLiveBlocksThereAreNone) {
  snapshot_ = make_snapshot({{kFirst, {{kSignedMega, kPending}, {kSignedMega, kFree}}}});
  const Result result = leaks();
  EXPECT_EQ(result.status, kExitSuccess);
  EXPECT_EQ(result.out, "no leaks\n");
}

TEST_F(LeaksCommandTest, SinceAMomentOnlyWhatWasAllocatedFromThenOn) {
  EXPECT_EQ(groups({"--since", "150"}), (Bytes{6 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "200"}), (Bytes{6 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "201"}), (Bytes{4 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "401"}), (Bytes{}));
}

TEST_F(LeaksCommandTest, UntilAMomentWhatWasNotFreedByThen) {
  // At 170 the 5 and the 3 MiB lived, which are both freed later; at 299 the 2 and the 3 MiB.
  EXPECT_EQ(groups({"--since", "150", "--until", "170"}), (Bytes{8 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "150", "--until", "180"}), (Bytes{3 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "155", "--until", "299"}), (Bytes{2 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "150", "--until", "299"}), (Bytes{3 * kSignedMega, 2 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "150", "--until", "300"}), (Bytes{2 * kSignedMega}));
  const auto json = nlohmann::json::parse(leaks({"--since", "150", "--until", "299", "--json"}).out);
  EXPECT_EQ(json["freed_later"], 1);
  EXPECT_EQ(json["groups"][0]["freed_later"], 1);
  EXPECT_EQ(json["groups"][0]["frames"][0]["name"], "drop");
  EXPECT_EQ(json["groups"][1]["requested_bytes"], 2 * kSignedMega - 24);
}

TEST_F(LeaksCommandTest, ARangeIsFromItsStartToItsEnd) {
  snapshot_.segments[0].blocks[0].state = kPending;  // nothing is older than the history
  snapshot_.segments[0].allocated_size -= kSignedMega;
  EXPECT_EQ(groups({"--range", "step"}), (Bytes{3 * kSignedMega, 2 * kSignedMega}));
  EXPECT_EQ(groups({"--range", "eval"}), (Bytes{4 * kSignedMega}));  // it has not ended
  const auto json = nlohmann::json::parse(leaks({"--range", "step", "--json"}).out);
  EXPECT_EQ(json["since_us"], 140);
  EXPECT_EQ(json["until_us"], 250);
}

// What was allocated and freed before a ring's first entry has left nothing, although every live block is known.
TEST_F(LeaksCommandTest, ARangeThatEndedBeforeWhatTheRingStillHasIsRefused) {
  std::vector<TraceEntry>& entries = snapshot_.device_traces[0];
  entries.insert(entries.begin() + 1, make_entry(TraceAction::alloc, kFirst, kSignedMega, 155, 0));
  snapshot_.external_annotations = {{"step", true, 0, 100}, {"step", false, 0, 109}};
  EXPECT_EQ(groups({"--range", "step"}), Bytes{}) << "the ring has everything";
  snapshot_.settings.trace_alloc_overflowed = true;
  expect_refused(leaks({"--range", "step"}), {"--range", "from 150 on"});
  expect_refused(leaks({"--since", "107", "--until", "109"}), {"--since 107", "from 150 on"});
  EXPECT_EQ(groups({"--since", "107", "--until", "150"}), (Bytes{3 * kSignedMega}));
}

TEST_F(LeaksCommandTest, ARangeBeginsAndEndsOnOneDevice) {
  snapshot_.device_traces.resize(3);
  snapshot_.external_annotations = {
      {"step", true, 0, 150}, {"step", true, 1, 160}, {"step", false, 1, 175}, {"step", false, 0, 190}};
  const auto moments = [this](const char* device) {
    const auto json = nlohmann::json::parse(leaks({"--range", "step", "--device", device, "--json"}).out);
    return std::pair<std::int64_t, std::int64_t>(json["since_us"], json["until_us"]);
  };
  EXPECT_EQ(moments("0"), (std::pair<std::int64_t, std::int64_t>(150, 190)));
  EXPECT_EQ(moments("1"), (std::pair<std::int64_t, std::int64_t>(160, 175)));
  EXPECT_EQ(moments("2"), (std::pair<std::int64_t, std::int64_t>(150, 190))) << "none of its own: the last of any";
}

TEST_F(LeaksCommandTest, OfSeveralRangesTheLastThatEndedCounts) {
  snapshot_.external_annotations = {{"step", true, 0, 150},  {"step", false, 0, 155}, {"step", true, 0, 156},
                                    {"step", true, 0, 190},  {"step", false, 0, 210}, {"step", false, 0, 305},
                                    {"step", true, 0, 10000}};
  EXPECT_EQ(groups({"--range", "step"}), (Bytes{2 * kSignedMega}));
  const auto json = nlohmann::json::parse(leaks({"--range", "step", "--json"}).out);
  EXPECT_EQ(json["since_us"], 156);
  EXPECT_EQ(json["until_us"], 305);
}

TEST_F(LeaksCommandTest, OlderThanSoManyEntries) {
  EXPECT_EQ(groups({"--older-than", "0"}), (Bytes{6 * kSignedMega, kSignedMega}));
  EXPECT_EQ(groups({"--older-than", "1"}), (Bytes{2 * kSignedMega, kSignedMega}));
  EXPECT_EQ(groups({"--older-than", "3"}), (Bytes{2 * kSignedMega, kSignedMega}));
  EXPECT_EQ(groups({"--older-than", "4"}), (Bytes{kSignedMega}));
  EXPECT_EQ(groups({"--older-than", "8"}), (Bytes{kSignedMega}));
  expect_refused(leaks({"--older-than", "9"}), {"--older-than 9", "at most 8"});
}

TEST_F(LeaksCommandTest, WhatTheHistoryCannotTellIsRefused) {
  expect_refused(leaks({"--since", "149"}), {"--since 149", "a moment from 150 on", "device 0"});
  // Everything that is live is in the history, and so nothing can be missing.
  snapshot_.segments[0].blocks[0].state = kPending;
  snapshot_.segments[0].allocated_size -= kSignedMega;
  EXPECT_EQ(groups({"--since", "1"}), (Bytes{6 * kSignedMega}));
  EXPECT_EQ(groups({"--since", "1", "--until", "299"}), (Bytes{3 * kSignedMega, 2 * kSignedMega}));
  // But for what was allocated before it and freed after the moment.
  snapshot_.device_traces[0].push_back(make_entry(TraceAction::free_requested, 0xa000000, kSignedMega, 500));
  expect_refused(leaks({"--since", "1", "--until", "299"}), {"--since 1", "a moment from 150 on"});
  EXPECT_EQ(groups({"--since", "1"}), (Bytes{6 * kSignedMega}));

  for (TraceEntry& entry : snapshot_.device_traces[0]) entry.time_us = 0;
  expect_refused(leaks({"--since", "150"}), {"--since 150", "a history with time_us"});
  snapshot_.device_traces[0].clear();
  expect_refused(leaks({"--since", "150"}), {"--since 150", "a snapshot with a history"});
  expect_refused(leaks({"--range", "train"}), {"--range", "'train'", "'eval', 'step'"});
}

TEST_F(LeaksCommandTest, FiltersNarrowIt) {
  EXPECT_EQ(groups({"--tag", "weights"}), (Bytes{kSignedMega}));
  EXPECT_EQ(groups({"--stack", "step"}), (Bytes{6 * kSignedMega}));
}

TEST_F(LeaksCommandTest, TheTextNamesOwnersAndFrames) {
  const Result result = leaks();
  EXPECT_EQ(result.status, kExitLeaks);
  EXPECT_THAT(result.out, HasSubstr("leaked: 7.00 MiB in 3 blocks, by 2 owners\n"));
  EXPECT_THAT(result.out,
              HasSubstr("6.00 MiB in 2 blocks   activations\n    step  step.cpp:4\n    main  main.cpp:4\n"));
  EXPECT_THAT(leaks({"--limit", "1"}).out, HasSubstr("... 1 more owners\n"));
  EXPECT_THAT(leaks({"--since", "150", "--until", "299"}).out, HasSubstr("3.00 MiB in 1 block (1 freed later)"));
}

TEST_F(LeaksCommandTest, OptionsThatContradictEachOtherAreRefused) {
  expect_refused(leaks({"--until", "7"}), {"--until", "--since"});
  expect_refused(leaks({"--since", "7", "--until", "6"}), {"--until 6", "--since 7"});
  expect_refused(leaks({"--since", "7", "--range", "step"}), {"--range", "one of them"});
  expect_refused(leaks({"--older-than", "7", "--range", "step"}), {"--older-than", "one of them"});
}

}  // namespace
}  // namespace cistern
