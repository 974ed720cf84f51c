// cistern blocks: the blocks of a snapshot, chosen and sorted.

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "allocator/quoted_text.h"
#include "stats/json_writer.h"
#include "stats/sizes.h"
#include "tools/block_filter.h"
#include "tools/command.h"
#include "tools/frame_text.h"
#include "tools/snapshot_input.h"
#include "tools/usage.h"

namespace cistern {
namespace {

// What each stack, or tag, is compared by: its place among them all by text; what has none is first.
class TextOrder {
 public:
  TextOrder(std::size_t count, const std::function<std::string(std::size_t)>& text) : ranks_(count) {
    std::vector<std::string> texts(count);
    for (std::size_t i = 0; i < count; ++i) texts[i] = text(i);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::string_view(texts[i]); });
    std::size_t rank = 1;
    for (std::size_t i = 0; i < count; ++i) {
      if (i != 0 && texts[order[i]] != texts[order[i - 1]]) ++rank;
      ranks_[order[i]] = rank;
    }
  }
  [[nodiscard]] std::size_t rank(std::int32_t index) const {
    return index < 0 ? 0 : ranks_[static_cast<std::size_t>(index)];
  }

 private:
  std::vector<std::size_t> ranks_;
};

std::string text_of(const StackInfo& stack) {
  std::string text;
  for (const FrameInfo& frame : stack) text += frame_text(frame) + '\n';
  return text;
}

enum class SortKey { address, size, requested, state, device, stream, kind, pool, tag, stack };
constexpr std::array<std::string_view, 10> kSortKeys{"address", "size", "requested", "state", "device",
                                                     "stream",  "kind", "pool",      "tag",   "stack"};

