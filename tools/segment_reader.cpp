#include "tools/segment_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace cistern {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

bool read_is_large(const DocumentPlace& place) {
  const std::string_view type = place.text();
  if (type != "large" && type != "small") place.fail("\"large\" or \"small\"");
  return type == "large";
}

BlockState read_state(const DocumentPlace& place) {
  const std::string_view text = place.text();
  for (const BlockState state : {BlockState::inactive, BlockState::active_allocated, BlockState::active_pending_free})
    if (text == to_string(state)) return state;
  place.fail("\"active_allocated\", \"active_pending_free\" or \"inactive\"");
}

class SegmentReader {
 public:
  SegmentReader(std::size_t devices, FileStacks& stacks, std::size_t tags)
      : devices_(devices), stacks_(stacks), tags_(tags) {}

  SegmentInfo read(const DocumentPlace& place) {
    static_cast<void>(place.object());
    SegmentInfo info;
    info.device = static_cast<int>(place.member("device").integer(0, std::numeric_limits<int>::max()));
    if (static_cast<std::size_t>(info.device) >= devices_)
      place.member("device").fail(fmt::format("a device with a list in device_traces, which has {}", devices_));
    info.address = place.member("address").address();
    info.total_size = place.member("total_size").integer(1);
    info.allocated_size = place.member("allocated_size").integer(0);
    info.active_size = place.member("active_size").integer(0);
    info.requested_size = place.member("requested_size").integer(0);
    info.stream = place.member("stream").integer();
    info.is_large = read_is_large(place.member("segment_type"));
    info.segment_pool_id = place.member("segment_pool_id").pair();
    info.is_expandable = place.member("is_expandable").boolean();
    read_range(place, info);
    info.stack = stacks_.index_of(place);
    read_blocks(place, info);
    return info;
  }

 private:
  // Of our own files: where the segment may grow.
  static void read_range(const DocumentPlace& place, SegmentInfo& info) {
    if (!place.has("range_size")) return;
    info.range_address = place.member("range_address").address();
    info.range_size = place.member("range_size").integer(info.total_size);
    const auto room = static_cast<std::uint64_t>(info.range_size - info.total_size);
    if (!info.is_expandable || info.address < info.range_address || info.address - info.range_address > room)
      place.member("range_address").fail("an expandable segment's range, which holds it");
  }
  BlockInfo read_block(const DocumentPlace& place) {
    static_cast<void>(place.object());
    BlockInfo info;
    info.address = place.member("address").address();
    info.size = place.member("size").integer(1);
    info.state = read_state(place.member("state"));
    // What a free block's last user asked for says nothing about its size.
    info.requested_size =
        place.member("requested_size").integer(0, info.state == BlockState::inactive ? kMost : info.size);
    info.stack = stacks_.index_of(place);
    info.tag = read_tag(place, tags_);
    return info;
  }

  // The blocks, which must tile the segment and add up to what it says of them.
  void read_blocks(const DocumentPlace& place, SegmentInfo& info) {
    std::int64_t tiled = 0, allocated = 0, active = 0, requested = 0;
    place.member("blocks").for_each([&](const DocumentPlace& at) {
      const BlockInfo read = read_block(at);
      const std::uint64_t expected = info.address + static_cast<std::uint64_t>(tiled);
      if (read.address != expected) at.member("address").fail(fmt::format("{}, where the block before ends", expected));
      if (read.size > info.total_size - tiled) at.member("size").fail("blocks that end where their segment does");
      tiled += read.size;
      if (read.state != BlockState::inactive) {
        active += read.size;
        requested += read.requested_size;
      }
      if (read.state == BlockState::active_allocated) allocated += read.size;
      info.blocks.push_back(read);
    });
    const auto check_sum = [&](std::string_view name, std::int64_t said, std::int64_t counted, std::string_view what) {
      if (said != counted) place.member(name).fail(fmt::format("{}, the sum of {}", counted, what));
    };
    check_sum("total_size", info.total_size, tiled, "its blocks");
    check_sum("allocated_size", info.allocated_size, allocated, "its active_allocated blocks");
    check_sum("active_size", info.active_size, active, "its active blocks");
    check_sum("requested_size", info.requested_size, requested, "what its active blocks were requested as");
  }

  std::size_t devices_;
  FileStacks& stacks_;
  std::size_t tags_;
};

// A segment lies in the address space, after the one before it on its device, and the sums
// of all that are on the device can be counted: `device_bytes` are those before.
void check_extent(const DocumentPlace& place, const SegmentInfo& info, const SegmentInfo* before,
                  std::int64_t device_bytes) {
  const auto bytes = static_cast<std::uint64_t>(info.total_size);
  // That the last address is one, not the end, which may be 2^64.
  if (info.address > std::numeric_limits<std::uint64_t>::max() - (bytes - 1))
    place.member("total_size").fail("a segment that ends at the address 2^64 or before");
  if (before != nullptr && info.address - before->address < static_cast<std::uint64_t>(before->total_size))
    place.member("address").fail(fmt::format("an address outside the device's segment at {}, which has {} bytes",
                                             before->address, before->total_size));
  if (info.total_size > kMost - device_bytes)
    place.member("total_size")
        .fail(fmt::format("segments of device {} that are less than 2^63 bytes together", info.device));
}

}  // namespace

std::vector<SegmentInfo> read_segments(const DocumentPlace& place, std::size_t devices, FileStacks& stacks,
                                       std::size_t tags) {
  SegmentReader reader(devices, stacks, tags);
  std::vector<SegmentInfo> read;
  place.for_each([&](const DocumentPlace& at) { read.push_back(reader.read(at)); });
  std::vector<std::size_t> order(read.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return std::tie(read[i].device, read[i].address); });
  std::vector<SegmentInfo> sorted;
  sorted.reserve(read.size());
  std::int64_t device_bytes = 0;
  for (const std::size_t index : order) {
    const SegmentInfo* before = sorted.empty() ? nullptr : &sorted.back();
    if (before != nullptr && before->device != read[index].device) {
      before = nullptr;
      device_bytes = 0;
    }
    check_extent(place[index], read[index], before, device_bytes);
    device_bytes += read[index].total_size;
    sorted.push_back(std::move(read[index]));
  }
  return sorted;
}

TagIndex read_tag(const DocumentPlace& record, std::size_t tags) {
  if (!record.has("tag")) return kNoTag;
  return static_cast<TagIndex>(record.member("tag").integer(-1, static_cast<std::int64_t>(tags) - 1));
}

}  // namespace cistern
