// cistern explain: which block of a snapshot would serve a request, or why none and what would happen.

#include <cistern/error.h>
#include <fmt/format.h>

#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "allocator/size_policy.h"
#include "stats/json_writer.h"
#include "stats/sizes.h"
#include "tools/command.h"
#include "tools/placement.h"
#include "tools/recorded_policy.h"
#include "tools/snapshot_input.h"
#include "tools/usage.h"

namespace cistern {
namespace {

struct ExplainUsage {
  std::string path;
  std::optional<std::uint64_t> size;
  std::optional<std::int64_t> stream;
  std::optional<std::uint64_t> device;
  std::optional<std::pair<std::int64_t, std::int64_t>> pool_id;
  bool json = false;

  void add_to(CLI::App& app) {
    add_snapshot(app, "SNAPSHOT", path);
    add_byte_size(app, "SIZE", size, "what is asked for")->required();
    add_stream(app, "STREAM", stream, "the stream that asks; 0 is the default one")->required();
    add_whole_number(app, "--device", device, "of this device; by default 0");
    add_pool_id(app, "--pool", pool_id, "of this private pool; by default 0,0, the pool of all others");
    app.add_flag("--json", json, "print one JSON object");
    app.footer(
        "The rules are those that the snapshot's allocator_settings name. What they do not tell is taken as by\n"
        "default: limits, callbacks, and whether a MemPool splits its blocks. A real request first looks whether\n"
        "pending frees are done.");
  }

