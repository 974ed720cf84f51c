#include "tools/snapshot_reader.h"

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/temporary_file.h"
#include "tools/snapshot_stats.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

std::string refused_snapshot(std::string_view text) {
  try {
    static_cast<void>(parse_snapshot(text, "s.json"));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(const Json& json) { return refused_snapshot(json.dump(1)); }

std::string written(const Snapshot& snapshot) {
  std::ostringstream out;
  write_json(snapshot, out);
  return out.str();
}

Json block(std::uint64_t address, std::int64_t size, std::int64_t requested, const char* state) {
  return {
      {"address", address}, {"size", size}, {"requested_size", requested}, {"state", state}, {"frames", Json::array()}};
}

Json trace_entry(const char* action, std::uint64_t address, std::int64_t size) {
  return {{"action", action}, {"addr", address}, {"size", size}, {"stream", 0}, {"time_us", 1700000000000010}};
}

// One device with a small segment: a live, a pending and a free block.
Json sample() {
  Json segment = {{"device", 0},
                  {"address", 4096},
                  {"total_size", 2097152},
                  {"allocated_size", 1024},
                  {"active_size", 1536},
                  {"requested_size", 1500},
                  {"stream", 94015774916624},
                  {"segment_type", "small"},
                  {"segment_pool_id", {0, 1}},
                  {"is_expandable", false},
                  {"frames", Json::array()}};
  segment["blocks"] = Json::array({block(4096, 1024, 1000, "active_allocated"),
                                   block(5120, 512, 500, "active_pending_free"), block(5632, 2095616, 7, "inactive")});
  Json json;
  json["segments"] = Json::array({segment});
  json["device_traces"] = Json::array({Json::array({trace_entry("alloc", 4096, 1000)})});
  json["allocator_settings"] = {{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:30"},
                                {"max_split_size", 31457280},
                                {"garbage_collection_threshold", 0.5},
                                {"expandable_segments", true},
                                {"pinned_num_register_threads", 8},
                                {"release_lock_on_cudamalloc", true},
                                {"pinned_use_cuda_host_register", true},
                                {"roundup_power2_divisions", {{"1", 0}, {"256", 4}}}};
  json["external_annotations"] = Json::array();
  return json;
}

Json& segment(Json& json) { return json["segments"][0]; }

TEST(SnapshotReader, SegmentsAndBlocksAreRead) {
  const Snapshot snapshot = parse_snapshot(sample().dump(), "s.json");
  ASSERT_EQ(snapshot.segments.size(), 1u);
  const SegmentInfo& segment = snapshot.segments[0];
  EXPECT_EQ(segment.device, 0);
  EXPECT_EQ(segment.address, 4096u);
  EXPECT_EQ(segment.total_size, 2097152);
  EXPECT_EQ(segment.allocated_size, 1024);
  EXPECT_EQ(segment.active_size, 1536);
  EXPECT_EQ(segment.requested_size, 1500);
  EXPECT_EQ(segment.stream, 94015774916624);
  EXPECT_FALSE(segment.is_large);
  EXPECT_EQ(segment.segment_pool_id, std::pair(std::int64_t{0}, std::int64_t{1}));
  EXPECT_FALSE(segment.is_expandable);
  ASSERT_EQ(segment.blocks.size(), 3u);
  EXPECT_EQ(segment.blocks[1].address, 5120u);
  EXPECT_EQ(segment.blocks[1].size, 512);
  EXPECT_EQ(segment.blocks[1].requested_size, 500);
  EXPECT_EQ(segment.blocks[1].state, BlockState::active_pending_free);
  EXPECT_EQ(segment.blocks[2].state, BlockState::inactive);
}

TEST(SnapshotReader, SettingsAreReadAndMayBeAbsent) {
  const AllocatorSettings settings = parse_snapshot(sample().dump(), "s.json").settings;
  EXPECT_EQ(settings.text, "max_split_size_mb:30");
  EXPECT_EQ(settings.max_split_size, 31457280);
  EXPECT_EQ(settings.garbage_collection_threshold, 0.5);
  EXPECT_TRUE(settings.expandable_segments);
  EXPECT_EQ(settings.pinned_num_register_threads, 8);
  EXPECT_TRUE(settings.release_lock_on_cudamalloc);
  EXPECT_TRUE(settings.pinned_use_cuda_host_register);
  EXPECT_FALSE(settings.graph_capture_record_stream_reuse);
  EXPECT_EQ(settings.roundup_power2_divisions, (std::map<std::int64_t, std::int64_t>{{1, 0}, {256, 4}}));

  Json json = sample();
  json.erase("allocator_settings");
  EXPECT_EQ(parse_snapshot(json.dump(), "s.json").settings.max_split_size, -1);
}

TEST(SnapshotReader, WhatWriteJsonWritesIsReadBack) {
  Snapshot snapshot = parse_snapshot(sample().dump(), "s.json");
  MemoryStats stats;
  stats.allocated_bytes.large_pool.peak = 12345;
  stats.oversize_segments.freed = 3;
  stats.num_ooms = 2;
  stats.max_split_size = 31457280;
  snapshot.device_stats = {stats, MemoryStats{}};

  const std::string text = written(snapshot);
  const Snapshot again = parse_snapshot(text, "s.json");
  EXPECT_EQ(again.device_stats, snapshot.device_stats);
  EXPECT_EQ(written(again), text);
}

TEST(SnapshotReader, SegmentsComeByDeviceThenAddress) {
  Json json = sample();
  json["device_traces"].push_back(Json::array());
  Json second = segment(json);
  second["device"] = 1;
  Json third = segment(json);
  third["address"] = 2101248;
  third["blocks"] =
      Json::array({block(2101248, 1024, 1000, "active_allocated"), block(2102272, 512, 500, "active_pending_free"),
                   block(2102784, 2095616, 7, "inactive")});
  json["segments"] = Json::array({second, third, segment(json)});
  const Snapshot snapshot = parse_snapshot(json.dump(), "s.json");
  EXPECT_EQ(snapshot.segments[0].address, 4096u);
  EXPECT_EQ(snapshot.segments[1].address, 2101248u);
  EXPECT_EQ(snapshot.segments[2].device, 1);
}

TEST(SnapshotReader, UnknownKeysAreIgnoredAtEveryLevel) {
  Json json = sample();
  const Json extra = {{"deep", {1, {2, {3}}}}};
  json["extra"] = extra;
  segment(json)["extra"] = extra;
  segment(json)["blocks"][0]["forward_frames"] = {"f", "g"};
  json["allocator_settings"]["extra"] = extra;
  EXPECT_EQ(refusal_of(json), "");
}

TEST(SnapshotReader, EveryKeyThatASegmentNeedsIsAskedFor) {
  for (const char* key : {"device", "address", "total_size", "allocated_size", "active_size", "requested_size",
                          "stream", "segment_type", "segment_pool_id", "is_expandable", "blocks"}) {
    Json json = sample();
    segment(json).erase(key);
    EXPECT_THAT(refusal_of(json), AllOf(StartsWith("s.json: 'segments[0]: {...}'"),
                                        EndsWith("expected the key \"" + std::string(key) + '"')));
  }
}

TEST(SnapshotReader, EveryKeyThatABlockNeedsIsAskedFor) {
  for (const char* key : {"address", "size", "requested_size", "state"}) {
    Json json = sample();
    segment(json)["blocks"][1].erase(key);
    EXPECT_THAT(refusal_of(json),
                AllOf(HasSubstr("segments[0].blocks[1]"), EndsWith("expected the key \"" + std::string(key) + '"')));
  }
}

TEST(SnapshotReader, FramesMayBeAbsentButAreAList) {
  Json json = sample();
  segment(json).erase("frames");
  segment(json)["blocks"][0].erase("frames");
  EXPECT_EQ(refusal_of(json), "");
  segment(json)["blocks"][0]["frames"] = "main";
  EXPECT_THAT(refusal_of(json), HasSubstr("segments[0].blocks[0].frames: \"main\"': expected a list"));
}

TEST(SnapshotReader, TopLevelNeedsSegmentsAndTraces) {
  for (const char* key : {"segments", "device_traces"}) {
    Json json = sample();
    json.erase(key);
    EXPECT_THAT(refusal_of(json), EndsWith("expected the key \"" + std::string(key) + '"'));
    json[key] = 5;
    EXPECT_THAT(refusal_of(json), HasSubstr(std::string(key) + ": 5': expected a list"));
  }
  EXPECT_THAT(refused_snapshot("7"), HasSubstr("expected an object with segments and device_traces"));
}

TEST(SnapshotReader, WrongTypesNameTheValueAndTheWayToIt) {
  const auto with = [](const char* key, const Json& value) {
    Json json = sample();
    segment(json)[key] = value;
    return refusal_of(json);
  };
  EXPECT_EQ(with("total_size", "2097152"),
            "s.json: 'segments[0].total_size: \"2097152\"': expected an integer of at least 1");
  EXPECT_THAT(with("device", "0"), HasSubstr("expected an integer"));
  EXPECT_THAT(with("device", -1), HasSubstr("expected an integer"));
  EXPECT_THAT(with("stream", 1.5), HasSubstr("stream: 1.5': expected an integer"));
  EXPECT_THAT(with("stream", 18446744073709551615u), HasSubstr("expected an integer"));
  EXPECT_THAT(with("total_size", -1), HasSubstr("at least 1"));
  EXPECT_THAT(with("address", nullptr), HasSubstr("address: null': expected an integer"));
  EXPECT_THAT(with("segment_type", "medium"), HasSubstr("expected \"large\" or \"small\""));
  EXPECT_THAT(with("segment_pool_id", {0}), HasSubstr("expected a list of two integers"));
  EXPECT_THAT(with("segment_pool_id", {0, "x"}), HasSubstr("segment_pool_id[1]: \"x\"': expected an integer"));
  EXPECT_THAT(with("is_expandable", 0), HasSubstr("expected true or false"));
  EXPECT_THAT(with("blocks", Json::object()), HasSubstr("blocks: {}': expected a list"));
}

TEST(SnapshotReader, TheRangeOfAnExpandableSegmentMustHoldIt) {
  Json json = sample();
  const auto with = [&](std::uint64_t address, std::int64_t size, bool is_expandable = true) {
    Json changed = sample();
    Json& each = segment(changed);
    each["is_expandable"] = is_expandable;
    each["range_address"] = address;
    each["range_size"] = size;
    return changed;
  };
  const std::int64_t bytes = segment(json)["total_size"];
  const SegmentInfo read = parse_snapshot(with(4096, bytes).dump(), "s.json").segments[0];
  EXPECT_EQ(read.range_address, 4096U);
  EXPECT_EQ(read.range_size, bytes);
  EXPECT_EQ(parse_snapshot(with(0, bytes + 4096).dump(), "s.json").segments[0].range_address, 0U);
  EXPECT_THAT(refusal_of(with(4097, bytes + 4096)), HasSubstr("range, which holds it"));
  EXPECT_THAT(refusal_of(with(0, bytes + 4095)), HasSubstr("range, which holds it"));
  EXPECT_THAT(refusal_of(with(4096, bytes - 1)), HasSubstr("range_size"));
  EXPECT_THAT(refusal_of(with(4096, bytes, false)), HasSubstr("range, which holds it"));
}

TEST(SnapshotReader, UnknownStateNamesTheStates) {
  Json json = sample();
  segment(json)["blocks"][1]["state"] = "active_awaiting_free";
  EXPECT_THAT(refusal_of(json),
              AllOf(HasSubstr("blocks[1].state: \"active_awaiting_free\""), HasSubstr("\"active_pending_free\"")));
}

TEST(SnapshotReader, BlocksMustTileTheirSegment) {
  Json gap = sample();
  segment(gap)["blocks"][1]["address"] = 5632;
  EXPECT_THAT(refusal_of(gap), HasSubstr("expected 5120, where the block before ends"));
  Json too_long = sample();
  segment(too_long)["blocks"][2]["size"] = 2095617;
  EXPECT_THAT(refusal_of(too_long), HasSubstr("expected blocks that end where their segment does"));
  Json too_short = sample();
  segment(too_short)["blocks"].erase(2);
  EXPECT_THAT(refusal_of(too_short),
              HasSubstr("segments[0].total_size: 2097152': expected 1536, the sum of its blocks"));
  Json empty = sample();
  segment(empty)["blocks"][1]["size"] = 0;
  EXPECT_THAT(refusal_of(empty), HasSubstr("blocks[1].size: 0': expected an integer of at least 1"));
}

TEST(SnapshotReader, SumsMustAddUp) {
  for (const char* key : {"allocated_size", "active_size", "requested_size"}) {
    Json json = sample();
    segment(json)[key] = 5;
    EXPECT_THAT(refusal_of(json), AllOf(HasSubstr(std::string(key) + ": 5'"), HasSubstr("the sum of")));
  }
}

TEST(SnapshotReader, RequestedSizeOfAFreeBlockIsStale) {
  Json json = sample();
  segment(json)["blocks"][2]["requested_size"] = 99999999;
  EXPECT_EQ(refusal_of(json), "");
  segment(json)["blocks"][0]["requested_size"] = 1025;
  EXPECT_THAT(refusal_of(json), HasSubstr("expected an integer from 0 to 1024"));
}

TEST(SnapshotReader, DeviceNeedsAListOfItsHistory) {
  Json json = sample();
  segment(json)["device"] = 2147483647;
  EXPECT_THAT(refusal_of(json), HasSubstr("expected a device with a list in device_traces, which has 1"));
}

TEST(SnapshotReader, SizesAtTheEdgeOfTheAddressSpaceDoNotWrap) {
  Json json = sample();
  segment(json)["address"] = 18446744073709551615u;
  segment(json)["total_size"] = 9223372036854775807;
  segment(json)["blocks"] = Json::array({block(18446744073709551615u, 9223372036854775807, 0, "active_allocated"),
                                         block(9223372036854775806u, 9223372036854775807, 0, "inactive")});
  EXPECT_THAT(refusal_of(json), HasSubstr("blocks that end where their segment does"));
}

// A segment that is one live block.
Json whole_segment(int device, std::uint64_t address, std::int64_t size) {
  Json json = sample()["segments"][0];
  json["device"] = device;
  json["address"] = address;
  for (const char* key : {"total_size", "allocated_size", "active_size", "requested_size"}) json[key] = size;
  json["blocks"] = Json::array({block(address, size, size, "active_allocated")});
  return json;
}

Json with_segments(const std::vector<Json>& segments) {
  Json json = sample();
  json["segments"] = segments;
  json["device_traces"] = {Json::array(), Json::array()};
  return json;
}

TEST(SnapshotReader, SegmentsOfADeviceDoNotOverlap) {
  EXPECT_EQ(refusal_of(with_segments({whole_segment(0, 8192, 4096), whole_segment(0, 4096, 4096)})), "");
  EXPECT_EQ(refusal_of(with_segments({whole_segment(0, 4096, 4096), whole_segment(1, 4096, 4096)})), "");
  // The later one in the address space is named, by its place in the file.
  const Json overlap = with_segments({whole_segment(0, 8191, 4096), whole_segment(0, 4096, 4096)});
  EXPECT_EQ(refusal_of(overlap),
            "s.json: 'segments[0].address: 8191': expected an address outside the device's segment at 4096, which "
            "has 4096 bytes");
  EXPECT_THAT(refusal_of(with_segments({whole_segment(0, 4096, 4096), whole_segment(0, 4096, 4096)})),
              HasSubstr("segments[1].address: 4096'"));
  EXPECT_THAT(refusal_of(with_segments({whole_segment(0, 4096, 1 << 20), whole_segment(0, 8192, 4096)})),
              HasSubstr("segments[1].address: 8192'"));
}

TEST(SnapshotReader, SumsOfADeviceCanBeCounted) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr auto end = static_cast<std::uint64_t>(most);
  const Json fits = with_segments({whole_segment(0, 0, most - 1), whole_segment(0, end, 1), whole_segment(1, 0, most)});
  ASSERT_EQ(refusal_of(fits), "");
  const Snapshot snapshot = parse_snapshot(fits.dump(), "s.json");
  EXPECT_EQ(current_stats_of_segments(snapshot, 0).reserved_bytes.all.current, most);
  EXPECT_EQ(current_stats_of_segments(snapshot, 1).allocated_bytes.all.current, most);
  EXPECT_THAT(refusal_of(with_segments({whole_segment(0, 0, most), whole_segment(0, end, 1)})),
              AllOf(HasSubstr("segments[1].total_size: 1'"), HasSubstr("device 0"), HasSubstr("less than 2^63")));
}

TEST(SnapshotReader, ASegmentEndsInTheAddressSpace) {
  const std::uint64_t last_page = 18446744073709547520u;
  EXPECT_EQ(refusal_of(with_segments({whole_segment(0, last_page, 4096)})), "");
  EXPECT_THAT(refusal_of(with_segments({whole_segment(0, last_page, 4097)})),
              AllOf(HasSubstr("segments[0].total_size: 4097'"), HasSubstr("2^64")));
}

TEST(SnapshotReader, DeviceStatisticsNeedEveryKey) {
  Snapshot snapshot;
  snapshot.device_stats = {MemoryStats{}};
  Json json = Json::parse(written(snapshot));
  EXPECT_EQ(json["device_stats"][0].size(), 122u);
  json["device_stats"][0].erase("active.all.peak");
  EXPECT_THAT(refusal_of(json), AllOf(HasSubstr("device_stats[0]"), HasSubstr("expected the key \"active.all.peak\"")));
  json["device_stats"][0]["active.all.peak"] = true;
  EXPECT_THAT(refusal_of(json), HasSubstr("active.all.peak: true': expected an integer"));
}

TEST(SnapshotReader, MalformedJsonNamesTheLine) {
  const std::string text = sample().dump(1);
  EXPECT_THAT(refused_snapshot(text.substr(0, 60)), AllOf(StartsWith("s.json:"), HasSubstr("expected")));
  EXPECT_EQ(refused_snapshot(""), "s.json:1: '': expected '[', '{', or a literal");
  EXPECT_EQ(refused_snapshot("{\n\"segments\": [1,,2]}"),
            "s.json:2: '\"segments\": [1,,2]}': expected '[', '{', or a literal");
  EXPECT_THAT(refused_snapshot("{\n\n\"a\": \"\xff\"}"),
              AllOf(StartsWith("s.json:3: "), HasSubstr("ill-formed UTF-8")));
  EXPECT_THAT(refused_snapshot("{\"a\": 1e999}"), HasSubstr("number overflow"));
  EXPECT_THAT(refused_snapshot(text + "x"), AllOf(StartsWith("s.json:"), HasSubstr("expected")));
}

TEST(SnapshotReader, EveryTruncationIsRefused) {
  const std::string text = sample().dump();
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_NE(refused_snapshot(text.substr(0, size)), "") << size;
}

TEST(SnapshotReader, DeepNestingIsRefused) {
  const std::string deep(100000, '['), closed = deep + std::string(deep.size(), ']');
  EXPECT_THAT(refused_snapshot(deep), HasSubstr("at most 64 levels"));
  EXPECT_THAT(refused_snapshot("{\"x\":" + deep), HasSubstr("at most 64 levels"));
  EXPECT_THAT(refused_snapshot("{\"x\":" + closed + "}"), HasSubstr("at most 64 levels"));
  // What is quoted stands in the file, there.
  EXPECT_EQ(refused_snapshot("{\n\"x\":" + std::string(62, '[') + "\n[{\"deep\": 1}]"),
            "s.json:3: '[{\"deep\": 1}]': expected at most 64 levels");
}

// With a stack, a tag and a text, and entries of several kinds.
Json with_history() {
  Json json = sample();
  const Json frame = {{"name", "f"}, {"filename", "a.py"}, {"line", 3}};
  const Json frames = Json::array({frame});
  segment(json)["blocks"][0]["frames"] = frames;
  segment(json)["blocks"][0]["tag"] = 1;
  json["tags"] = {"weights", "optimizer"};
  Json alloc = trace_entry("alloc", 4096, 1000);
  alloc["frames"] = frames;
  alloc["tag"] = 0;
  alloc["pool_id"] = {0, 2};
  alloc["user_metadata"] = "noted";
  Json oom = trace_entry("oom", 0, 4096);
  oom.erase("addr");
  oom["device_free"] = 77;
  json["device_traces"] = Json::array(
      {Json::array({alloc, trace_entry("of_tomorrow", 1, 2), oom, trace_entry("free_requested", 4096, 1000)})});
  json["external_annotations"] = {{{"name", "step"}, {"stage", "END"}, {"device", 0}, {"time_us", 1700000000000020}}};
  return json;
}

TEST(SnapshotReader, HistoriesStacksAndTagsAreRead) {
  const Snapshot snapshot = parse_snapshot(with_history().dump(), "s.json");
  ASSERT_EQ(snapshot.stacks.size(), 1u) << "equal ones have one index";
  EXPECT_EQ(snapshot.stacks[0][0]->name, "f");
  EXPECT_EQ(snapshot.stacks[0][0]->filename, "a.py");
  EXPECT_EQ(snapshot.stacks[0][0]->line, 3);
  EXPECT_EQ(snapshot.segments[0].stack, kNoStack);
  EXPECT_EQ(snapshot.segments[0].blocks[0].stack, 0);
  EXPECT_EQ(snapshot.segments[0].blocks[0].tag, 1);
  EXPECT_EQ(snapshot.segments[0].blocks[1].tag, kNoTag);
  EXPECT_EQ(snapshot.tags, (std::vector<std::string>{"weights", "optimizer"}));
  ASSERT_EQ(snapshot.device_traces.size(), 1u);
  ASSERT_EQ(snapshot.device_traces[0].size(), 3u) << "without the action that is not known";
  const TraceEntry& alloc = snapshot.device_traces[0][0];
  EXPECT_EQ(alloc.action, TraceAction::alloc);
  EXPECT_EQ(alloc.address, 4096u);
  EXPECT_EQ(alloc.size, 1000);
  EXPECT_EQ(alloc.time_us, 1700000000000010);
  EXPECT_EQ(alloc.pool_id, std::pair(std::int64_t{0}, std::int64_t{2}));
  EXPECT_EQ(alloc.stack, 0);
  EXPECT_EQ(alloc.tag, 0);
  EXPECT_EQ(snapshot.texts.at(static_cast<std::size_t>(alloc.user_metadata)), "noted");
  EXPECT_EQ(snapshot.device_traces[0][1].address, 77u) << "the device's free bytes";
  EXPECT_EQ(snapshot.device_traces[0][2].action, TraceAction::free_requested);
  EXPECT_EQ(snapshot.device_traces[0][2].stack, kNoStack);
  EXPECT_EQ(snapshot.device_traces[0][2].user_metadata, -1);
  ASSERT_EQ(snapshot.external_annotations.size(), 1u);
  EXPECT_EQ(snapshot.external_annotations[0].name, "step");
  EXPECT_FALSE(snapshot.external_annotations[0].is_start);
}

TEST(SnapshotReader, StacksThatOurJsonListsKeepTheirIndices) {
  Json json = with_history();
  const Json frames = json["device_traces"][0][0]["frames"];
  json["stacks"] = {Json::array(), frames};
  segment(json)["blocks"][0]["frames"] = Json::array();
  segment(json)["blocks"][0]["stack"] = 1;
  json["device_traces"][0][0].erase("frames");
  json["device_traces"][0][0]["stack"] = 1;
  const Snapshot snapshot = parse_snapshot(json.dump(), "s.json");
  ASSERT_EQ(snapshot.stacks.size(), 2u);
  EXPECT_EQ(snapshot.segments[0].blocks[0].stack, 1);
  EXPECT_EQ(snapshot.device_traces[0][0].stack, 1);
}

// A frame of a file with modules, and what may be wrong with it.
Json with_modules() {
  Json json = with_history();
  json["modules"] = {{{"path", "/lib/a.so"}, {"build_id", "ab12"}}};
  Json& frame = json["device_traces"][0][0]["frames"][0];
  frame["address"] = 0x7f0000001234;
  frame["module"] = 0;
  frame["offset"] = 0x1234;
  return json;
}

TEST(SnapshotReader, FramesSayWhereTheirCodeWas) {
  const Snapshot snapshot = parse_snapshot(with_modules().dump(), "s.json");
  ASSERT_EQ(snapshot.modules.size(), 1u);
  EXPECT_EQ(snapshot.modules[0].path, "/lib/a.so");
  EXPECT_EQ(snapshot.modules[0].build_id, "ab12");
  const StackIndex stack = snapshot.device_traces[0][0].stack;
  const FrameInfo& frame = snapshot.stacks.at(static_cast<std::size_t>(stack))[0];
  EXPECT_EQ(frame.address, 0x7f0000001234u);
  EXPECT_EQ(frame.module, 0);
  EXPECT_EQ(frame.offset, 0x1234u);
  const Snapshot again = parse_snapshot(written(snapshot), "again.json");
  EXPECT_EQ(written(again), written(snapshot));
}

TEST(SnapshotReader, AFramesModuleMustBeListed) {
  Json json = with_modules();
  json["device_traces"][0][0]["frames"][0]["module"] = 1;
  EXPECT_THAT(refusal_of(json), HasSubstr("frames[0].module: 1': expected an integer from -1 to 0"));
  json = with_modules();
  json["device_traces"][0][0]["frames"][0].erase("offset");
  EXPECT_THAT(refusal_of(json), EndsWith("expected the key \"offset\""));
  json = with_modules();
  json["modules"][0].erase("path");
  EXPECT_THAT(refusal_of(json), AllOf(HasSubstr("modules[0]"), EndsWith("expected the key \"path\"")));
}

TEST(SnapshotReader, WithoutAListOfModulesFramesMayHaveAnyMembers) {
  Json json = with_modules();
  json.erase("modules");
  json["device_traces"][0][0]["frames"][0]["module"] = "torch.nn";
  const Snapshot snapshot = parse_snapshot(json.dump(), "s.json");
  EXPECT_EQ(snapshot.stacks.at(0)[0]->module, -1);
}

TEST(SnapshotReader, AFileOfALaterVersionIsRefused) {
  Json json = with_history();
  json["schema_version"] = 1;
  EXPECT_EQ(refusal_of(json), "");
  json["schema_version"] = 2;
  EXPECT_EQ(refusal_of(json), "s.json: 'schema_version: 2': expected an integer from 1 to 1");
}

TEST(SnapshotReader, EntriesHaveWhatTheirActionNeeds) {
  for (const char* key : {"action", "addr", "size", "stream"}) {
    Json json = with_history();
    json["device_traces"][0][0].erase(key);
    EXPECT_EQ(refusal_of(json), "s.json: 'device_traces[0][0]: {...}': expected the key \"" + std::string(key) + '"');
  }
  Json json = with_history();
  json["device_traces"][0][2].erase("device_free");
  EXPECT_THAT(refusal_of(json), EndsWith("expected the key \"device_free\""));
  json = with_history();
  json["device_traces"][0][0]["size"] = -1;
  EXPECT_THAT(refusal_of(json), HasSubstr("device_traces[0][0].size: -1': expected an integer of at least 0"));
  json = with_history();
  json["device_traces"][0][0]["frames"][0].erase("filename");
  EXPECT_THAT(refusal_of(json), AllOf(HasSubstr("frames[0]"), EndsWith("expected the key \"filename\"")));
}

TEST(SnapshotReader, TagsMustBeListed) {
  Json json = with_history();
  segment(json)["blocks"][0]["tag"] = 2;
  EXPECT_THAT(refusal_of(json), HasSubstr("blocks[0].tag: 2': expected an integer from -1 to 1"));
  json = with_history();
  json["device_traces"][0][0]["tag"] = 2;
  EXPECT_THAT(refusal_of(json), HasSubstr("device_traces[0][0].tag: 2': expected an integer from -1 to 1"));
}

TEST(SnapshotReader, AnnotationsBeginOrEndARange) {
  Json json = with_history();
  json["external_annotations"][0]["stage"] = "MIDDLE";
  EXPECT_THAT(refusal_of(json), HasSubstr("external_annotations[0].stage: \"MIDDLE\"': expected \"START\" or \"END\""));
}

TEST(SnapshotReader, FilesMayBeCompressed) {
  const TemporaryFile file(gzipped(sample().dump()), ".json.gz");
  EXPECT_EQ(written(read_snapshot(file.path())), written(parse_snapshot(sample().dump(), "s.json")));
}

}  // namespace
}  // namespace cistern
