// Snapshot files of each form: read whole, written in each other form, and read back.

#include "tools/snapshot_file.h"

#include <cistern/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/document_equality.h"
#include "tests/history/json_schema.h"
#include "tests/property.h"
#include "tests/tools/temporary_file.h"
#include "tools/document_place.h"
#include "tools/snapshot_reader.h"
#include "tools/snapshot_records.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

[[maybe_unused]] const bool snapshot_file_configured = configure_properties("SnapshotFileProperty", 20000, 60);

std::string written(const SnapshotFile& file, SnapshotForm form, int protocol = 4) {
  std::ostringstream out;
  write_snapshot_file(file, form, out, protocol);
  return out.str();
}

SnapshotFile converted(const SnapshotFile& file, SnapshotForm form, int protocol = 4) {
  return parse_snapshot_file(written(file, form, protocol), "converted");
}

std::string refused_file(std::string_view text) {
  try {
    static_cast<void>(parse_snapshot_file(text, "s"));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::string refusal_to_write(const SnapshotFile& file, SnapshotForm form) {
  try {
    written(file, form);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

// PyTorch's JSON with what only newer versions have, at every level.
const char* const kNewest = R"({
  "segments": [{"device": 0, "address": 4096, "total_size": 1024, "allocated_size": 512, "active_size": 512,
    "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0], "is_expandable": false,
    "frames": [], "registration_counter": 7, "blocks": [
      {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated",
       "frames": [{"name": "f", "filename": "a.py", "line": 3, "fx_node_op": "call", "fx_node_name": null}],
       "forward_frames": ["x", "y"]},
      {"address": 4608, "size": 512, "requested_size": 0, "state": "inactive", "frames": []}]}],
  "device_traces": [[
    {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 1700000000000000, "compile_context": "0/1",
     "frames": [{"name": "f", "filename": "a.py", "line": 3, "fx_node_op": "call", "fx_node_name": null}],
     "user_metadata": "noted", "pool_id": [0, 0], "extra": {"deep": [1, [2.5, [true, null]]]}},
    {"action": "of_tomorrow", "frames": []},
    {"action": "oom", "device_free": 77, "size": 512, "stream": 0}], []],
  "host_segments": [{"frames": [{"name": "h"}]}], "host_traces": [[]],
  "allocator_settings": {"max_split_size": -1, "garbage_collection_threshold": 0.0, "large": 9007199254740993},
  "external_annotations": [], "extra": "é\u0000\n"})";

TEST(SnapshotFile, EveryFormKeepsAllThatAnotherSays) {
  const SnapshotFile file = parse_snapshot_file(kNewest, "newest.json");
  EXPECT_EQ(file.form, SnapshotForm::torch_json);
  for (const SnapshotForm first : {SnapshotForm::json, SnapshotForm::torch_json, SnapshotForm::pickle})
    for (const SnapshotForm second : {SnapshotForm::json, SnapshotForm::torch_json, SnapshotForm::pickle})
      for (const int protocol : {2, 3, 4}) {
        const SnapshotFile once = converted(file, first, protocol);
        EXPECT_EQ(once.form, first);
        EXPECT_TRUE(is_same_snapshot(file.document, once.document)) << to_string(first);
        const SnapshotFile twice = converted(once, second, protocol);
        EXPECT_TRUE(is_same_snapshot(file.document, twice.document)) << to_string(first) << to_string(second);
      }
}

TEST(SnapshotFile, PyTorchsJsonIsWrittenBackAsItWas) {
  const SnapshotFile file = parse_snapshot_file(kNewest, "newest.json");
  EXPECT_EQ(Json::parse(written(file, SnapshotForm::torch_json)), Json::parse(kNewest)) << "keys in their order";
  EXPECT_EQ(Json::parse(written(converted(file, SnapshotForm::pickle), SnapshotForm::torch_json)),
            Json::parse(kNewest));
}

TEST(SnapshotFile, OurJsonListsStacksOnceAndNamesThem) {
  const Json ours = Json::parse(written(parse_snapshot_file(kNewest, "newest.json"), SnapshotForm::json));
  ASSERT_EQ(ours["stacks"].size(), 2u);
  EXPECT_EQ(ours["stacks"][0][0]["fx_node_op"], "call");
  EXPECT_EQ(ours["stacks"][1], Json::array()) << "an entry with an empty list is not one without any";
  EXPECT_EQ(ours["segments"][0]["frames"], Json::array());
  EXPECT_FALSE(ours["segments"][0].contains("stack"));
  EXPECT_EQ(ours["segments"][0]["blocks"][0]["frames"], Json::array());
  EXPECT_EQ(ours["segments"][0]["blocks"][0]["stack"], 0);
  EXPECT_EQ(ours["device_traces"][0][0]["stack"], 0);
  EXPECT_EQ(ours["device_traces"][0][1]["stack"], 1);
  EXPECT_FALSE(ours["device_traces"][0][2].contains("stack"));
  EXPECT_FALSE(ours["device_traces"][0][0].contains("frames"));
}

const char* const kOurs = R"({"schema_version": 1,
  "segments": [{"frames": [], "blocks": [{"frames": [], "stack": 1, "tag": 0}, {"frames": [], "stack": 1}, {}]}],
  "device_traces": [[{}, {"stack": 3}, {"stack": 2}]],
  "stacks": [[{"name": "unused"}], [{"name": "f"}], [{"name": "f"}], []], "tags": ["t"]})";

