// Our JSON keeps to its schema, the schema says what it means to, and what is compressed is the same.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stats/gzip_output.h"
#include "tests/byte_units.h"
#include "tests/history/json_schema.h"

namespace cistern {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json schema() { return json::parse(std::ifstream(CISTERN_SOURCE_DIR "/docs/snapshot-schema.json")); }

// Every action but those of expandable segments, both states of a freed block, pools, stacks, texts.
Snapshot full_snapshot() {
  SimulatedDriver driver({.devices = 2, .capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off")});
  allocator.record_history({});
  const StreamHandle other = driver.create_stream();
  allocator.set_user_metadata("step \"1\"\n");
  allocator.mark_range("range", true, 1);
  void* block = allocator.allocate(1000);
  allocator.annotate(block, "weights");
  driver.occupy(other, std::chrono::milliseconds(1));
  allocator.deallocate(allocator.allocate(2000), other);
  allocator.deallocate(allocator.allocate(30 * kMega));
  allocator.empty_cache();
  allocator.begin_allocate_to_pool(0, {0, 3}, PoolFilter::every_stream());
  static_cast<void>(allocator.allocate(2 * kMega));
  allocator.end_allocate_to_pool(0, {0, 3});
  EXPECT_THROW(static_cast<void>(allocator.allocate(60 * kMega)), OutOfMemoryError);
  driver.occupy(other, std::chrono::milliseconds(1));
  allocator.deallocate(allocator.allocate(2000), other);
  static_cast<void>(allocator.snapshot());
  return allocator.snapshot();
}

std::string text_of(const Snapshot& snapshot) {
  std::ostringstream out;
  write_json(snapshot, out);
  return out.str();
}

TEST(SnapshotSchema, HoldsForSnapshotsWithEverythingAndWithNothing) {
  const Snapshot full = full_snapshot();
  EXPECT_THAT(schema_faults(schema(), json::parse(text_of(full))), IsEmpty());
  EXPECT_THAT(schema_faults(schema(), json::parse(text_of(Snapshot{}))), IsEmpty());
  EXPECT_FALSE(full.stacks.empty());
}

std::vector<std::string> missing(const json& properties, const json& object) {
  std::vector<std::string> names;
  for (const auto& [name, property] : properties.items())
    if (!object.contains(name)) names.push_back(name);
  return names;
}

// What a converted file may lack, ours does not.
TEST(SnapshotSchema, EveryMemberThatItNamesIsWritten) {
  const json rules = schema();
  const json written = json::parse(text_of(full_snapshot()));
  EXPECT_THAT(missing(rules["properties"], written), IsEmpty());
  EXPECT_THAT(missing(rules["$defs"]["allocator_settings"]["properties"], written["allocator_settings"]), IsEmpty());
  for (const json& entry : written["device_traces"][0]) {
    json properties = rules["$defs"]["trace_entry"]["properties"];
    for (const char* name : {"addr", "device_free", "stack", "tag"}) properties.erase(name);
    EXPECT_THAT(missing(properties, entry), IsEmpty()) << entry;
  }
}

TEST(SnapshotSchema, FindsWhatIsMissingOrWrong) {
  const json good = json::parse(text_of(full_snapshot()));
  const auto faults_after = [&](auto&& change) {
    json changed = good;
    change(changed);
    return schema_faults(schema(), changed);
  };
  EXPECT_THAT(faults_after([](json& top) { top.erase("stacks"); }), ElementsAre(HasSubstr("lacks \"stacks\"")));
  EXPECT_THAT(faults_after([](json& top) { top["schema_version"] = 2; }), ElementsAre("/schema_version: expected 1"));
  EXPECT_THAT(faults_after([](json& top) { top["segments"][0]["address"] = std::uint64_t{1} << 60; }),
              ElementsAre("/segments/0/address: too large"));
  EXPECT_THAT(faults_after([](json& top) { top["segments"][0]["blocks"][0]["state"] = "free"; }),
              ElementsAre(HasSubstr("/segments/0/blocks/0/state: expected one of")));
  EXPECT_THAT(faults_after([](json& top) { top["device_traces"][0][0]["history"] = 1; }),
              ElementsAre(HasSubstr("/device_traces/0/0/history: must not match")));
}

// By the names that PyTorch gives: docs of torch.cuda.memory._snapshot and its viewer's needs.
TEST(SnapshotJsonOfAHistory, HasEveryMemberOfATraceEntry) {
  const Snapshot snapshot = full_snapshot();
  const json read = json::parse(text_of(snapshot));
  const std::vector<TraceEntry>& entries = snapshot.device_traces.at(0);
  ASSERT_EQ(read.at("device_traces").at(0).size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TraceEntry& entry = entries[i];
    const json& object = read["device_traces"][0][i];
    EXPECT_EQ(object.at("action"), to_string(entry.action));
    EXPECT_EQ(object.at(entry.action == TraceAction::oom ? "device_free" : "addr"), entry.address);
    EXPECT_EQ(object.contains("addr"), entry.action != TraceAction::oom);
    EXPECT_EQ(object.at("size"), entry.size);
    EXPECT_EQ(object.at("stream"), entry.stream);
    EXPECT_EQ(object.at("time_us"), entry.time_us);
    EXPECT_EQ(object.at("pool_id"), json({entry.pool_id.first, entry.pool_id.second}));
    EXPECT_EQ(object.at("compile_context"), "N/A");
    EXPECT_EQ(object.at("user_metadata"),
              entry.user_metadata < 0 ? "" : snapshot.texts.at(static_cast<std::size_t>(entry.user_metadata)));
    EXPECT_EQ(object.contains("stack"), entry.stack != kNoStack);
    if (entry.stack != kNoStack) {
      EXPECT_EQ(object.at("stack"), entry.stack);
    }
  }
  EXPECT_EQ(read.at("external_annotations").at(0).at("stage"), "START");
  EXPECT_EQ(read["external_annotations"][0].at("device"), 1);
  EXPECT_EQ(read.at("stacks").size(), snapshot.stacks.size());
  EXPECT_THAT(read.at("allocator_settings").at("trace_alloc_max_entries"), -1);
}

std::string inflated(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  std::string text;
  char buffer[65536];
  for (int read = 0; (read = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(read));
  int error = 0;
  EXPECT_STREQ(gzerror(file, &error), "");
  gzclose(file);
  return text;
}

class CompressedFile : public ::testing::Test {
 protected:
  CompressedFile()
      : path_(std::filesystem::temp_directory_path() / ("cistern-" + std::to_string(::getpid()) + ".json.gz")) {}
  ~CompressedFile() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::filesystem::path path_;
};

TEST_F(CompressedFile, HoldsWhatAPlainOneWould) {
  const Snapshot snapshot = full_snapshot();
  write_json(snapshot, path_.string());
  EXPECT_EQ(inflated(path_), text_of(snapshot));
  EXPECT_LT(std::filesystem::file_size(path_), text_of(snapshot).size() / 2);
}

TEST_F(CompressedFile, OfAnySizeIsOneMember) {
  // Around the pieces that are compressed at once, and empty.
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kMega - 1, kMega, kMega + 1, 5 * kMega + 12345}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i * 2654435761U >> 13);
    write_plain_or_gzip(path_.string(), [&](std::ostream& out) {
      for (std::size_t at = 0; at < size; at += 1000)
        out.write(text.data() + at, static_cast<std::streamsize>(std::min<std::size_t>(1000, size - at)));
    });
    EXPECT_EQ(inflated(path_), text) << size;
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    EXPECT_EQ(bytes.str().compare(0, 3, "\x1f\x8b\x08"), 0);
    std::uint32_t last = 0;
    std::memcpy(&last, bytes.str().data() + bytes.str().size() - 4, 4);
    EXPECT_EQ(last, size) << "a member's size is that of all of the text";
  }
}

TEST_F(CompressedFile, OnAFullDiskIsRefusedByItsName) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  std::filesystem::create_symlink("/dev/full", path_);
  const std::string text(5 * kMega, 'x');
  try {
    write_plain_or_gzip(path_.string(), [&](std::ostream& out) {
      for (int i = 0; i < 4; ++i) out << text << i;
    });
    FAIL() << "it was written";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr(path_.string()));
  }
}

TEST_F(CompressedFile, IsNotThereIfItsWriterFails) {
  EXPECT_THROW(write_plain_or_gzip(path_.string(),
                                   [](std::ostream& out) {
                                     out << "half";
                                     throw InvalidArgument("no more");
                                   }),
               InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace cistern
