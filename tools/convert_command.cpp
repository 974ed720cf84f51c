// cistern convert: a snapshot file in another form.

#include <cistern/error.h>
#include <fmt/format.h>

#include <array>
#include <optional>
#include <ostream>
#include <string>

#include "stats/atomic_file.h"
#include "stats/pickle_writer.h"
#include "tools/command.h"
#include "tools/gzip_stream.h"
#include "tools/json_line.h"
#include "tools/progress.h"
#include "tools/snapshot_file.h"
#include "tools/snapshot_records.h"
#include "tools/usage.h"

namespace cistern {
namespace {

constexpr std::array kForms{SnapshotForm::json, SnapshotForm::pickle, SnapshotForm::torch_json};
constexpr std::string_view kStandardStream = "-";

struct Target {
  std::string path;
  SnapshotForm form = SnapshotForm::json;
  int protocol = kNewestPickleProtocol;
  [[nodiscard]] bool is_standard_output() const { return path == kStandardStream; }
};

// What the name says, gzip'd or not; nothing if it says nothing.
std::optional<SnapshotForm> form_of_name(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  if (path == kStandardStream || path.ends_with(".json")) return SnapshotForm::json;
  if (path.ends_with(".pickle") || path.ends_with(".pkl")) return SnapshotForm::pickle;
  return std::nullopt;
}

SnapshotForm choose_form(const std::string& asked, const std::string& path) {
  if (asked.empty()) {
    if (const auto form = form_of_name(path)) return *form;
    throw InvalidArgument(fmt::format(
        "cistern convert: '{}': expected a name that ends with .json, .pickle or .pkl, each perhaps with .gz, or --to",
        path));
  }
  for (const SnapshotForm form : kForms)
    if (asked == to_string(form)) return form;
  throw InvalidArgument(fmt::format("cistern convert: --to '{}': expected json, pickle or pytorch-json", asked));
}

int choose_protocol(std::optional<std::uint64_t> asked, SnapshotForm form) {
  if (!asked) return kNewestPickleProtocol;
  if (form != SnapshotForm::pickle)
    throw InvalidArgument(
        fmt::format("cistern convert: --protocol: expected with pickle, not with {}", to_string(form)));
  if (*asked < static_cast<std::uint64_t>(kOldestPickleProtocol) ||
      *asked > static_cast<std::uint64_t>(kNewestPickleProtocol))
    throw InvalidArgument(fmt::format("cistern convert: --protocol {}: expected {} to {}, which PyTorch's viewer reads",
                                      *asked, kOldestPickleProtocol, kNewestPickleProtocol));
  return static_cast<int>(*asked);
}

void write_compressed(const SnapshotFile& file, const Target& target, std::ostream& out) {
  GzipStream compressed(out);
  write_snapshot_file(file, target.form, compressed, target.protocol);
  compressed.finish();
  if (!compressed) out.setstate(std::ios::badbit);
}

void write(const SnapshotFile& file, const Target& target, const CommandStreams& streams) {
  if (target.is_standard_output())
    write_snapshot_file(file, target.form, streams.out, target.protocol);
  else
    write_file(target.path, [&](std::ostream& out) {
      if (target.path.ends_with(".gz"))
        write_compressed(file, target, out);
      else
        write_snapshot_file(file, target.form, out, target.protocol);
    });
}

struct RecordCounts {
  std::size_t segments = 0, blocks = 0, trace_entries = 0;
};

RecordCounts count_records(const SnapshotFile& file) {
  RecordCounts counts;
  for_each_record(DocumentPlace(file.document, file.name), [&counts](SnapshotRecord kind, const DocumentPlace&) {
    if (kind == SnapshotRecord::segment) ++counts.segments;
    if (kind == SnapshotRecord::block) ++counts.blocks;
    if (kind == SnapshotRecord::trace_entry) ++counts.trace_entries;
  });
  return counts;
}

void report(const SnapshotFile& file, const Target& target, bool as_json, std::ostream& out) {
  const RecordCounts counts = count_records(file);
  if (as_json) {
    print_json_line(out, {{"input", file.name},
                          {"input_form", to_string(file.form)},
                          {"output", target.path},
                          {"output_form", to_string(target.form)},
                          {"segments", counts.segments},
                          {"blocks", counts.blocks},
                          {"trace_entries", counts.trace_entries}});
    return;
  }
  out << fmt::format("{} ({}) -> {} ({}): {} segments, {} blocks, {} trace entries\n", file.name, to_string(file.form),
                     target.path, to_string(target.form), counts.segments, counts.blocks, counts.trace_entries);
}

}  // namespace

int convert_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Writes a snapshot file in another form, with all that it holds.", "cistern convert");
  std::string input;
  std::string form;
  std::optional<std::uint64_t> protocol;
  bool as_json = false;
  Target target;
  app.add_option("IN", input, "a snapshot: cistern's JSON, PyTorch's JSON or a pickle; - for standard input")
      ->required();
  app.add_option("OUT", target.path, "the file to write, gzip'd if it ends with .gz; - for standard output")
      ->required();
  app.add_option(
         "--to", form,
         "json: cistern's, each stack once; pickle and pytorch-json: what PyTorch's viewer opens; by default json "
         "or pickle, as OUT ends")
      ->type_name("FORM");
  add_whole_number(app, "--protocol", protocol, "of a pickle: 2, 3 or 4 (the default; 2 and 3 repeat stacks)");
  app.add_flag("--json", as_json, "say what was done as one line of JSON");
  app.footer("A pickle is read as data: nothing in it is run. OUT is written whole or not at all, but for -.");
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  target.form = choose_form(form, target.path);
  target.protocol = choose_protocol(protocol, target.form);
  if (as_json && target.is_standard_output())
    throw InvalidArgument("cistern convert: --json: expected a file as OUT: standard output is the snapshot's");

  Progress progress(streams.err, streams.show_progress);
  progress.start(input, 0, 1);
  const SnapshotFile file = read_snapshot_file(input, [&progress](double share) { progress.update("reading", share); });
  progress.clear();
  write(file, target, streams);
  if (!target.is_standard_output()) report(file, target, as_json, streams.out);
  return kExitSuccess;
}

}  // namespace cistern
