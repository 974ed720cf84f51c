// A snapshot's JSON: names and values, and files that are whole or not there.

#include <cistern/error.h>
#include <cistern/snapshot.h>

#include "stats/atomic_file.h"
#include "stats/fields.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace cistern {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Two devices; a small segment in all three states on one, a large one on the other.
Snapshot example() {
  Snapshot snapshot;
  SegmentInfo small;
  small.address = 0x7f0000000000;
  small.total_size = 2097152;
  small.allocated_size = 1024;
  small.active_size = 5120;
  small.requested_size = 5096;
  small.blocks = {{0x7f0000000000, 1024, 1000, BlockState::active_allocated},
                  {0x7f0000000400, 4096, 4096, BlockState::active_pending_free},
                  {0x7f0000001400, 2092032, 0, BlockState::inactive}};
  SegmentInfo large;
  large.device = 1;
  large.address = 0x7f1000000000;
  large.total_size = large.allocated_size = large.active_size = large.requested_size = 69206016;
  large.stream = 94015774916624;
  large.is_large = true;
  large.segment_pool_id = {0, 3};
  large.is_expandable = true;
  large.range_address = 0x7f0f00000000;
  large.range_size = 96636764160;
  large.blocks = {{0x7f1000000000, 69206016, 69206016, BlockState::active_allocated}};
  snapshot.segments = {small, large};
  snapshot.device_stats.resize(2);
  std::int64_t next = 0;
  for (MemoryStats& stats : snapshot.device_stats)
    visit_values(stats, [&next](const std::string&, std::int64_t& value) { value = next++; });
  snapshot.settings.text = "max_split_size_mb:128, \"quoted\"\n";
  snapshot.settings.max_split_size = 134217728;
  snapshot.settings.garbage_collection_threshold = 0.8;
  snapshot.settings.expandable_segments = true;
  snapshot.settings.roundup_power2_divisions = {{256, 4}};
  return snapshot;
}

json as_json(const Snapshot& snapshot) {
  std::ostringstream out;
  write_json(snapshot, out);
  return json::parse(out.str());
}

TEST(SnapshotJson, HasEverySegmentAndBlockWithItsValues) {
  const Snapshot snapshot = example();
  const json read = as_json(snapshot);
  ASSERT_EQ(read.at("segments").size(), snapshot.segments.size());
  for (std::size_t i = 0; i < snapshot.segments.size(); ++i) {
    const SegmentInfo& segment = snapshot.segments[i];
    const json& object = read["segments"][i];
    EXPECT_EQ(object.at("device"), segment.device);
    EXPECT_EQ(object.at("address"), segment.address);
    EXPECT_EQ(object.at("total_size"), segment.total_size);
    EXPECT_EQ(object.at("allocated_size"), segment.allocated_size);
    EXPECT_EQ(object.at("active_size"), segment.active_size);
    EXPECT_EQ(object.at("requested_size"), segment.requested_size);
    EXPECT_EQ(object.at("stream"), segment.stream);
    EXPECT_EQ(object.at("segment_type"), segment.is_large ? "large" : "small");
    EXPECT_EQ(object.at("segment_pool_id"), json({segment.segment_pool_id.first, segment.segment_pool_id.second}));
    EXPECT_EQ(object.at("is_expandable"), segment.is_expandable);
    EXPECT_EQ(object.value("range_address", std::uint64_t{0}), segment.range_address);
    EXPECT_EQ(object.value("range_size", std::int64_t{0}), segment.range_size);
    EXPECT_EQ(object.at("frames"), json::array());
    ASSERT_EQ(object.at("blocks").size(), segment.blocks.size());
    for (std::size_t j = 0; j < segment.blocks.size(); ++j) {
      const BlockInfo& block = segment.blocks[j];
      EXPECT_EQ(object["blocks"][j], json({{"address", block.address},
                                           {"size", block.size},
                                           {"requested_size", block.requested_size},
                                           {"state", to_string(block.state)},
                                           {"frames", json::array()}}));
    }
  }
}

TEST(SnapshotJson, StatesAreTheViewersWords) {
  EXPECT_STREQ(to_string(BlockState::inactive), "inactive");
  EXPECT_STREQ(to_string(BlockState::active_allocated), "active_allocated");
  EXPECT_STREQ(to_string(BlockState::active_pending_free), "active_pending_free");
}

TEST(SnapshotJson, HasOneTraceListAndOneFlatMapForEachDevice) {
  const Snapshot snapshot = example();
  const json read = as_json(snapshot);
  EXPECT_EQ(read.at("device_traces"), json({json::array(), json::array()}));
  ASSERT_EQ(read.at("device_stats").size(), 2u);
  for (std::size_t device = 0; device < 2; ++device) {
    const auto flat = snapshot.device_stats[device].flat();
    EXPECT_EQ((read["device_stats"][device].get<std::map<std::string, std::int64_t>>()), flat);
  }
}

TEST(SnapshotJson, TraceListsReachTheHighestDeviceOfASegment) {
  Snapshot snapshot;
  snapshot.segments.resize(1);
  snapshot.segments[0].device = 2;
  EXPECT_EQ(as_json(snapshot).at("device_traces").size(), 3u);
}

