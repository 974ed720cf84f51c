// cistern leaks: blocks that are live at the end of a process or of a part of its history, by owner.

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "stats/json_writer.h"
#include "stats/sizes.h"
#include "tools/block_filter.h"
#include "tools/command.h"
#include "tools/frame_text.h"
#include "tools/leaks.h"
#include "tools/listing.h"
#include "tools/owners.h"
#include "tools/snapshot_input.h"
#include "tools/usage.h"

namespace cistern {
namespace {

struct LeaksUsage {
  std::string path;
  BlockFilter filter;
  std::optional<std::uint64_t> since;
  std::optional<std::uint64_t> until;
  std::optional<std::string> range;
  std::optional<std::uint64_t> older_than;
  Listing listing;

  void add_to(CLI::App& app) {
    add_snapshot(app, "SNAPSHOT", path);
    add_whole_number(app, "--since", since,
                     "only blocks that were allocated at or after this moment, in microseconds since the Unix epoch");
    add_whole_number(app, "--until", until, "and not freed until this moment; by default, until the snapshot");
    app.add_option(
           "--range", range,
           "the same of a range by its name in external_annotations: the last one that ended, or else that began")
        ->type_name("NAME");
    add_whole_number(app, "--older-than", older_than,
                     "only blocks that at least N entries of the history are younger than");
    filter.add_owner_options(app);
    listing.add_to(app);
    app.footer(
        "Without --since, --range or --older-than every block that is in callers' hands is a leak. Blocks that the\n"
        "history does not mention are older than it. Bytes are of whole blocks, but of those that were freed after\n"
        "--until, or the range's end, what was asked for: a history has no more. Exit status 1: there are leaks.");
  }

  void check() const {
    if (until && !since) throw InvalidArgument("cistern leaks: --until: expected with --since");
    if (since && until && *until < *since)
      throw InvalidArgument(fmt::format("cistern leaks: --until {}: expected at least --since {}", *until, *since));
    if ((since ? 1 : 0) + (range ? 1 : 0) + (older_than ? 1 : 0) > 1)
      throw InvalidArgument("cistern leaks: --since, --range, --older-than: expected one of them");
  }

  // The option that decides, for errors.
  [[nodiscard]] std::string scope_option() const {
    if (since) return fmt::format("cistern leaks: --since {}", *since);
    if (older_than) return fmt::format("cistern leaks: --older-than {}", *older_than);
    return "cistern leaks: --range";
  }

