#include <gmock/gmock.h>

#include "tests/byte_units.h"
#include "tests/command/command_fixture.h"
#include "tests/command/made_snapshot.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class BlocksCommandTest : public CommandTest {
 protected:
  // By address: sizes 512, 1024, 2 MiB - 1536; 4, 6 and 10 MiB of another stream; 3 MiB of another device and pool.
  BlocksCommandTest() {
    snapshot_ = make_snapshot(
        {{0x1000000, {{512, kLive, 0, 0, 12}, {1024, kPending, 1}, {2 * kSignedMega - 1536, kFree}}},
         {0x2000000, {{4 * kSignedMega, kLive, 1, 1}, {6 * kSignedMega, kFree}, {10 * kSignedMega, kLive, 0, 1}}, 77},
         {0x4000000, {{3 * kSignedMega, kLive}}, 0, 1, {0, 1}, true}},
        2);
    snapshot_.stacks = {make_stack({"load", "main"}), make_stack({"step", "main"})};
    snapshot_.tags = {"weights", "activations"};
    write_torch_json(snapshot_, path("s.json"));
  }

  Result list(Arguments options) const {
    options.insert(options.begin(), {"blocks", path("s.json")});
    return run(options);
  }
  std::vector<std::int64_t> sizes(Arguments options) const {
    options.push_back("--json");
    const Result result = list(options);
    EXPECT_EQ(result.status, kExitSuccess) << result.err;
    std::vector<std::int64_t> sizes;
    const auto json = nlohmann::json::parse(result.out);
    for (const auto& block : json["blocks"]) sizes.push_back(block["size"]);
    return sizes;
  }

  Snapshot snapshot_;
};

TEST_F(BlocksCommandTest, ListsEveryBlockByAddress) {
  EXPECT_THAT(sizes({}), ElementsAre(512, 1024, 2 * kSignedMega - 1536, 4 * kSignedMega, 6 * kSignedMega,
                                     10 * kSignedMega, 3 * kSignedMega));
}

TEST_F(BlocksCommandTest, EachFilterKeepsWhatItNames) {
  EXPECT_THAT(sizes({"--state", "active_pending_free"}), ElementsAre(1024));
  EXPECT_THAT(sizes({"--state", "inactive"}), ElementsAre(2 * kSignedMega - 1536, 6 * kSignedMega));
  EXPECT_THAT(sizes({"--min-size", "4MiB"}), ElementsAre(4 * kSignedMega, 6 * kSignedMega, 10 * kSignedMega));
  EXPECT_THAT(sizes({"--max-size", "1024"}), ElementsAre(512, 1024));
  EXPECT_THAT(sizes({"--stream", "77"}), ElementsAre(4 * kSignedMega, 6 * kSignedMega, 10 * kSignedMega));
  EXPECT_THAT(sizes({"--stream", "0x4d"}), ElementsAre(4 * kSignedMega, 6 * kSignedMega, 10 * kSignedMega));
  EXPECT_THAT(sizes({"--device", "1"}), ElementsAre(3 * kSignedMega));
  EXPECT_THAT(sizes({"--pool", "0,1"}), ElementsAre(3 * kSignedMega));
  EXPECT_THAT(sizes({"--kind", "small"}), ElementsAre(512, 1024, 2 * kSignedMega - 1536));
  EXPECT_THAT(sizes({"--kind", "large"}),
              ElementsAre(4 * kSignedMega, 6 * kSignedMega, 10 * kSignedMega, 3 * kSignedMega));
  EXPECT_THAT(sizes({"--kind", "expandable"}), ElementsAre(3 * kSignedMega));
  EXPECT_THAT(sizes({"--tag", "activations"}), ElementsAre(4 * kSignedMega, 10 * kSignedMega));
  EXPECT_THAT(sizes({"--tag", "", "--state", "active_allocated"}), ElementsAre(3 * kSignedMega));
  EXPECT_THAT(sizes({"--tag", "nobody"}), ElementsAre());
  EXPECT_THAT(sizes({"--stack", "step"}), ElementsAre(1024, 4 * kSignedMega));
  EXPECT_THAT(sizes({"--stack", "load.cpp:4"}), ElementsAre(512, 10 * kSignedMega));
  EXPECT_THAT(sizes({"--stack", ""}), ElementsAre(2 * kSignedMega - 1536, 6 * kSignedMega, 3 * kSignedMega));
  EXPECT_THAT(sizes({"--stack", "main", "--stream", "77", "--tag", "activations", "--max-size", "5MiB"}),
              ElementsAre(4 * kSignedMega));
}