TEST(SnapshotFile, OurJsonIsWrittenBackAsItWas) {
  const SnapshotFile file = parse_snapshot_file(kOurs, "ours.json");
  EXPECT_EQ(file.form, SnapshotForm::json);
  nlohmann::json again = nlohmann::json::parse(written(file, SnapshotForm::json));
  EXPECT_EQ(again, nlohmann::json::parse(kOurs)) << "stacks that are unused or repeated too";
}

TEST(SnapshotFile, OurJsonSaysItsVersionWhereverItCameFrom) {
  const auto version = [](const SnapshotFile& file) {
    return Json::parse(written(file, SnapshotForm::json)).value("schema_version", 0);
  };
  const SnapshotFile ours = parse_snapshot_file(kOurs, "ours.json");
  EXPECT_EQ(version(ours), 1);
  EXPECT_EQ(version(parse_snapshot_file(kNewest, "newest.json")), 1);
  for (const SnapshotForm form : {SnapshotForm::pickle, SnapshotForm::torch_json}) {
    EXPECT_EQ(version(converted(ours, form)), 1) << to_string(form);
    EXPECT_EQ(converted(ours, form).document.find_string("schema_version"), std::nullopt) << to_string(form);
  }
}

// As PyTorch 2.4 writes it.
const char* const kOlder = R"({
  "segments": [{"device": 0, "address": 4096, "total_size": 512, "allocated_size": 512, "active_size": 512,
    "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0], "is_expandable": false,
    "frames": [], "blocks": [{"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated",
                              "frames": [{"name": "f", "filename": "a.py", "line": 3}]}]}],
  "device_traces": [[{"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 1700000000000000,
                      "frames": [{"name": "f", "filename": "a.py", "line": 3}]}]],
  "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                         "expandable_segments": false},
  "external_annotations": []})";

TEST(SnapshotFile, WhatPyTorchWroteKeepsToOurSchemaOnceConverted) {
  const auto schema = nlohmann::json::parse(std::ifstream(CISTERN_SOURCE_DIR "/docs/snapshot-schema.json"));
  const std::string ours = written(parse_snapshot_file(kOlder, "older.json"), SnapshotForm::json);
  EXPECT_EQ(schema_faults(schema, nlohmann::json::parse(ours)), std::vector<std::string>());
}

TEST(SnapshotFile, NoStackMayBeSaidAsAnIndexToo) {
  const Json torch = Json::parse(written(
      parse_snapshot_file(
          R"({"segments": [{"stack": -1, "blocks": [{"stack": -1}]}], "device_traces": [[{"stack": -1}]], "stacks": []})",
          "none.json"),
      SnapshotForm::torch_json));
  EXPECT_EQ(torch["segments"][0]["frames"], Json::array());
  EXPECT_EQ(torch["segments"][0]["blocks"][0]["frames"], Json::array());
  EXPECT_EQ(torch["device_traces"][0][0], Json::object());
}

TEST(SnapshotFile, StacksStandInPlaceOfTheirIndicesInPyTorchsForms) {
  const Json torch = Json::parse(written(parse_snapshot_file(kOurs, "ours.json"), SnapshotForm::torch_json));
  EXPECT_FALSE(torch.contains("stacks"));
  EXPECT_EQ(torch["segments"][0]["frames"], Json::array());
  EXPECT_EQ(torch["segments"][0]["blocks"][0]["frames"], Json::parse(R"([{"name": "f"}])"));
  EXPECT_EQ(torch["device_traces"][0], Json::parse(R"([{}, {"frames": []}, {"frames": [{"name": "f"}]}])"));
}

