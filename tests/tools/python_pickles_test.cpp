// Pickles between cistern and Python: what Python writes is read, and what cistern writes is read by
// Python's pickle and by a reader that accepts no more than PyTorch's viewer does.

#include <cistern/snapshot.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/document_equality.h"
#include "tests/tools/temporary_file.h"
#include "tools/snapshot_file.h"
#include "tools/snapshot_reader.h"

namespace cistern {
namespace {

namespace fs = std::filesystem;

class PythonPickles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import pickle, json' >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "there is no python3 to compare with";
    fs::create_directories(folder_);
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // The program's exit status; what it prints on standard error goes to the test's.
  static int python(const std::string& arguments) {
    const int status = std::system(("python3 " + arguments).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static std::string quoted(const std::string& text) { return "'" + text + "'"; }

  // Python's pickle of a JSON file.
  [[nodiscard]] std::string pickle_of(const std::string& json, int protocol) const {
    const std::string made = path("protocol" + std::to_string(protocol) + ".pickle");
    EXPECT_EQ(python("-c 'import json, pickle, sys; pickle.dump(json.load(open(sys.argv[1], encoding=\"utf-8\")), "
                     "open(sys.argv[2], \"wb\"), protocol=int(sys.argv[3]))' " +
                     quoted(json) + " " + quoted(made) + " " + std::to_string(protocol)),
              0);
    return made;
  }

  // Whether the strict reader and Python's pickle read the pickle, and as the JSON file says.
  static void expect_read_strictly(const std::string& pickle, const std::string& json) {
    EXPECT_EQ(python(quoted(std::string(CISTERN_SOURCE_DIR) + "/tests/tools/strict_pickle_reader.py") + " " +
                     quoted(pickle) + " " + quoted(json)),
              0)
        << pickle;
  }

  static void write(const SnapshotFile& file, SnapshotForm form, const std::string& to, int protocol = 4) {
    std::ofstream out(to, std::ios::binary);
    write_snapshot_file(file, form, out, protocol);
  }

  static void expect_lossless(const std::string& json, const PythonPickles& test) {
    const SnapshotFile sample = read_snapshot_file(json);
    for (const int protocol : {2, 3, 4, 5}) {
      const SnapshotFile read = read_snapshot_file(test.pickle_of(json, protocol));
      EXPECT_EQ(read.form, SnapshotForm::pickle);
      EXPECT_TRUE(is_equal(read.document, sample.document)) << "Python's protocol " << protocol;
      const std::string back = test.path("back.json");
      write(read, SnapshotForm::torch_json, back);
      std::ifstream written(back), original(json);
      EXPECT_EQ(nlohmann::ordered_json::parse(written), nlohmann::ordered_json::parse(original));
      if (protocol == 5) continue;
      const std::string pickle = test.path("written.pickle");
      write(read, SnapshotForm::pickle, pickle, protocol);
      expect_read_strictly(pickle, json);
    }
  }

 private:
  fs::path folder_ = fs::path(::testing::TempDir()) / ("cistern-python-" + std::to_string(::getpid()));
};

fs::path sample_path() {
  const char* given = std::getenv("CISTERN_SHARED");
  const fs::path shared = given != nullptr ? fs::path(given) : fs::path(CISTERN_SOURCE_DIR) / ".." / "shared";
  return shared / "reference" / "snapshot-sample.json";
}

TEST_F(PythonPickles, OfTheReferenceSampleAreReadAndWrittenLossless) {
  if (!fs::exists(sample_path())) GTEST_SKIP() << "no reference sample: set CISTERN_SHARED to the folder that holds it";
  expect_lossless(sample_path().string(), *this);
}

// More items than a group holds, numbers of every length, and stacks more than older protocols keep.
std::string large_snapshot() {
  nlohmann::ordered_json json = {{"segments", nlohmann::ordered_json::array()},
                                 {"device_traces", {nlohmann::ordered_json::array()}}};
  for (std::int64_t i = 0; i < 2500; ++i) {
    const std::int64_t number = i % 2 == 0 ? (std::int64_t{1} << (i % 62)) : -(std::int64_t{1} << (i % 63)) - 1;
    nlohmann::ordered_json entry = {{"action", "alloc"},
                                    {"addr", 4096 + 512 * i},
                                    {"size", 512},
                                    {"stream", number},
                                    {"compile_context", i % 5 == 0 ? "é😀\n\"" : ""}};
    const std::int64_t stack = i % 3 == 0 ? i % 400 : i % 7;
    for (std::int64_t depth = 0; depth < 3; ++depth)
      entry["frames"].push_back({{"name", "f" + std::to_string(stack)},
                                 {"filename", std::string(static_cast<std::size_t>(stack), 'x')},
                                 {"line", depth}});
    json["device_traces"][0].push_back(entry);
  }
  return json.dump();
}

TEST_F(PythonPickles, OfALargeHistoryAreReadAndWrittenLossless) {
  std::ofstream(path("large.json")) << large_snapshot();
  expect_lossless(path("large.json"), *this);
}

TEST_F(PythonPickles, OfValuesInMemoryAreReadByPythonAsTheirJson) {
  std::ofstream(path("large.json")) << large_snapshot();
  const Snapshot snapshot = read_snapshot(path("large.json"));
  ASSERT_EQ(snapshot.device_traces.at(0).size(), 2500u);
  write_torch_json(snapshot, path("values.json"));
  for (const int protocol : {2, 3, 4}) {
    write_pickle(snapshot, path("values.pickle"), protocol);
    expect_read_strictly(path("values.pickle"), path("values.json"));
    std::ostringstream back, json;
    write_torch_json(read_snapshot(path("values.pickle")), back);
    write_torch_json(snapshot, json);
    EXPECT_EQ(back.str(), json.str());
  }
}

}  // namespace
}  // namespace cistern
