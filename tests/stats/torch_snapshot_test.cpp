// A snapshot as PyTorch writes it. Pickles are read back by the command's reader and by Python, in tests/tools.

#include <cistern/error.h>
#include <cistern/snapshot.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace cistern {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Snapshot sample() {
  Snapshot snapshot;
  snapshot.stacks = {{FrameInfo{"a.cpp", 3, "f"}, FrameInfo{"", 0, "main"}}};
  snapshot.tags = {"optimizer"};
  snapshot.texts = {"noted"};
  SegmentInfo segment;
  segment.device = 1;
  segment.address = 0x7f0000000000;
  segment.total_size = segment.allocated_size = segment.active_size = 512;
  segment.requested_size = 500;
  segment.segment_pool_id = {0, 2};
  segment.blocks = {{0x7f0000000000, 512, 500, BlockState::active_allocated, 0, 0}};
  snapshot.segments = {segment};
  TraceEntry alloc;
  alloc.address = 0x7f0000000000;
  alloc.size = 500;
  alloc.time_us = 1700000000000010;
  alloc.stack = 0;
  alloc.tag = 0;
  alloc.user_metadata = 0;
  TraceEntry oom;
  oom.action = TraceAction::oom;
  oom.address = 77;
  oom.size = 512;
  snapshot.device_traces = {{}, {alloc, oom}};
  snapshot.external_annotations = {{"step", false, 1, 1700000000000020}};
  snapshot.settings.trace_alloc_overflowed = true;
  snapshot.settings.trace_alloc_max_entries = 10;
  return snapshot;
}

json as_torch_json(const Snapshot& snapshot) {
  std::ostringstream out;
  write_torch_json(snapshot, out);
  return json::parse(out.str());
}

std::string refusal(const Snapshot& snapshot) {
  std::ostringstream out;
  try {
    write_pickle(snapshot, out);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

const json kFrames = json::array(
    {{{"name", "f"}, {"filename", "a.cpp"}, {"line", 3}}, {{"name", "main"}, {"filename", ""}, {"line", 0}}});

TEST(TorchSnapshot, StacksStandInPlaceOfTheirIndices) {
  const json written = as_torch_json(sample());
  EXPECT_EQ(written["segments"][0]["blocks"][0]["frames"], kFrames);
  EXPECT_EQ(written["segments"][0]["frames"], json::array());
  EXPECT_EQ(written["device_traces"][1][0]["frames"], kFrames);
  EXPECT_FALSE(written["device_traces"][1][1].contains("frames"));
  EXPECT_FALSE(written.contains("stacks"));
}

TEST(TorchSnapshot, FramesSayWhereTheirCodeWas) {
  Snapshot snapshot = sample();
  snapshot.modules = {{"/lib/a.so", "ab12"}};
  FrameInfo frame = snapshot.stacks[0][0];
  frame.address = 0x7f0000001234;
  frame.module = 0;
  frame.offset = 0x1234;
  snapshot.stacks[0][0] = frame;
  json written = as_torch_json(snapshot);
  json frames = kFrames;
  frames[0]["address"] = 0x7f0000001234;
  frames[0]["module"] = 0;
  frames[0]["offset"] = 0x1234;
  EXPECT_EQ(written["segments"][0]["blocks"][0]["frames"], frames) << "what is not known is not there";
  EXPECT_EQ(written["modules"], json::parse(R"([{"path": "/lib/a.so", "build_id": "ab12"}])"));
  frame.module = 1;
  snapshot.stacks[0][0] = frame;
  EXPECT_EQ(refusal(snapshot), "snapshot: module 1: expected an index below 1, or -1 for none");
}

TEST(TorchSnapshot, SegmentsSayTheRangeThatTheyGrowIn) {
  Snapshot snapshot = sample();
  EXPECT_FALSE(as_torch_json(snapshot)["segments"][0].contains("range_size"));
  snapshot.segments[0].is_expandable = true;
  snapshot.segments[0].range_address = 0x7f0000000000;
  snapshot.segments[0].range_size = 1 << 30;
  const json segment = as_torch_json(snapshot)["segments"][0];
  EXPECT_EQ(segment["range_address"], 0x7f0000000000);
  EXPECT_EQ(segment["range_size"], 1 << 30);
}

TEST(TorchSnapshot, EntriesHavePyTorchsKeys) {
  const json history = as_torch_json(sample())["device_traces"][1];
  EXPECT_EQ(history[0], json({{"action", "alloc"},
                              {"addr", 0x7f0000000000},
                              {"size", 500},
                              {"stream", 0},
                              {"time_us", 1700000000000010},
                              {"frames", kFrames},
                              {"compile_context", "N/A"},
                              {"user_metadata", "noted"},
                              {"pool_id", {0, 0}},
                              {"tag", 0}}));
  EXPECT_EQ(history[1]["device_free"], 77);
  EXPECT_FALSE(history[1].contains("addr"));
  EXPECT_EQ(history[1]["user_metadata"], "");
}

TEST(TorchSnapshot, EveryDeviceHasAHistory) {
  Snapshot snapshot = sample();
  snapshot.device_traces.clear();
  EXPECT_EQ(as_torch_json(snapshot)["device_traces"], json::parse("[[], []]"));
}

TEST(TorchSnapshot, SettingsAndAnnotationsAreThere) {
  const json written = as_torch_json(sample());
  EXPECT_EQ(written["external_annotations"][0],
            json({{"name", "step"}, {"stage", "END"}, {"device", 1}, {"time_us", 1700000000000020}}));
  EXPECT_EQ(written["allocator_settings"]["trace_alloc_overflowed"], true);
  EXPECT_EQ(written["allocator_settings"]["trace_alloc_max_entries"], 10);
  EXPECT_EQ(written["allocator_settings"]["roundup_power2_divisions"].size(), 16u);
  EXPECT_TRUE(written["allocator_settings"]["garbage_collection_threshold"].is_number_float());
}

TEST(TorchSnapshot, IndicesThatNameNothingAreRefused) {
  Snapshot snapshot = sample();
  snapshot.device_traces[1][0].stack = 1;
  EXPECT_EQ(refusal(snapshot), "snapshot: stack 1: expected an index below 1, or -1 for none");
  snapshot = sample();
  snapshot.segments[0].blocks[0].tag = -2;
  EXPECT_THAT(refusal(snapshot), HasSubstr("tag -2: expected an index below 1"));
  snapshot = sample();
  snapshot.device_traces[1][0].user_metadata = 5;
  EXPECT_THAT(refusal(snapshot), HasSubstr("user_metadata 5"));
}

TEST(TorchSnapshot, AddressesThatPythonsReadersTakeForNegativeAreRefused) {
  Snapshot snapshot = sample();
  snapshot.segments[0].address = std::uint64_t{1} << 63;
  EXPECT_EQ(refusal(snapshot), "snapshot: address 9223372036854775808: expected an address below 2^63");
}

TEST(TorchSnapshot, AProtocolThatTheViewerDoesNotReadIsRefused) {
  std::ostringstream out;
  EXPECT_THROW(write_pickle(sample(), out, 5), InvalidArgument);
  EXPECT_THROW(write_pickle(sample(), ::testing::TempDir() + "no such folder/x.pickle"), InvalidArgument);
}

}  // namespace
}  // namespace cistern
