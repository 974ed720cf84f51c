#include "tests/command/command_fixture.h"
#include "tests/tools/temporary_file.h"
#include "tools/input_file.h"

namespace cistern {
namespace {

using Json = nlohmann::ordered_json;

const char* const kTorch = R"({
  "segments": [{"device": 0, "frames": [], "blocks": [{"frames": [{"name": "f", "filename": "a.py", "line": 3}]}]}],
  "device_traces": [[{"action": "alloc", "frames": [{"name": "f", "filename": "a.py", "line": 3}], "x": [1.0, null]}]],
  "allocator_settings": {"max_split_size": -1}})";

class ConvertCommandTest : public CommandTest {
 protected:
  static std::string content(const std::string& file) { return read_input_file(file); }
  [[nodiscard]] std::string torch_file() const { return write("torch.json", kTorch); }
  // Converts a file twice, and says what comes out as PyTorch's JSON.
  Json through(const Arguments& first) {
    const std::string back = path("back.json");
    EXPECT_EQ(run(first).status, kExitSuccess) << run(first).err;
    EXPECT_EQ(run({"convert", first.at(2), back, "--to", "pytorch-json"}).status, kExitSuccess);
    return Json::parse(content(back));
  }
};

TEST_F(ConvertCommandTest, TheNameChoosesTheForm) {
  for (const char* name : {"x.pickle", "x.pkl", "x.pickle.gz", "x.pkl.gz"}) {
    EXPECT_EQ(run({"convert", torch_file(), path(name)}).status, kExitSuccess) << name;
    EXPECT_EQ(content(path(name)).substr(0, 2), "\x80\4") << name;
  }
  for (const char* name : {"x.json", "x.json.gz"}) {
    EXPECT_EQ(run({"convert", torch_file(), path(name)}).status, kExitSuccess) << name;
    EXPECT_TRUE(Json::parse(content(path(name))).contains("stacks")) << name;
  }
}

TEST_F(ConvertCommandTest, ToChoosesItWhateverTheName) {
  EXPECT_EQ(run({"convert", torch_file(), path("x.bin"), "--to", "pickle", "--protocol", "2"}).status, kExitSuccess);
  EXPECT_EQ(content(path("x.bin")).substr(0, 2), "\x80\2");
  EXPECT_EQ(run({"convert", path("x.bin"), path("y.pickle"), "--to", "pytorch-json"}).status, kExitSuccess);
  EXPECT_EQ(Json::parse(content(path("y.pickle"))), Json::parse(kTorch));
}

TEST_F(ConvertCommandTest, EveryFormKeepsAll) {
  const Json original = Json::parse(kTorch);
  for (const char* protocol : {"2", "3", "4"})
    EXPECT_EQ(through({"convert", torch_file(), path("x.pickle"), "--protocol", protocol}), original);
  EXPECT_EQ(through({"convert", torch_file(), path("x.pickle.gz")}), original);
  EXPECT_EQ(through({"convert", torch_file(), path("x.json")}), original);
  EXPECT_EQ(through({"convert", torch_file(), path("x.json.gz"), "--to", "pytorch-json"}), original);
}

TEST_F(ConvertCommandTest, GzIsCompressedAndOthersAreNot) {
  EXPECT_EQ(run({"convert", torch_file(), path("x.pickle.gz")}).status, kExitSuccess);
  std::ifstream file(path("x.pickle.gz"), std::ios::binary);
  EXPECT_EQ(file.get(), 0x1f);
  EXPECT_EQ(file.get(), 0x8b);
}

TEST_F(ConvertCommandTest, SaysWhatWasDone) {
  const Result line = run({"convert", torch_file(), path("x.pickle")});
  EXPECT_EQ(line.out, path("torch.json") + " (pytorch-json) -> " + path("x.pickle") +
                          " (pickle): 1 segments, 1 blocks, 1 trace entries\n");
  EXPECT_EQ(line.err, "");
  const Result json = run({"convert", path("x.pickle"), path("y.json"), "--json"});
  EXPECT_EQ(json.object(), nlohmann::json({{"input", path("x.pickle")},
                                           {"input_form", "pickle"},
                                           {"output", path("y.json")},
                                           {"output_form", "json"},
                                           {"segments", 1},
                                           {"blocks", 1},
                                           {"trace_entries", 1}}));
}

TEST_F(ConvertCommandTest, StandardOutputHoldsTheSnapshotAlone) {
  const Result json = run({"convert", torch_file(), "-", "--to", "pytorch-json"});
  EXPECT_EQ(Json::parse(json.out), Json::parse(kTorch));
  EXPECT_EQ(json.err, "");
  EXPECT_TRUE(run({"convert", torch_file(), "-", "--to", "pickle"}).out.starts_with("\x80\4"));
  EXPECT_TRUE(Json::parse(run({"convert", torch_file(), "-"}).out).contains("stacks"));
}

