// What every subcommand that reads snapshots does with files: forms, the published sample, and those that are none.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include "tests/command/command_fixture.h"
#include "tests/command/made_snapshot.h"
#include "tests/golden/shared_folder.h"

namespace cistern {
namespace {

using ::testing::ContainsRegex;
using ::testing::Not;

// The arguments of a subcommand for one file.
Arguments arguments_for(const std::string& subcommand, const std::string& file) {
  if (subcommand == "diff") return {subcommand, file, file};
  if (subcommand == "explain") return {subcommand, file, "3MiB", "0"};
  return {subcommand, file};
}

// The output with FILE for the file's name, and for the form, which is all that may differ.
std::string without_names(std::string out, const std::string& file) {
  const auto replace = [&out](const std::string& text, const std::string& by) {
    for (std::size_t at = 0; (at = out.find(text, at)) != std::string::npos; at += by.size())
      out.replace(at, text.size(), by);
  };
  replace(file, "FILE");
  for (const char* form : {"\"pytorch-json\"", "\"pickle\"", "\"json\""}) replace(form, "FORM");
  return out;
}

class SnapshotFiles : public CommandTest, public ::testing::WithParamInterface<std::string> {
 protected:
  Result run_on(const std::string& file, bool json = false) const {
    Arguments arguments = arguments_for(GetParam(), file);
    if (json) arguments.push_back("--json");
    return run(arguments);
  }
  std::filesystem::path sample() const { return shared_folder() / "reference" / "snapshot-sample.json"; }
  std::string written() const {
    Snapshot snapshot = make_snapshot({{0x1000000, {{512, BlockState::active_allocated, 0}, {2096640}}}});
    snapshot.stacks = {make_stack({"step", "main"})};
    std::ostringstream text;
    write_torch_json(snapshot, text);
    static_cast<void>(write("good.json", text.str()));
    return text.str();
  }
};

TEST_P(SnapshotFiles, ThePublishedSampleReadsTheSameInEachForm) {
  if (!std::filesystem::exists(sample())) GTEST_SKIP() << sample() << " is absent";
  for (const bool json : {false, true}) {
    const Result of_json = run_on(sample().string(), json);
    EXPECT_NE(of_json.status, kExitBadUsage) << of_json.err;
    EXPECT_NE(of_json.out, "");
    for (const char* name : {"2.pickle", "3.pickle.gz", "4.pickle", "ours.json", "torch.json.gz"}) {
      Arguments convert{"convert", sample().string(), path(name)};
      if (std::isdigit(*name)) convert.insert(convert.end(), {"--protocol", std::string(1, *name)});
      if (*name == 't') convert.insert(convert.end(), {"--to", "pytorch-json"});
      ASSERT_EQ(run(convert).status, kExitSuccess);
      const Result of_form = run_on(path(name), json);
      EXPECT_EQ(of_form.status, of_json.status);
      EXPECT_EQ(without_names(of_form.out, path(name)), without_names(of_json.out, sample().string())) << name;
    }
  }
}

TEST_P(SnapshotFiles, WhatIsCutOrNoSnapshotIsOneLineAndNothingElse) {
  const std::string good = written();
  EXPECT_NE(run_on(path("good.json")).status, kExitBadUsage);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 3})
    for (const bool json : {false, true})
      expect_refused(run_on(write("cut.json", good.substr(0, size)), json), {"cut.json"});
  expect_refused(run_on(write("list.json", "[7]")), {"list.json"});
  expect_refused(run_on(write("number.json", "7")), {"number.json", "7"});
  expect_refused(run_on(write("bytes.pickle",
                              "\x80\x04"
                              "cos\nsystem\n.")),
                 {"bytes.pickle"});
  expect_refused(run_on(write("broken.json.gz", "\x1f\x8b\x08 no gzip")), {"broken.json.gz"});
  expect_refused(run_on(write("nested.json", std::string(10000, '['))), {"nested.json"});
  expect_refused(run_on(write("utf8.json", "{\"segments\": [], \"device_traces\": [], \"\xff\": 0}")), {"utf8.json"});
  expect_refused(run_on(path("absent.json")), {"absent.json"});
}

TEST_P(SnapshotFiles, SizesWhoseSumNoNumberHoldsAreCapped) {
  // Of one device such sums are refused; these are of several.
  std::vector<MadeSegment> segments;
  for (int device = 0; device < 4; ++device) segments.push_back({0x1000000, {{INT64_MAX - 511}}, 0, device});
  write_pickle(make_snapshot(segments, 4), path("huge.pickle"));
  for (const bool json : {false, true}) {
    const Result result = run_on(path("huge.pickle"), json);
    EXPECT_NE(result.status, kExitBadUsage) << result.err;
    // A sum that is none would be negative; -1 stands for no limit.
    EXPECT_THAT(without_names(result.out, path("huge.pickle")), Not(ContainsRegex("-[0-9][0-9]")));
  }
}

INSTANTIATE_TEST_SUITE_P(Subcommand, SnapshotFiles, ::testing::Values("summary", "diff", "leaks", "blocks", "explain"),
                         [](const auto& subcommand) { return subcommand.param; });

}  // namespace
}  // namespace cistern