  [[nodiscard]] LeakScope scope(const Snapshot& snapshot) const {
    if (range) {
      std::optional<int> device;
      if (filter.device && *filter.device < snapshot.device_traces.size()) device = static_cast<int>(*filter.device);
      return scope_of_range(snapshot, *range, device, scope_option());
    }
    const auto moment = [](std::optional<std::uint64_t> given) -> std::optional<std::int64_t> {
      if (!given) return std::nullopt;
      constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
      return static_cast<std::int64_t>(std::min(*given, kMost));
    };
    return {moment(since), moment(until), older_than};
  }
};

struct LeakGroup {
  Owner owner;
  BlockFigures figures;
  std::int64_t freed_later = 0;
};

struct Leaks {
  LeakScope scope;
  OwnerTable owners;
  BlockFigures all;
  std::int64_t freed_later = 0;
  std::vector<LeakGroup> groups;  // the most bytes first
};

Leaks group_leaks(const Snapshot& snapshot, const LeaksUsage& usage) {
  Leaks leaks;
  leaks.scope = usage.scope(snapshot);
  SnapshotOwners owners(leaks.owners, snapshot);
  BlockMatcher matcher(usage.filter, snapshot);
  std::map<Owner, LeakGroup> groups;
  for (const LeakedBlock& leak : find_leaks(snapshot, leaks.scope, usage.scope_option())) {
    if (!matcher.matches(leak.block)) continue;
    const Owner owner = owners.of(leak.block.stack, leak.block.tag);
    LeakGroup& group = groups.try_emplace(owner, LeakGroup{owner, {}, 0}).first->second;
    group.figures.add(leak.block);
    group.freed_later += leak.freed_later ? 1 : 0;
    leaks.all.add(leak.block);
    leaks.freed_later += leak.freed_later ? 1 : 0;
  }
  for (const auto& [owner, group] : groups) leaks.groups.push_back(group);
  std::ranges::stable_sort(leaks.groups, std::ranges::greater(),
                           [](const LeakGroup& group) { return group.figures.bytes; });
  return leaks;
}

std::string figures_text(const BlockFigures& figures, std::int64_t freed_later) {
  std::string text = fmt::format("{} in {} block{}", format_size(static_cast<std::uint64_t>(figures.bytes)),
                                 figures.blocks, figures.blocks == 1 ? "" : "s");
  if (freed_later != 0) text += fmt::format(" ({} freed later)", freed_later);
  return text;
}

void print_text(const Leaks& leaks, const LeaksUsage& usage, std::ostream& out) {
  if (leaks.groups.empty()) {
    out << "no leaks\n";
    return;
  }
  out << fmt::format("leaked: {}, by {} owner{}\n", figures_text(leaks.all, leaks.freed_later), leaks.groups.size(),
                     leaks.groups.size() == 1 ? "" : "s");
  const std::size_t printed = usage.listing.shown_owners(leaks.groups.size());
  for (std::size_t i = 0; i < printed; ++i) {
    const LeakGroup& group = leaks.groups[i];
    const std::string tag = group.owner.tag == 0 ? "(no tag)" : printable_text(leaks.owners.tag(group.owner.tag));
    out << fmt::format("\n{}   {}{}\n", figures_text(group.figures, group.freed_later), tag,
                       group.owner.stack == 0 ? "   (no stack)" : "");
    const StackInfo stack = leaks.owners.stack(group.owner.stack);
    print_frames(out, stack, "    ", usage.listing.shown_frames(stack.size()));
  }
  if (printed < leaks.groups.size()) out << fmt::format("\n... {} more owners\n", leaks.groups.size() - printed);
}

template <class Number>
void write_optional(JsonWriter& json, std::string_view name, const std::optional<Number>& value) {
  json.key(name);
  if (value)
    json.number(*value);
  else
    json.null();
}

void write_figures(JsonWriter& json, const BlockFigures& figures, std::int64_t freed_later) {
  json.key("blocks").number(figures.blocks);
  json.key("bytes").number(figures.bytes);
  json.key("requested_bytes").number(figures.requested_bytes);
  json.key("freed_later").number(freed_later);
}

void write_group(JsonWriter& json, const Leaks& leaks, const LeakGroup& group, const LeaksUsage& usage) {
  json.begin_object();
  write_figures(json, group.figures, group.freed_later);
  json.key("tag");
  if (group.owner.tag == 0)
    json.null();
  else
    json.string(leaks.owners.tag(group.owner.tag));
  StackInfo stack = leaks.owners.stack(group.owner.stack);
  stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(usage.listing.shown_frames(stack.size())), stack.end());
  json.key("frames");
  write_frames(json, stack);
  json.end_object();
}

void write_json(const std::string& name, const Leaks& leaks, const LeaksUsage& usage, std::ostream& out) {
  JsonWriter json(out);
  json.begin_object();
  json.key("snapshot").string(name);
  write_optional(json, "since_us", leaks.scope.since_us);
  write_optional(json, "until_us", leaks.scope.until_us);
  write_optional(json, "older_than", leaks.scope.older_than);
  write_figures(json, leaks.all, leaks.freed_later);
  json.key("owners").number(leaks.groups.size());
  json.key("groups").begin_array();
  const std::size_t written = usage.listing.shown_owners(leaks.groups.size());
  for (std::size_t i = 0; i < written; ++i) write_group(json, leaks, leaks.groups[i], usage);
  json.end_array().end_object().finish();
}

}  // namespace

int leaks_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Finds blocks that are live at the end of a process, or of a part of its history.", "cistern leaks");
  LeaksUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  usage.check();
  const SnapshotInput input = read_snapshot_input(usage.path, streams);
  usage.filter.require_known(input.snapshot, "cistern leaks");
  const Leaks leaks = group_leaks(input.snapshot, usage);
  if (usage.listing.json)
    write_json(input.name, leaks, usage, streams.out);
  else
    print_text(leaks, usage, streams.out);
  return leaks.groups.empty() ? kExitSuccess : kExitLeaks;
}

}  // namespace cistern
