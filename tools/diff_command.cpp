// cistern diff: what the live blocks of two snapshots differ by.

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "stats/json_writer.h"
#include "stats/sizes.h"
#include "tools/block_filter.h"
#include "tools/command.h"
#include "tools/frame_text.h"
#include "tools/listing.h"
#include "tools/owners.h"
#include "tools/snapshot_diff.h"
#include "tools/snapshot_input.h"
#include "tools/snapshot_parts.h"
#include "tools/usage.h"

namespace cistern {
namespace {

struct DiffUsage {
  std::array<std::string, 2> paths;
  BlockFilter filter;
  std::optional<std::size_t> by;  // nothing: both; 0: stack, 1: tag
  Listing listing;

  [[nodiscard]] bool by_stack() const { return by.value_or(0) == 0; }
  [[nodiscard]] bool by_tag() const { return by.value_or(1) == 1; }
  void add_to(CLI::App& app) {
    add_snapshot(app, "A", paths[0]);
    add_snapshot(app, "B", paths[1]);
    filter.add_owner_options(app);
    add_choice(app, "--by", by, "compare only by", {"stack", "tag"});
    listing.add_to(app);
    app.footer(
        "Compared are live blocks: in callers' hands, not freed. Stacks are the same if all their frames are, tags if\n"
        "their names are; both are compared across processes and forms of files.");
  }
};

// What is compared of one snapshot, which itself need not be kept.
struct Side {
  std::string name;
  SnapshotParts parts;
  OwnerFigures by_stack;
  OwnerFigures by_tag;
};

Side read_side(const DiffUsage& usage, std::size_t index, OwnerTable& table, const CommandStreams& streams) {
  const SnapshotInput input = read_snapshot_input(usage.paths[index], streams, index, usage.paths.size());
  Side side{input.name, parts_of(input.snapshot, usage.filter.device), {}, {}};
  SnapshotOwners owners(table, input.snapshot);
  BlockMatcher matcher(usage.filter, input.snapshot);
  for_each_block(input.snapshot, [&](const BlockRecord& block) {
    if (block.state != BlockState::active_allocated || !matcher.matches(block)) return;
    side.by_stack[{owners.stack_number(block.stack), 0}].add(block);
    side.by_tag[{0, owners.tag_number(block.tag)}].add(block);
  });
  return side;
}

struct Diff {
  Side a;
  Side b;
  OwnerTable owners;
  OwnerChanges by_stack;
  OwnerChanges by_tag;
};

Diff compare(const DiffUsage& usage, const CommandStreams& streams) {
  Diff diff;
  diff.a = read_side(usage, 0, diff.owners, streams);
  diff.b = read_side(usage, 1, diff.owners, streams);
  diff.by_stack = compare_owners(diff.a.by_stack, diff.b.by_stack);
  diff.by_tag = compare_owners(diff.a.by_tag, diff.b.by_tag);
  return diff;
}

std::string signed_size(std::int64_t bytes) {
  if (bytes == 0) return "0 bytes";
  const auto size = static_cast<std::uint64_t>(bytes < 0 ? -bytes : bytes);
  return fmt::format("{}{}", bytes < 0 ? '-' : '+', format_size(size));
}

std::string size_text(std::int64_t bytes) { return std::string(format_size(static_cast<std::uint64_t>(bytes))); }

void print_parts(const Diff& diff, std::ostream& out) {
  out << fmt::format("A  {}\nB  {}\n\n{:<18}  {:>16}  {:>16}  {:>16}\n", printable_text(diff.a.name),
                     printable_text(diff.b.name), "", "A", "B", "B - A");
  for (const NamedPart& part : kSnapshotParts) {
    const std::int64_t a = diff.a.parts.*part.value;
    const std::int64_t b = diff.b.parts.*part.value;
    if (part.value == &SnapshotParts::live_blocks)
      out << fmt::format("{:<18}  {:>16}  {:>16}  {:>+16}\n", part.name, a, b, b - a);
    else
      out << fmt::format("{:<18}  {:>16}  {:>16}  {:>16}\n", part.name, size_text(a), size_text(b), signed_size(b - a));
  }
}

void print_change(const OwnerChange& change, std::string_view owner, std::ostream& out) {
  out << fmt::format("{:<8}  {:>14}  {:>+8} blocks   {} in {} -> {} in {}{}{}\n", to_string(change.change),
                     signed_size(change.bytes()), change.blocks(), size_text(change.before.bytes), change.before.blocks,
                     size_text(change.after.bytes), change.after.blocks, owner.empty() ? "" : "   ", owner);
}

template <class Print>
void print_changes(std::string_view title, const OwnerChanges& found, const DiffUsage& usage, std::ostream& out,
                   Print&& print) {
  out << fmt::format("\n{}: {} changed, {} unchanged\n", title, found.changes.size(), found.unchanged);
  const std::size_t printed = usage.listing.shown_owners(found.changes.size());
  for (std::size_t i = 0; i < printed; ++i) print(found.changes[i]);
  if (printed < found.changes.size()) out << fmt::format("... {} more\n", found.changes.size() - printed);
}

void print_text(const Diff& diff, const DiffUsage& usage, std::ostream& out) {
  print_parts(diff, out);
  if (usage.by_tag())
    print_changes("by tag", diff.by_tag, usage, out, [&](const OwnerChange& change) {
      const std::uint32_t tag = change.owner.tag;
      print_change(change, tag == 0 ? "(no tag)" : printable_text(diff.owners.tag(tag)), out);
    });
  if (usage.by_stack())
    print_changes("by stack", diff.by_stack, usage, out, [&](const OwnerChange& change) {
      print_change(change, change.owner.stack == 0 ? "(no stack)" : "", out);
      const StackInfo stack = diff.owners.stack(change.owner.stack);
      print_frames(out, stack, "    ", usage.listing.shown_frames(stack.size()));
    });
}

void write_figures(JsonWriter& json, const BlockFigures& figures) {
  json.begin_object();
  json.key("blocks").number(figures.blocks);
  json.key("bytes").number(figures.bytes);
  json.key("requested_bytes").number(figures.requested_bytes);
  json.end_object();
}

void write_side(JsonWriter& json, const Side& side) {
  json.begin_object();
  json.key("snapshot").string(side.name);
  for (const NamedPart& part : kSnapshotParts) json.key(part.name).number(side.parts.*part.value);
  json.end_object();
}

template <class WriteOwner>
void write_changes(JsonWriter& json, const OwnerChanges& found, const DiffUsage& usage, WriteOwner&& write_owner) {
  json.begin_object();
  json.key("changed").number(found.changes.size());
  json.key("unchanged").number(found.unchanged);
  json.key("owners").begin_array();
  const std::size_t written = usage.listing.shown_owners(found.changes.size());
  for (std::size_t i = 0; i < written; ++i) {
    const OwnerChange& change = found.changes[i];
    json.begin_object();
    json.key("change").string(to_string(change.change));
    write_owner(change.owner);
    json.key("bytes").number(change.bytes());
    json.key("blocks").number(change.blocks());
    json.key("a");
    write_figures(json, change.before);
    json.key("b");
    write_figures(json, change.after);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_json(const Diff& diff, const DiffUsage& usage, std::ostream& out) {
  JsonWriter json(out);
  json.begin_object();
  json.key("a");
  write_side(json, diff.a);
  json.key("b");
  write_side(json, diff.b);
  if (usage.by_tag()) {
    json.key("by_tag");
    write_changes(json, diff.by_tag, usage, [&](Owner owner) {
      json.key("tag");
      if (owner.tag == 0)
        json.null();
      else
        json.string(diff.owners.tag(owner.tag));
    });
  }
  if (usage.by_stack()) {
    json.key("by_stack");
    write_changes(json, diff.by_stack, usage, [&](Owner owner) {
      StackInfo stack = diff.owners.stack(owner.stack);
      stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(usage.listing.shown_frames(stack.size())), stack.end());
      json.key("frames");
      write_frames(json, stack);
    });
  }
  json.end_object().finish();
}

}  // namespace

int diff_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Compares the live blocks of two snapshots, by stack and by tag.", "cistern diff");
  DiffUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  if (usage.paths[0] == "-" && usage.paths[1] == "-")
    throw InvalidArgument("cistern diff: - -: expected at most one of the two on standard input");
  const Diff diff = compare(usage, streams);
  if (usage.listing.json)
    write_json(diff, usage, streams.out);
  else
    print_text(diff, usage, streams.out);
  return kExitSuccess;
}

}  // namespace cistern