std::vector<SortKey> parse_sort_keys(std::string_view text) {
  std::vector<SortKey> keys;
  for (std::string_view rest = text; !rest.empty() || keys.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    const auto* found = std::ranges::find(kSortKeys, name);
    if (found == kSortKeys.end() || rest.ends_with(','))
      throw InvalidArgument(fmt::format("cistern blocks: --sort {}: expected some of {}, with commas between",
                                        quoted_text(text), fmt::join(kSortKeys, ", ")));
    keys.push_back(static_cast<SortKey>(found - kSortKeys.begin()));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return keys;
}

// Compares blocks by some keys, the first of them first.
class BlockOrder {
 public:
  BlockOrder(const Snapshot& snapshot, std::vector<SortKey> keys)
      : keys_(std::move(keys)),
        tags_(snapshot.tags.size(), [&](std::size_t i) { return snapshot.tags[i]; }),
        stacks_(uses(SortKey::stack) ? snapshot.stacks.size() : 0,
                [&](std::size_t i) { return text_of(snapshot.stacks[i]); }) {}

  [[nodiscard]] bool comes_before(const BlockRecord& a, const BlockRecord& b) const {
    for (const SortKey key : keys_)
      if (const int order = compare(a, b, key); order != 0) return order < 0;
    return false;
  }

 private:
  [[nodiscard]] bool uses(SortKey key) const { return std::ranges::find(keys_, key) != keys_.end(); }

  template <class Value>
  static int order_of(const Value& a, const Value& b) {
    return a < b ? -1 : b < a ? 1 : 0;
  }

  [[nodiscard]] int compare(const BlockRecord& a, const BlockRecord& b, SortKey key) const {
    switch (key) {
      case SortKey::address:
        return order_of(std::tie(a.device, a.address), std::tie(b.device, b.address));
      case SortKey::size:
        return order_of(a.size, b.size);
      case SortKey::requested:
        return order_of(a.requested_size, b.requested_size);
      case SortKey::state:
        return order_of(a.state, b.state);
      case SortKey::device:
        return order_of(a.device, b.device);
      case SortKey::stream:
        return order_of(a.stream, b.stream);
      case SortKey::kind:
        return order_of(std::tie(a.is_large, a.is_expandable), std::tie(b.is_large, b.is_expandable));
      case SortKey::pool:
        return order_of(a.pool_id, b.pool_id);
      case SortKey::tag:
        return order_of(tags_.rank(a.tag), tags_.rank(b.tag));
      case SortKey::stack:
        break;
    }
    return order_of(stacks_.rank(a.stack), stacks_.rank(b.stack));
  }

  std::vector<SortKey> keys_;
  TextOrder tags_;
  TextOrder stacks_;
};

struct BlocksUsage {
  std::string path;
  BlockFilter filter;
  std::string sort = "address";
  bool reverse = false;
  std::optional<std::uint64_t> limit;
  bool json = false;

  [[nodiscard]] std::size_t printed_of(std::size_t count) const {
    return limit.value_or(0) == 0 ? count : static_cast<std::size_t>(std::min<std::uint64_t>(*limit, count));
  }
  void add_to(CLI::App& app) {
    add_snapshot(app, "SNAPSHOT", path);
    filter.add_owner_options(app);
    filter.add_block_options(app);
    app.add_option("--sort", sort, fmt::format("by {}; several with commas between", fmt::join(kSortKeys, ", ")))
        ->type_name("KEYS")
        ->capture_default_str();
    app.add_flag("--reverse", reverse, "the other way round");
    add_whole_number(app, "--limit", limit, "print only the first N, 0 (the default) for all; all are counted");
    app.add_flag("--json", json, "print one JSON object");
    app.footer("Sizes are of whole blocks. The stack is the one that allocated the block.");
  }
};

const char* kind_text(const BlockRecord& block) { return block.is_large ? "large" : "small"; }

void print_row(std::ostream& out, const BlockRecord& block, const Snapshot& snapshot) {
  const auto tag = static_cast<std::size_t>(block.tag);
  const auto stack = static_cast<std::size_t>(block.stack);
  const bool has_frame = block.stack != kNoStack && !snapshot.stacks[stack].empty();
  out << fmt::format("{:#014x}  {:>14}  {:>14}  {:<19}  {:>6}  {:>15}  {:<7}  {:<7}  {:<12}  {}\n", block.address,
                     block.size, block.state == BlockState::inactive ? "-" : fmt::to_string(block.requested_size),
                     to_string(block.state), block.device, block.stream,
                     fmt::format("{}{}", kind_text(block), block.is_expandable ? "+" : ""),
                     fmt::format("{},{}", block.pool_id.first, block.pool_id.second),
                     block.tag == kNoTag ? "-" : printable_text(snapshot.tags[tag]),
                     has_frame ? frame_text(snapshot.stacks[stack].front()) : "-");
}

void print_text(const Snapshot& snapshot, const std::vector<BlockRecord>& blocks, std::size_t printed,
                const BlockFigures& all, std::ostream& out) {
  out << fmt::format("{:<14}  {:>14}  {:>14}  {:<19}  {:>6}  {:>15}  {:<7}  {:<7}  {:<12}  {}\n", "address", "size",
                     "requested", "state", "device", "stream", "segment", "pool", "tag", "innermost frame");
  for (std::size_t i = 0; i < printed; ++i) print_row(out, blocks[i], snapshot);
  if (printed < blocks.size()) out << fmt::format("... {} more\n", blocks.size() - printed);
  out << fmt::format("{} block{}, {} ({} bytes), of which {} requested\n", all.blocks, all.blocks == 1 ? "" : "s",
                     format_size(static_cast<std::uint64_t>(all.bytes)), all.bytes,
                     format_size(static_cast<std::uint64_t>(all.requested_bytes)));
}

void write_block(JsonWriter& json, const BlockRecord& block, const Snapshot& snapshot,
                 const std::vector<std::int64_t>& stack_numbers) {
  json.begin_object();
  json.key("address").number(block.address);
  json.key("size").number(block.size);
  json.key("requested_size");
  if (block.state == BlockState::inactive)
    json.null();
  else
    json.number(block.requested_size);
  json.key("state").string(to_string(block.state));
  json.key("device").number(block.device);
  json.key("stream").number(block.stream);
  json.key("segment").number(block.segment);
  json.key("segment_type").string(kind_text(block));
  json.key("is_expandable").boolean(block.is_expandable);
  json.key("segment_pool_id").begin_array().number(block.pool_id.first).number(block.pool_id.second).end_array();
  json.key("tag");
  if (block.tag == kNoTag)
    json.null();
  else
    json.string(snapshot.tags[static_cast<std::size_t>(block.tag)]);
  json.key("stack");
  if (block.stack == kNoStack)
    json.null();
  else
    json.number(stack_numbers[static_cast<std::size_t>(block.stack)]);
  json.end_object();
}

// The stacks of the blocks that are printed, numbered anew.
void write_json(const SnapshotInput& input, const std::vector<BlockRecord>& blocks, std::size_t printed,
                const BlockFigures& all, std::ostream& out) {
  const Snapshot& snapshot = input.snapshot;
  std::vector<std::int64_t> numbers(snapshot.stacks.size(), -1);
  JsonWriter json(out);
  json.begin_object();
  json.key("snapshot").string(input.name);
  json.key("matching_blocks").number(all.blocks);
  json.key("matching_bytes").number(all.bytes);
  json.key("matching_requested_bytes").number(all.requested_bytes);
  json.key("stacks").begin_array();
  std::int64_t next = 0;
  for (std::size_t i = 0; i < printed; ++i) {
    if (blocks[i].stack == kNoStack) continue;
    const auto stack = static_cast<std::size_t>(blocks[i].stack);
    if (numbers[stack] != -1) continue;
    numbers[stack] = next++;
    write_frames(json, snapshot.stacks[stack]);
  }
  json.end_array();
  json.key("blocks").begin_array();
  for (std::size_t i = 0; i < printed; ++i) write_block(json, blocks[i], snapshot, numbers);
  json.end_array().end_object().finish();
}

}  // namespace

int blocks_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Lists the blocks of a snapshot.", "cistern blocks");
  BlocksUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  std::vector<SortKey> keys = parse_sort_keys(usage.sort);

  const SnapshotInput input = read_snapshot_input(usage.path, streams);
  std::vector<BlockRecord> blocks = matching_blocks(input.snapshot, usage.filter);
  const BlockOrder order(input.snapshot, std::move(keys));
  std::ranges::stable_sort(blocks, [&](const BlockRecord& a, const BlockRecord& b) {
    return usage.reverse ? order.comes_before(b, a) : order.comes_before(a, b);
  });
  BlockFigures all;
  for (const BlockRecord& block : blocks) all.add(block);
  const std::size_t printed = usage.printed_of(blocks.size());
  if (usage.json)
    write_json(input, blocks, printed, all, streams.out);
  else
    print_text(input.snapshot, blocks, printed, all, streams.out);
  return kExitSuccess;
}

}  // namespace cistern