TEST(SnapshotFile, IndicesMustNameAStack) {
  EXPECT_EQ(refused_file(R"({"segments": [{"blocks": [{"stack": 1}]}], "device_traces": [], "stacks": [[]]})"),
            "s: 'segments[0].blocks[0].stack: 1': expected an integer from -1 to 0");
  EXPECT_EQ(refused_file(R"({"segments": [], "device_traces": [[{"stack": 0}]]})"),
            "s: 'device_traces[0][0].stack: 0': expected a list stacks at the top level, of which it is an index");
  EXPECT_THAT(refused_file(R"({"segments": [], "device_traces": [[{"stack": 0, "frames": [{}]}]], "stacks": [[]]})"),
              HasSubstr("expected no frames beside an index in stack"));
  EXPECT_THAT(refused_file(R"({"segments": [], "device_traces": [], "stacks": [{}]})"),
              HasSubstr("stacks[0]: {}': expected a list"));
  EXPECT_THAT(refused_file(R"({"segments": [], "device_traces": [], "stacks": [[1]]})"),
              HasSubstr("expected an object"));
}

TEST(SnapshotFile, WhatIsNoSnapshotIsRefused) {
  EXPECT_THAT(refused_file("7"), HasSubstr("expected an object with segments and device_traces"));
  EXPECT_THAT(refused_file("\x80\2N."), HasSubstr("expected an object with segments and device_traces"));
  EXPECT_THAT(refused_file(R"({"segments": []})"), HasSubstr("expected the key \"device_traces\""));
  EXPECT_THAT(refused_file(R"({"segments": [1], "device_traces": []})"),
              HasSubstr("segments[0]: 1': expected an object"));
  EXPECT_THAT(refused_file(R"({"segments": [{}], "device_traces": []})"), HasSubstr("expected the key \"blocks\""));
  EXPECT_THAT(refused_file(R"({"segments": [], "device_traces": [{}]})"),
              HasSubstr("device_traces[0]: {}': expected a list"));
  EXPECT_THAT(refused_file(R"({"segments": [], "device_traces": [[{"frames": "main"}]]})"),
              HasSubstr("expected a list"));
  // In no form: what is read as one is written as any.
  EXPECT_EQ(refused_file(R"({"segments": [], "device_traces": [[{"frames": [{}, []]}]]})"),
            "s: 'device_traces[0][0].frames[1]: []': expected an object");
}

TEST(SnapshotFile, ABareListIsThatOfTheSegments) {
  Json segments = Json::parse(kOlder)["segments"];
  segments[0]["device"] = 2;
  const SnapshotFile file = parse_snapshot_file(segments.dump(), "bare.json");
  EXPECT_EQ(Json::parse(written(file, SnapshotForm::torch_json)),
            (Json{{"segments", segments}, {"device_traces", {Json::array(), Json::array(), Json::array()}}}));
  EXPECT_EQ(snapshot_of(file).segments.at(0).blocks.size(), 1u);
  EXPECT_EQ(snapshot_of(converted(file, SnapshotForm::pickle)).segments.at(0).device, 2);
  EXPECT_EQ(snapshot_of(parse_snapshot_file("[]", "none.json")).segments.size(), 0u);
  EXPECT_EQ(snapshot_of(parse_snapshot_file("\x80\2].", "none.pickle")).segments.size(), 0u);
}