TEST_F(BlocksCommandTest, SortsByOneKeyOrMore) {
  EXPECT_THAT(sizes({"--sort", "size", "--min-size", "3MiB"}),
              ElementsAre(3 * kSignedMega, 4 * kSignedMega, 6 * kSignedMega, 10 * kSignedMega));
  EXPECT_THAT(sizes({"--sort", "size", "--reverse", "--min-size", "3MiB"}),
              ElementsAre(10 * kSignedMega, 6 * kSignedMega, 4 * kSignedMega, 3 * kSignedMega));
  EXPECT_THAT(sizes({"--sort", "state,size"}), ElementsAre(2 * kSignedMega - 1536, 6 * kSignedMega, 512,
                                                           3 * kSignedMega, 4 * kSignedMega, 10 * kSignedMega, 1024));
  EXPECT_THAT(sizes({"--sort", "tag,stack", "--state", "active_allocated"}),
              ElementsAre(3 * kSignedMega, 10 * kSignedMega, 4 * kSignedMega, 512));
  EXPECT_THAT(sizes({"--sort", "stream,pool,kind,device,requested,address", "--max-size", "1024"}),
              ElementsAre(512, 1024));
}

TEST_F(BlocksCommandTest, ALimitShortensTheListAndNotTheCount) {
  const Result result = list({"--sort", "size", "--reverse", "--limit", "2", "--json"});
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["blocks"].size(), 2u);
  EXPECT_EQ(json["matching_blocks"], 7);
  EXPECT_EQ(json["matching_bytes"], 25 * kSignedMega);
  EXPECT_EQ(json["matching_requested_bytes"], 17 * kSignedMega + 1536 - 12);
  EXPECT_THAT(list({"--limit", "2"}).out, HasSubstr("... 5 more\n"));
  EXPECT_THAT(list({"--limit", "7"}).out, Not(HasSubstr("more")));
}

TEST_F(BlocksCommandTest, EachBlockSaysAllThatIsKnownOfIt) {
  const auto json = nlohmann::json::parse(list({"--json"}).out);
  const auto& blocks = json["blocks"];
  EXPECT_EQ(blocks[0], nlohmann::json::parse(R"({"address": 16777216, "size": 512, "requested_size": 500,
      "state": "active_allocated", "device": 0, "stream": 0, "segment": 16777216, "segment_type": "small",
      "is_expandable": false, "segment_pool_id": [0, 0], "tag": "weights", "stack": 0})"));
  EXPECT_EQ(blocks[2]["requested_size"], nullptr);
  EXPECT_EQ(blocks[2]["tag"], nullptr);
  EXPECT_EQ(blocks[2]["stack"], nullptr);
  EXPECT_EQ(blocks[6]["is_expandable"], true);
  EXPECT_EQ(json["stacks"][1][0], (nlohmann::json{{"name", "step"}, {"filename", "step.cpp"}, {"line", 4}}));
  // Only the stacks of blocks that are listed, each once.
  EXPECT_EQ(nlohmann::json::parse(list({"--json", "--stack", "step"}).out)["stacks"].size(), 1u);
}

TEST_F(BlocksCommandTest, TheTableHasALineABlockAndTheSum) {
  const Result result = list({"--tag", "weights"});
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 3);
  EXPECT_THAT(result.out, HasSubstr("0x000001000000"));
  EXPECT_THAT(result.out, HasSubstr("load  load.cpp:4"));
  EXPECT_THAT(result.out, HasSubstr("1 block, 512 bytes (512 bytes), of which 500 bytes requested\n"));
}

TEST_F(BlocksCommandTest, WhatAFileNamesCannotCommandATerminal) {
  snapshot_.tags[0] =
      "red\x1b[31m\xc2\x9b"
      "1m\nline";
  FrameInfo frame = snapshot_.stacks[0][0];
  frame.name = "f\r\x7f";
  snapshot_.stacks[0][0] = frame;
  write_pickle(snapshot_, path("s.json"));
  const Result result = list({});
  EXPECT_EQ(result.status, kExitSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("red?[31m?1m?line"));
  EXPECT_THAT(result.out, HasSubstr("f??"));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

TEST_F(BlocksCommandTest, BadValuesAreRefusedWithWhatWasExpected) {
  expect_refused(list({"--state", "live"}), {"cistern blocks", "--state", "'live'", "active_pending_free"});
  expect_refused(list({"--kind", "Small"}), {"--kind", "'Small'", "small, large or expandable"});
  expect_refused(list({"--sort", "size,"}), {"--sort", "'size,'", "address"});
  expect_refused(list({"--sort", "weight"}), {"--sort", "'weight'", "requested"});
  for (const char* bad : {"", "-1", "1x", "0x", "9223372036854775808", "0x-1"})
    expect_refused(list({"--stream", bad}), {"--stream", "handle"});
  for (const char* bad : {"", "0", "0,", ",1", "0,1,2", "0;1", "-1,0"})
    expect_refused(list({"--pool", bad}), {"--pool", "a pool's two numbers"});
}

}  // namespace
}  // namespace cistern