  [[nodiscard]] PlacementRequest request(const Snapshot& snapshot) const {
    if (*size == 0 || *size >= kTooLarge)
      throw InvalidArgument(
          fmt::format("cistern explain: SIZE {}: expected 1 to {}; 0 asks for nothing, more is refused unseen", *size,
                      kTooLarge - 1));
    const std::size_t devices = snapshot.device_traces.size();
    if (device.value_or(0) >= devices)
      throw InvalidArgument(fmt::format("cistern explain: --device {}: expected less than {}, the devices of {}",
                                        device.value_or(0), devices, path));
    return {static_cast<std::size_t>(*size), *stream, static_cast<int>(device.value_or(0)),
            pool_id.value_or(std::pair<std::int64_t, std::int64_t>())};
  }
};

struct Explanation {
  const ExplainUsage& usage;
  const RecordedPolicy& policy;
  const PlacementRequest& request;
  const Placement& placement;
};

std::string bytes_text(std::int64_t bytes) {
  const std::string size = std::string(format_size(static_cast<std::uint64_t>(bytes)));
  return size.ends_with("bytes") ? size : fmt::format("{} bytes ({})", bytes, size);
}

std::string rest_text(std::int64_t rest) {
  return rest == 0 ? "whole" : fmt::format("split: {} stay free behind it", bytes_text(rest));
}

const char* kind_text(const Placement& placement) { return placement.is_large ? "large" : "small"; }

// What keeps the request from being served, in one word of the list below it.
Unfit decisive_reason(const Placement& placement) {
  for (const Unfit reason : {Unfit::max_split_size, Unfit::not_cached, Unfit::expandable})
    if (placement[reason].large_enough != 0) return reason;
  return Unfit::too_small;
}

std::string why_none(const Placement& placement) {
  switch (decisive_reason(placement)) {
    case Unfit::max_split_size:
      return "the best fit is on the other side of max_split_size, and no other block is looked at";
    case Unfit::not_cached:
      return "policy direct asks the driver each time";
    case Unfit::expandable:
      return "the blocks that are large enough lie in expandable segments, which policy classic leaves alone";
    default:
      return "no free block of this stream's pool is large enough";
  }
}

void print_served(const CutBlock& block, const Placement& placement, std::ostream& out) {
  out << fmt::format("served by  {:#x}, in the segment at {:#x}: the best fit of {} free block{} large enough\n",
                     block.address, block.segment, placement.candidates, placement.candidates == 1 ? "" : "s");
  out << fmt::format("handed out {}, {}\n", bytes_text(block.bytes), rest_text(block.rest_bytes));
}

// What stays free of the block that the driver's memory becomes part of.
std::int64_t rest_of_new(const Placement& placement) {
  const std::size_t whole = placement.expands ? placement.growth.block_bytes : placement.segment_bytes;
  return static_cast<std::int64_t>(whole) - placement.new_block_bytes;
}

void print_growth(const SegmentGrowth& growth, std::ostream& out) {
  const std::size_t pages = growth.mapped_bytes / growth.page_bytes;
  out << fmt::format(
      "then       the driver is asked for {} page{} of {} {}\n", pages, pages == 1 ? "" : "s",
      bytes_text(static_cast<std::int64_t>(growth.page_bytes)),
      growth.address == 0 ? "in a new expandable segment" : fmt::format("for a block at {:#x}", growth.address));
}

void print_miss(const Explanation& all, std::ostream& out) {
  const Placement& placement = all.placement;
  out << fmt::format("served by  none: {}\n", why_none(placement));
  if (placement.largest_without_pending >= static_cast<std::int64_t>(placement.rounded_bytes) &&
      placement[Unfit::pending].figures.blocks != 0)
    out << fmt::format("           once the pending frees are done, a block of {} can serve\n",
                       bytes_text(placement.largest_without_pending));
  if (placement.expands)
    print_growth(placement.growth, out);
  else
    out << fmt::format("then       the driver is asked for a segment of {}\n",
                       bytes_text(static_cast<std::int64_t>(placement.segment_bytes)));
  out << fmt::format("handed out {}, {}\n", bytes_text(placement.new_block_bytes), rest_text(rest_of_new(placement)));
  if (all.policy.options.policy == Policy::direct || all.policy.options.policy == Policy::async)
    out << "if refused the request fails: there is no cache to give back\n";
  else if (placement.found_after_flush)
    out << fmt::format("if refused a flush waits for the pending frees, gives back {}, and a block of {} serves\n",
                       bytes_text(placement.flushed.bytes), bytes_text(*placement.found_after_flush));
  else if (placement.flushed.blocks == 0)
    out << "if refused the request fails: there is no memory that a flush could give back\n";
  else
    out << fmt::format("if refused a flush gives back {} of {} segment{}, and the driver is asked once more\n",
                       bytes_text(placement.flushed.bytes), placement.flushed.blocks,
                       placement.flushed.blocks == 1 ? "" : "s");
}

void print_unfit(const Placement& placement, std::ostream& out) {
  bool any = false;
  for (std::size_t i = 0; i < kUnfitReasons; ++i) {
    const UnfitMemory& memory = placement.unfit[i];
    if (memory.figures.blocks == 0) continue;
    if (!any)
      out << fmt::format("\n{:<22}{:>8}  {:>14}  {:>14}  {:>12}\n", "other free memory", "blocks", "bytes", "largest",
                         "large enough");
    any = true;
    out << fmt::format("{:<22}{:>8}  {:>14}  {:>14}  {:>12}\n", to_string(static_cast<Unfit>(i)), memory.figures.blocks,
                       memory.figures.bytes, memory.largest, memory.large_enough);
  }
  if (!any) out << "\nno other free memory on the device\n";
}

void print_text(const Explanation& all, std::ostream& out) {
  const PlacementRequest& request = all.request;
  out << fmt::format("request    {}, stream {}, device {}, pool {},{}\n",
                     bytes_text(static_cast<std::int64_t>(request.bytes)), request.stream, request.device,
                     request.pool_id.first, request.pool_id.second);
  out << fmt::format("policy     {}: {} rounded, from the {} blocks\n", to_string(all.policy.options.policy),
                     bytes_text(static_cast<std::int64_t>(all.placement.rounded_bytes)), kind_text(all.placement));
  if (all.placement.served_by)
    print_served(*all.placement.served_by, all.placement, out);
  else
    print_miss(all, out);
  print_unfit(all.placement, out);
}

void write_request(JsonWriter& json, const Explanation& all) {
  const PlacementRequest& request = all.request;
  json.key("device").number(request.device);
  json.key("stream").number(request.stream);
  json.key("segment_pool_id").begin_array().number(request.pool_id.first).number(request.pool_id.second).end_array();
  json.key("bytes").number(request.bytes);
  json.key("policy").string(to_string(all.policy.options.policy));
  json.key("unread_options").string(all.policy.unread_text);
  json.key("rounded_bytes").number(all.placement.rounded_bytes);
  json.key("segment_type").string(kind_text(all.placement));
}

void write_unfit(JsonWriter& json, const Placement& placement) {
  json.key("other_free").begin_array();
  for (std::size_t i = 0; i < kUnfitReasons; ++i) {
    const UnfitMemory& memory = placement.unfit[i];
    if (memory.figures.blocks == 0) continue;
    json.begin_object();
    json.key("reason").string(to_string(static_cast<Unfit>(i)));
    json.key("blocks").number(memory.figures.blocks);
    json.key("bytes").number(memory.figures.bytes);
    json.key("largest").number(memory.largest);
    json.key("large_enough").number(memory.large_enough);
    json.end_object();
  }
  json.end_array();
}

void write_served(JsonWriter& json, const Placement& placement) {
  json.key("served_by");
  if (!placement.served_by) {
    json.null();
    json.key("reason").string(to_string(decisive_reason(placement)));
    return;
  }
  json.begin_object();
  json.key("address").number(placement.served_by->address);
  json.key("segment").number(placement.served_by->segment);
  json.key("block_bytes").number(placement.served_by->bytes);
  json.key("rest_bytes").number(placement.served_by->rest_bytes);
  json.end_object();
}

// A segment of the driver's own, or pages of an expandable one.
void write_new_memory(JsonWriter& json, const Placement& placement) {
  json.key(placement.expands ? "new_pages" : "new_segment").begin_object();
  if (placement.expands) {
    json.key("address").number(placement.growth.address);
    json.key("page_bytes").number(placement.growth.page_bytes);
    json.key("mapped_bytes").number(placement.growth.mapped_bytes);
  } else {
    json.key("segment_bytes").number(placement.segment_bytes);
  }
  json.key("block_bytes").number(placement.new_block_bytes);
  json.key("rest_bytes").number(rest_of_new(placement));
  json.end_object();
}

void write_json(const std::string& name, const Explanation& all, std::ostream& out) {
  const Placement& placement = all.placement;
  JsonWriter json(out);
  json.begin_object();
  json.key("snapshot").string(name);
  write_request(json, all);
  write_served(json, placement);
  json.key("candidates").number(placement.candidates);
  write_new_memory(json, placement);
  json.key("largest_without_pending").number(placement.largest_without_pending);
  json.key("flushed_segments").number(placement.flushed.blocks);
  json.key("flushed_bytes").number(placement.flushed.bytes);
  json.key("found_after_flush");
  placement.found_after_flush ? json.number(*placement.found_after_flush) : json.null();
  write_unfit(json, placement);
  json.end_object().finish();
}

// Of requests that no private pool serves. Throws NotSupported where the snapshot lacks what decides them.
void require_explainable(const RecordedPolicy& policy, std::string_view name) {
  std::string_view how;
  if (policy.options.policy == Policy::paged)
    how = "places by what it remembers of earlier requests";
  else if (policy.options.policy == Policy::async)
    how = "takes each block from the driver's pool";
  if (how.empty()) return;
  throw NotSupported(
      fmt::format("cistern explain: {} was taken under policy {}, which {}, and no snapshot tells that: only private "
                  "pools (--pool) can be explained",
                  name, to_string(policy.options.policy), how));
}

}  // namespace

int explain_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Tells which block of a snapshot would serve a request, or why none and what would happen.",
               "cistern explain");
  ExplainUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  const SnapshotInput input = read_snapshot_input(usage.path, streams);
  const PlacementRequest request = usage.request(input.snapshot);
  const RecordedPolicy policy = recorded_policy(input.snapshot.settings, input.name);
  if (!policy.unread_text.empty())
    streams.err << fmt::format("cistern: {}: the options' text cannot be read, its own options are as by default: {}\n",
                               input.name, policy.unread_text);
  if (request.pool_id == std::pair<std::int64_t, std::int64_t>()) require_explainable(policy, input.name);
  const Placement placement = place(input.snapshot, policy.options, request);
  const Explanation all{usage, policy, request, placement};
  if (usage.json)
    write_json(input.name, all, streams.out);
  else
    print_text(all, streams.out);
  return kExitSuccess;
}

}  // namespace cistern