TEST_F(ConvertCommandTest, AFileMayBeConvertedInPlace) {
  const std::string file = torch_file();
  EXPECT_EQ(run({"convert", file, file, "--to", "pickle"}).status, kExitSuccess);
  EXPECT_EQ(run({"convert", file, file, "--to", "pytorch-json"}).status, kExitSuccess);
  EXPECT_EQ(Json::parse(content(file)), Json::parse(kTorch));
}

TEST_F(ConvertCommandTest, BadArgumentsAreRefused) {
  expect_refused(run({"convert", torch_file(), path("x.dat")}),
                 {"x.dat", "expected a name that ends with .json", "--to"});
  expect_refused(run({"convert", torch_file(), path("x.json"), "--to", "xml"}),
                 {"--to 'xml'", "expected json, pickle or pytorch-json"});
  expect_refused(run({"convert", torch_file(), path("x.pickle"), "--protocol", "5"}),
                 {"--protocol 5: expected 2 to 4"});
  expect_refused(run({"convert", torch_file(), path("x.pickle"), "--protocol", "two"}), {"--protocol 'two'"});
  expect_refused(run({"convert", torch_file(), path("x.json"), "--protocol", "2"}),
                 {"--protocol: expected with pickle"});
  expect_refused(run({"convert", torch_file(), "-", "--json"}), {"--json: expected a file as OUT"});
  expect_refused(run({"convert", torch_file()}), {"OUT"});
  expect_refused(run({"convert", path("missing.json"), path("x.json")}), {"missing.json", "expected a file"});
  expect_refused(run({"convert", torch_file(), path("no/such/folder.json")}), {"folder.json"});
  for (const char* name : {"x.dat", "x.json", "x.pickle"}) EXPECT_FALSE(std::filesystem::exists(path(name))) << name;
}

TEST_F(ConvertCommandTest, WhatTheFormCannotHoldLeavesWhatWasThere) {
  using namespace std::string_literals;
  const std::string nan =
      write("nan.pickle", "\x80\2}(X\10\0\0\0segments]X\15\0\0\0device_traces]X\1\0\0\0xG\x7f\xf8\0\0\0\0\0\0u."s);
  const std::string before = write("out.json", "before");
  expect_refused(run({"convert", nan, before}), {"nan.pickle: 'nan': expected finite numbers"});
  EXPECT_EQ(content(before), "before");
}

TEST_F(ConvertCommandTest, HostileFilesAreRefusedInOneLine) {
  using namespace std::string_literals;
  const std::string whole = write("whole.pickle", "");
  ASSERT_EQ(run({"convert", torch_file(), whole}).status, kExitSuccess);
  const std::string pickle = content(whole);
  std::vector<std::string> files{
      std::string(10000, '['),
      "{\"segments\": " + std::string(10000, '{'),
      "\x80\2" + std::string(10000, '(') + std::string(10000, 't') + ".",
      "\x80\2" + std::string(10000, ']') + std::string(9999, 'a') + ".",
      "\x80\2X\xff\xff\xff\xff."s,
      "\x80\2cos\nsystem\nX\4\0\0\0true\x85R.",
      "\x80\2X\1\0\0\0\xff."s,
      "{\"segments\": \"\xff\"}",
      "{\"segments\": 1e999}",
      "{\"segments\": 99999999999999999999999}",
      "\x80\2\x8a\x9\0\0\0\0\0\0\0\0\1."s,
      "\x1f\x8b",
      "",
  };
  std::string bomb = "\x80\2]q\0"s;
  for (char level = 1; level < 60; ++level)
    bomb += "]q"s + level + "(h" + static_cast<char>(level - 1) + "h" + static_cast<char>(level - 1) + "e";
  files.push_back(bomb + ".");
  for (std::size_t size = 0; size < pickle.size(); ++size) files.push_back(pickle.substr(0, size));
  const std::string json = Json::parse(kTorch).dump();
  for (std::size_t size = 0; size < json.size(); ++size) files.push_back(json.substr(0, size));
  const std::string compressed = gzipped(pickle);
  for (std::size_t size = 0; size < compressed.size(); ++size) files.push_back(compressed.substr(0, size));
  for (const std::string& hostile : files) {
    SCOPED_TRACE(::testing::PrintToString(hostile.substr(0, 100)));
    const std::string file = write("hostile", hostile);
    expect_refused(run({"convert", file, path("never.json")}), {"hostile", "expected"});
    EXPECT_FALSE(std::filesystem::exists(path("never.json")));
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace cistern