TEST(SnapshotFile, OfABareListNoDeviceTakesMemory) {
  Json segments = Json::parse(kOlder)["segments"];
  for (const std::int64_t device :
       {std::int64_t{50000}, std::int64_t{1} << 30, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
    segments[0]["device"] = device;
    const SnapshotFile file = parse_snapshot_file(segments.dump(), "bare.json");
    EXPECT_THROW(static_cast<void>(snapshot_of(file)), InvalidArgument) << device;
    EXPECT_LT(written(file, SnapshotForm::torch_json).size(), 2000u);
  }
  EXPECT_EQ(refused_file("[1]"), "s: 'segments[0]: 1': expected an object");
}

std::set<std::size_t> lists_of_frames(const SnapshotFile& file) {
  std::set<std::size_t> lists;
  for_each_record(DocumentPlace(file.document, file.name), [&](SnapshotRecord, const DocumentPlace& record) {
    if (const Value* frames = file.document.find(record.value(), "frames"))
      lists.insert(file.document.container_number(*frames));
  });
  return lists;
}

TEST(SnapshotFile, EqualStacksAreOneListWhateverTheForm) {
  const SnapshotFile file = parse_snapshot_file(kNewest, "newest.json");
  EXPECT_EQ(lists_of_frames(file).size(), 2u) << "one of a frame, one empty";
  for (const SnapshotForm form : {SnapshotForm::json, SnapshotForm::torch_json, SnapshotForm::pickle})
    EXPECT_LE(lists_of_frames(converted(file, form)).size(), 3u) << to_string(form);
  // Written out twice in a pickle: no memo.
  using namespace std::string_literals;
  const std::string entry = "}(X\6\0\0\0frames](}(X\4\0\0\0nameX\1\0\0\0fueu"s;
  const std::string twice = "\x80\2}(X\10\0\0\0segments]X\15\0\0\0device_traces](]("s + entry + entry + "eeu.";
  EXPECT_EQ(lists_of_frames(parse_snapshot_file(twice, "twice.pickle")).size(), 1u);
}

TEST(SnapshotFile, APickleHoldsEachStackOnce) {
  Json json = Json::parse(kNewest);
  const std::size_t before = written(parse_snapshot_file(json.dump(), "s"), SnapshotForm::pickle).size();
  for (int i = 0; i < 100; ++i) json["device_traces"][0].push_back({{"frames", json["device_traces"][0][0]["frames"]}});
  const SnapshotFile file = parse_snapshot_file(json.dump(), "s");
  for (const int protocol : {2, 3, 4}) EXPECT_LT(written(file, SnapshotForm::pickle, protocol).size(), before + 2500);
}

TEST(SnapshotFile, TuplesStayTuplesInPicklesAndAreListsInJson) {
  using namespace std::string_literals;
  const std::string pickle =
      "\x80\2}(X\10\0\0\0segments]X\15\0\0\0device_traces]X\1\0\0\0x()K\1\x85K\1K\2\x86K\1K\2K\3\x87(K\1K\2K\3K\4tlu."s;
  const SnapshotFile file = parse_snapshot_file(pickle, "t.pickle");
  const SnapshotFile again = converted(file, SnapshotForm::pickle);
  const Value tuples = *again.document.find(again.document.root(), "x");
  for (const Value tuple : again.document.elements(tuples)) EXPECT_TRUE(tuple.is(Value::Kind::tuple));
  EXPECT_EQ(Json::parse(written(file, SnapshotForm::torch_json))["x"],
            Json::parse("[[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]"));
}

TEST(SnapshotFile, NumbersThatAFormCannotHoldAreRefused) {
  const SnapshotFile large =
      parse_snapshot_file(R"({"segments": [], "device_traces": [], "x": 9223372036854775808})", "s");
  for (const SnapshotForm form : {SnapshotForm::torch_json, SnapshotForm::pickle})
    EXPECT_EQ(refusal_to_write(large, form),
              "s: '9223372036854775808': expected numbers below 2^63, which PyTorch's viewer reads");
  EXPECT_TRUE(is_same_snapshot(converted(large, SnapshotForm::json).document, large.document));

  using namespace std::string_literals;
  const SnapshotFile nan =
      parse_snapshot_file("\x80\2}(X\10\0\0\0segments]X\15\0\0\0device_traces]X\1\0\0\0xG\x7f\xf8\0\0\0\0\0\0u."s, "n");
  for (const SnapshotForm form : {SnapshotForm::torch_json, SnapshotForm::json})
    EXPECT_EQ(refusal_to_write(nan, form), "n: 'nan': expected finite numbers, which is all that JSON has");
  EXPECT_TRUE(is_same_snapshot(converted(nan, SnapshotForm::pickle).document, nan.document));
}

TEST(SnapshotFile, UnlimitedIsMinusOneInPyTorchsForms) {
  const SnapshotFile file =
      parse_snapshot_file(R"({"segments": [], "device_traces": [], "x": 18446744073709551615})", "s");
  EXPECT_EQ(Json::parse(written(file, SnapshotForm::torch_json))["x"], -1);
  EXPECT_EQ(Json::parse(written(file, SnapshotForm::json))["x"], 18446744073709551615u);
}

TEST(SnapshotFile, StacksThatFillOutToFarMoreThanTheFileAreRefused) {
  Json json = {{"segments", Json::array()}, {"device_traces", {Json::array()}}, {"stacks", {Json::array()}}};
  for (int i = 0; i < 5000; ++i) {
    json["stacks"][0].push_back(Json::object());
    json["device_traces"][0].push_back({{"stack", 0}});
  }
  EXPECT_THAT(refused_file(json.dump()), HasSubstr("expected stacks that fill out to at most"));
}

TEST(SnapshotFile, CompressedFilesOfEachFormAreRead) {
  const SnapshotFile file = parse_snapshot_file(kNewest, "newest.json");
  for (const SnapshotForm form : {SnapshotForm::json, SnapshotForm::torch_json, SnapshotForm::pickle}) {
    const TemporaryFile compressed(gzipped(written(file, form)), ".gz");
    double last = 0;
    const SnapshotFile again = read_snapshot_file(compressed.path(), [&last](double share) {
      EXPECT_LE(last, share);
      last = share;
    });
    EXPECT_EQ(last, 1.0);
    EXPECT_EQ(again.form, form);
    EXPECT_TRUE(is_same_snapshot(again.document, file.document)) << to_string(form);
  }
}

TEST(SnapshotFile, IntegersThatJsonsReadersRoundAreRefused) {
  EXPECT_THAT(refused_file("{\"x\":\n123456789012345678901234567890}"),
              HasSubstr("s:2: '123456789012345678901234567890}': expected an integer from -2^63 to 2^64 - 1"));
}

// Random snapshots: extra members of every kind at every level, and stacks that entries share.
class RandomSnapshot {
 public:
  Json make() {
    for (int i = *in(0, 4); i >= 0; --i) stacks_.push_back(make_stack());
    Json json = {{"segments", Json::array()}, {"device_traces", Json::array()}};
    for (int i = *in(0, 3); i > 0; --i) json["segments"].push_back(make_segment());
    for (int i = *in(0, 3); i > 0; --i) {
      Json history = Json::array();
      for (int j = *in(0, 8); j > 0; --j) history.push_back(make_entry());
      json["device_traces"].push_back(history);
    }
    add_extras(json);
    return json;
  }

 private:
  static rc::Gen<int> in(int least, int below) { return rc::gen::inRange(least, below); }

  Json make_stack() {
    Json stack = Json::array();
    for (int i = *in(0, 4); i > 0; --i) {
      Json frame = {{"name", *text()}, {"filename", *text()}, {"line", *in(0, 1000)}};
      if (*in(0, 4) == 0) frame["fx_node_op"] = make_value(2);
      stack.push_back(frame);
    }
    return stack;
  }
  Json make_record(bool always_frames) {
    Json record = Json::object();
    add_extras(record);
    if (always_frames || *in(0, 2) == 0)
      record["frames"] = stacks_[static_cast<std::size_t>(*in(0, static_cast<int>(stacks_.size())))];
    return record;
  }
  Json make_segment() {
    Json segment = make_record(true);
    segment["blocks"] = Json::array();
    for (int i = *in(0, 4); i > 0; --i) segment["blocks"].push_back(make_record(true));
    return segment;
  }
  Json make_entry() {
    Json entry = make_record(false);
    entry["action"] = "alloc";
    entry["addr"] = *rc::gen::arbitrary<std::int64_t>();
    return entry;
  }
  void add_extras(Json& object) {
    for (int i = *in(0, 3); i > 0; --i) object["extra" + std::to_string(i)] = make_value(3);
  }
  static rc::Gen<std::string> text() {
    return rc::gen::map(rc::gen::container<std::string>(rc::gen::element('a', '"', '\\', '\n', '\0', '\x7f')),
                        [](std::string made) { return made + (made.size() % 3 == 0 ? "é€😀" : ""); });
  }
  Json make_value(int levels) {
    switch (*in(0, levels > 0 ? 8 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return *rc::gen::arbitrary<bool>();
      case 2:
        return *rc::gen::arbitrary<std::int64_t>();
      case 3:
        return *in(-70000, 70000);
      case 4:
        return *rc::gen::arbitrary<double>();
      case 5:
        return *text();
      case 6: {
        Json list = Json::array();
        for (int i = *in(0, 4); i > 0; --i) list.push_back(make_value(levels - 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (int i = *in(0, 4); i > 0; --i) object[*text()] = make_value(levels - 1);
        return object;
      }
    }
  }

  std::vector<Json> stacks_;
};

RC_GTEST_PROP(SnapshotFileProperty, WhatAnyFormSaysIsReadBackFromEachOther, ()) {
  const Json json = RandomSnapshot().make();
  const SnapshotFile file = parse_snapshot_file(json.dump(), "random.json");
  constexpr SnapshotForm forms[] = {SnapshotForm::json, SnapshotForm::torch_json, SnapshotForm::pickle};
  const SnapshotForm first = *rc::gen::elementOf(std::vector<SnapshotForm>(std::begin(forms), std::end(forms)));
  const int protocol = *rc::gen::inRange(2, 5);
  for (const SnapshotForm second : forms) {
    const SnapshotFile back = converted(converted(file, first, protocol), second, protocol);
    RC_ASSERT(back.form == second);
    RC_ASSERT(Json::parse(written(back, SnapshotForm::torch_json)) == json);
  }
}

}  // namespace
}  // namespace cistern