TEST(SnapshotJson, HasTheSettingsWithAllDivisions) {
  const json settings = as_json(example()).at("allocator_settings");
  EXPECT_EQ(settings.at("PYTORCH_CUDA_ALLOC_CONF"), "max_split_size_mb:128, \"quoted\"\n");
  EXPECT_EQ(settings.at("max_split_size"), 134217728);
  EXPECT_EQ(settings.at("garbage_collection_threshold"), 0.8);
  EXPECT_EQ(settings.at("expandable_segments"), true);
  EXPECT_EQ(settings.at("pinned_num_register_threads"), 1);
  EXPECT_EQ(settings.at("roundup_power2_divisions").size(), 16u);
  EXPECT_EQ(settings.at("roundup_power2_divisions").at("256"), 4);
  EXPECT_EQ(settings.at("roundup_power2_divisions").at("32768"), 0);
}

TEST(SnapshotJson, AnEmptySnapshotIsComplete) {
  const json read = as_json(Snapshot{});
  EXPECT_EQ(read.at("segments"), json::array());
  EXPECT_EQ(read.at("device_traces"), json::array());
  EXPECT_EQ(read.at("external_annotations"), json::array());
  EXPECT_EQ(read.at("allocator_settings").at("max_split_size"), -1);
  EXPECT_TRUE(read["allocator_settings"]["garbage_collection_threshold"].is_number_float());
}

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

fs::path shared_folder() {
  const char* given = std::getenv("CISTERN_SHARED");
  return given != nullptr ? fs::path(given) : fs::path(CISTERN_SOURCE_DIR) / ".." / "shared";
}

TEST(SnapshotJson, HasTheKeysOfTheReferenceSample) {
  const fs::path path = shared_folder() / "reference" / "snapshot-sample.json";
  if (!fs::exists(path)) GTEST_SKIP() << "no reference sample: set CISTERN_SHARED to the folder that holds it";
  std::ifstream file(path);
  const json sample = json::parse(file);
  const json ours = as_json(example());

  std::set<std::string> top = keys(ours);
  for (const char* name : {"device_stats", "modules", "schema_version", "stacks", "tags"})
    EXPECT_EQ(top.erase(name), 1u) << name << ", of our own";
  EXPECT_EQ(top, keys(sample));
  EXPECT_EQ(keys(ours["segments"][0]), keys(sample["segments"][0]));
  EXPECT_EQ(keys(ours["segments"][0]["blocks"][0]), keys(sample["segments"][0]["blocks"][0]));
  std::set<std::string> settings = keys(ours["allocator_settings"]);
  json defaults = as_json(Snapshot{})["allocator_settings"];
  for (const char* name : {"trace_alloc_max_entries", "trace_alloc_overflowed"}) {
    EXPECT_EQ(settings.erase(name), 1u) << name << ", of PyTorch's later releases";
    defaults.erase(name);
  }
  EXPECT_EQ(settings, keys(sample["allocator_settings"]));
  EXPECT_EQ(defaults, sample["allocator_settings"]) << "the defaults";
  for (const auto& [name, value] : sample["segments"][0].items())
    EXPECT_EQ(ours["segments"][0][name].type(), value.type()) << name;
}

// A folder of its own for each test, removed at its end.
class SnapshotFile : public ::testing::Test {
 protected:
  SnapshotFile() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("cistern-" + std::to_string(::getpid()) + "-" + info->name());
    fs::create_directories(folder_);
  }
  ~SnapshotFile() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] static std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  // The text of the refusal to write a snapshot to `path`.
  [[nodiscard]] static std::string refusal(const std::string& path) {
    try {
      write_json(example(), path);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "written";
  }

 private:
  fs::path folder_;
};

TEST_F(SnapshotFile, HoldsWhatTheStreamWouldAndNothingIsLeftBeside) {
  std::ofstream(path("snapshot.json")) << "an older one";
  write_json(example(), path("snapshot.json"));
  EXPECT_EQ(json::parse(contents(path("snapshot.json"))), as_json(example()));
  EXPECT_EQ(files(), 1u);
}

TEST_F(SnapshotFile, ThatCannotBeWrittenIsRefusedWithPathAndReason) {
  const std::string missing = path("no/such/folder.json");
  EXPECT_EQ(refusal(missing), "cannot write '" + missing + "': No such file or directory");
  EXPECT_EQ(refusal(path("")), "cannot write '" + path("") + "': Is a directory");
  EXPECT_EQ(refusal(""), "cannot write '': the name is empty");
  EXPECT_EQ(files(), 0u);
}

TEST_F(SnapshotFile, ADeviceIsWrittenToDirectlyAndItsErrorIsReported) {
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(refusal("/dev/full"), "cannot write '/dev/full': No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(SnapshotFile, AFailureHalfWayLeavesTheOldFile) {
  std::ofstream(path("snapshot.json")) << "the old one";
  const auto fail_half_way = [](std::ostream& out) {
    out << "half of the new";
    throw std::runtime_error("host memory");
  };
  EXPECT_THROW(write_file(path("snapshot.json"), fail_half_way), std::runtime_error);
  EXPECT_EQ(contents(path("snapshot.json")), "the old one");
  EXPECT_EQ(files(), 1u);
}

TEST_F(SnapshotFile, ALinkStaysALink) {
  std::ofstream(path("target.json")) << "old";
  fs::create_symlink("target.json", path("link.json"));
  write_json(Snapshot{}, path("link.json"));
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
  EXPECT_EQ(json::parse(contents(path("target.json"))), as_json(Snapshot{}));
}

}  // namespace
}  // namespace cistern
