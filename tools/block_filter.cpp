#include "tools/block_filter.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>

#include "allocator/quoted_text.h"
#include "tools/frame_text.h"
#include "tools/usage.h"

namespace cistern {
namespace {

constexpr std::size_t kLargeKind = 1;
constexpr std::size_t kExpandableKind = 2;

bool is_of_kind(const BlockRecord& block, std::size_t kind) {
  return kind == kExpandableKind ? block.is_expandable : block.is_large == (kind == kLargeKind);
}

}  // namespace

void BlockFilter::add_owner_options(CLI::App& app) {
  add_whole_number(app, "--device", device, "only of this device");
  add_stream(app, "--stream", stream, "only of this stream");
  add_pool_id(app, "--pool", pool_id, "only of this pool; 0,0 is the default one");
  app.add_option("--tag", tag, "only of this tag; '' for blocks without one")->type_name("NAME");
  app.add_option("--stack", stack,
                 "only with this text in a frame, as frames are printed; '' for blocks without a stack")
      ->type_name("TEXT");
}

void BlockFilter::add_block_options(CLI::App& app) {
  add_byte_size(app, "--min-size", least_size, "only blocks of at least this size");
  add_byte_size(app, "--max-size", most_size, "only blocks of at most this size");
  add_choice(app, "--state", state, "only in this state",
             {to_string(BlockState::inactive), to_string(BlockState::active_allocated),
              to_string(BlockState::active_pending_free)});
  add_choice(app, "--kind", segment_kind, "only in segments of this kind", {"small", "large", "expandable"});
}

void BlockFilter::require_known(const Snapshot& snapshot, std::string_view command) const {
  if (device) {
    std::size_t devices = snapshot.device_traces.size();
    for (const SegmentInfo& segment : snapshot.segments)
      devices = std::max(devices, static_cast<std::size_t>(segment.device) + 1);
    if (*device >= devices)
      throw InvalidArgument(
          fmt::format("{}: --device {}: expected one of the snapshot's {}", command, *device, devices));
  }
  if (!tag || tag->empty() || std::ranges::find(snapshot.tags, *tag) != snapshot.tags.end()) return;
  std::string names;
  for (const std::string& name : snapshot.tags) names += (names.empty() ? "" : ", ") + quoted_text(name);
  throw InvalidArgument(fmt::format("{}: --tag {}: expected {}", command, quoted_text(*tag),
                                    names.empty() ? "none, for the snapshot has no tags" : "one of " + names));
}

bool BlockMatcher::matches(const BlockRecord& block) {
  const auto size = static_cast<std::uint64_t>(block.size);
  if (filter_.device && static_cast<std::uint64_t>(block.device) != *filter_.device) return false;
  if (filter_.stream && block.stream != *filter_.stream) return false;
  if (filter_.pool_id && block.pool_id != *filter_.pool_id) return false;
  if (filter_.least_size && size < *filter_.least_size) return false;
  if (filter_.most_size && size > *filter_.most_size) return false;
  if (filter_.state && static_cast<std::size_t>(block.state) != *filter_.state) return false;
  if (filter_.segment_kind && !is_of_kind(block, *filter_.segment_kind)) return false;
  return matches_tag(block.tag) && matches_stack(block.stack);
}

bool BlockMatcher::matches_tag(TagIndex tag) const {
  if (!filter_.tag) return true;
  if (tag == kNoTag) return filter_.tag->empty();
  return snapshot_.tags[static_cast<std::size_t>(tag)] == *filter_.tag;
}

bool BlockMatcher::matches_stack(StackIndex stack) {
  if (!filter_.stack) return true;
  if (stack == kNoStack || filter_.stack->empty()) return stack == kNoStack && filter_.stack->empty();
  const auto index = static_cast<std::size_t>(stack);
  stacks_.resize(snapshot_.stacks.size(), Known::not_yet);
  if (stacks_[index] == Known::not_yet) {
    const bool found = std::ranges::any_of(snapshot_.stacks[index], [this](const FrameInfo& frame) {
      return frame_text(frame).find(*filter_.stack) != std::string::npos;
    });
    stacks_[index] = found ? Known::yes : Known::no;
  }
  return stacks_[index] == Known::yes;
}

std::vector<BlockRecord> matching_blocks(const Snapshot& snapshot, const BlockFilter& filter) {
  BlockMatcher matcher(filter, snapshot);
  std::vector<BlockRecord> blocks;
  for_each_block(snapshot, [&](const BlockRecord& block) {
    if (matcher.matches(block)) blocks.push_back(block);
  });
  return blocks;
}

}  // namespace cistern
