#include "tools/snapshot_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <tuple>

#include "stats/fields.h"
#include "tools/input_file.h"
#include "tools/located_json.h"

namespace cistern {
namespace {

// Histories and stacks: by far most of a file, and no part of a Snapshot.
constexpr std::array<std::string_view, 6> kSkipped{"device_traces", "external_annotations", "forward_frames",
                                                   "frames",        "host_segments",        "host_traces"};

// A value and the way to it, e.g. segments[3].blocks[0].size, for errors.
struct Place {
  const LocatedJson& json;
  const Place* parent = nullptr;
  std::string_view name = {};
  std::size_t index = 0;

  [[nodiscard]] std::string path() const {
    if (parent == nullptr) return "";
    const std::string before = parent->path();
    if (name.empty()) return fmt::format("{}[{}]", before, index);
    return fmt::format("{}{}{}", before, before.empty() ? "" : ".", name);
  }
};

std::string integer_range(std::int64_t least, std::int64_t most) {
  if (most != std::numeric_limits<std::int64_t>::max()) return fmt::format("an integer from {} to {}", least, most);
  if (least != std::numeric_limits<std::int64_t>::min()) return fmt::format("an integer of at least {}", least);
  return "an integer";
}

class SnapshotParser {
 public:
  SnapshotParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Snapshot parse() {
    const LocatedJson json = parse_located_json(text_, name_, kSkipped);
    const Place top{json};
    if (json.type != LocatedJson::Type::object) fail(top, "an object with segments and device_traces");
    Snapshot snapshot;
    devices_ = array(member(top, "device_traces")).size;
    snapshot.segments = segments(member(top, "segments"));
    if (json.find("allocator_settings") != nullptr) snapshot.settings = settings(member(top, "allocator_settings"));
    if (json.find("device_stats") != nullptr)
      for_each(member(top, "device_stats"), [&](const Place& place) { snapshot.device_stats.push_back(stats(place)); });
    return snapshot;
  }

 private:
  [[noreturn]] void fail(const Place& place, std::string_view expected) const {
    const std::string path = place.path();
    fail_input(name_, line_of(text_, place.json.offset),
               fmt::format("{}{}{}", path, path.empty() ? "" : ": ", place.json.brief()), expected);
  }

  // The member, which must be there. `name` must outlive the result, as `parent` must.
  Place member(const Place& parent, std::string_view name) const {
    const LocatedJson* json = parent.json.find(name);
    if (json == nullptr) fail(parent, fmt::format("the key \"{}\"", name));
    return {*json, &parent, name};
  }

  const LocatedJson& array(const Place& place) const {
    if (place.json.type != LocatedJson::Type::array) fail(place, "a list");
    return place.json;
  }

  const LocatedJson& object(const Place& place) const {
    if (place.json.type != LocatedJson::Type::object) fail(place, "an object");
    return place.json;
  }

  template <class Visit>
  void for_each(const Place& place, Visit&& visit) const {
    std::size_t index = 0;
    for (const LocatedJson& element : array(place).elements) visit(Place{element, &place, {}, index++});
  }

  std::int64_t integer(const Place& place, std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) const {
    const auto* value =
        place.json.type == LocatedJson::Type::integer ? std::get_if<std::int64_t>(&place.json.integer) : nullptr;
    if (value == nullptr || *value < least || *value > most) fail(place, integer_range(least, most));
    return *value;
  }

  std::uint64_t address(const Place& place) const {
    if (const auto* large = std::get_if<std::uint64_t>(&place.json.integer)) return *large;
    return static_cast<std::uint64_t>(integer(place, 0));
  }

  double number(const Place& place) const {
    if (place.json.type == LocatedJson::Type::number) return place.json.number;
    if (place.json.type != LocatedJson::Type::integer) fail(place, "a number");
    return std::visit([](auto value) { return static_cast<double>(value); }, place.json.integer);
  }

  bool boolean(const Place& place) const {
    if (place.json.type != LocatedJson::Type::boolean) fail(place, "true or false");
    return place.json.boolean;
  }

  const std::string& string(const Place& place) const {
    if (place.json.type != LocatedJson::Type::string) fail(place, "a string");
    return place.json.text;
  }

  std::pair<std::int64_t, std::int64_t> pool_id(const Place& place) const {
    if (array(place).elements.size() != 2) fail(place, "a list of two integers");
    const auto& elements = place.json.elements;
    return {integer({elements[0], &place, {}, 0}, 0), integer({elements[1], &place, {}, 1}, 0)};
  }

  // Stacks are no part of a Snapshot, and may be absent; but when there, they are a list.
  void check_frames(const Place& parent) const {
    if (parent.json.find("frames") != nullptr) array(member(parent, "frames"));
  }

  // By device, then address.
  std::vector<SegmentInfo> segments(const Place& place) const {
    std::vector<SegmentInfo> read;
    for_each(place, [&](const Place& at) { read.push_back(segment(at)); });
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
      check_extent({place.json.elements[index], &place, {}, index}, read[index], before, device_bytes);
      device_bytes += read[index].total_size;
      sorted.push_back(std::move(read[index]));
    }
    return sorted;
  }

  // A segment lies in the address space, after the one before it on its device, and the sums
  // of all that are on the device can be counted: `device_bytes` are those before.
  void check_extent(const Place& place, const SegmentInfo& info, const SegmentInfo* before,
                    std::int64_t device_bytes) const {
    const auto bytes = static_cast<std::uint64_t>(info.total_size);
    // That the last address is one, not the end, which may be 2^64.
    if (info.address > std::numeric_limits<std::uint64_t>::max() - (bytes - 1))
      fail(member(place, "total_size"), "a segment that ends at the address 2^64 or before");
    if (before != nullptr && info.address - before->address < static_cast<std::uint64_t>(before->total_size))
      fail(member(place, "address"), fmt::format("an address outside the device's segment at {}, which has {} bytes",
                                                 before->address, before->total_size));
    if (info.total_size > std::numeric_limits<std::int64_t>::max() - device_bytes)
      fail(member(place, "total_size"),
           fmt::format("segments of device {} that are less than 2^63 bytes together", info.device));
  }

  SegmentInfo segment(const Place& place) const {
    object(place);
    SegmentInfo info;
    info.device = static_cast<int>(integer(member(place, "device"), 0, std::numeric_limits<int>::max()));
    if (static_cast<std::size_t>(info.device) >= devices_)
      fail(member(place, "device"), fmt::format("a device with a list in device_traces, which has {}", devices_));
    info.address = address(member(place, "address"));
    info.total_size = integer(member(place, "total_size"), 1);
    info.allocated_size = integer(member(place, "allocated_size"), 0);
    info.active_size = integer(member(place, "active_size"), 0);
    info.requested_size = integer(member(place, "requested_size"), 0);
    info.stream = integer(member(place, "stream"));
    info.is_large = is_large(member(place, "segment_type"));
    info.segment_pool_id = pool_id(member(place, "segment_pool_id"));
    info.is_expandable = boolean(member(place, "is_expandable"));
    check_frames(place);
    read_blocks(place, info);
    return info;
  }

  bool is_large(const Place& place) const {
    const std::string& type = string(place);
    if (type != "large" && type != "small") fail(place, "\"large\" or \"small\"");
    return type == "large";
  }

  BlockState state(const Place& place) const {
    const std::string& text = string(place);
    for (BlockState state : {BlockState::inactive, BlockState::active_allocated, BlockState::active_pending_free})
      if (text == to_string(state)) return state;
    fail(place, "\"active_allocated\", \"active_pending_free\" or \"inactive\"");
  }

  BlockInfo block(const Place& place) const {
    object(place);
    BlockInfo info;
    info.address = address(member(place, "address"));
    info.size = integer(member(place, "size"), 1);
    info.state = state(member(place, "state"));
    // What a free block's last user asked for says nothing about its size.
    const bool is_free = info.state == BlockState::inactive;
    info.requested_size =
        integer(member(place, "requested_size"), 0, is_free ? std::numeric_limits<std::int64_t>::max() : info.size);
    check_frames(place);
    return info;
  }

  // The blocks, which must tile the segment and add up to what it says of them.
  void read_blocks(const Place& place, SegmentInfo& info) const {
    std::int64_t tiled = 0, allocated = 0, active = 0, requested = 0;
    for_each(member(place, "blocks"), [&](const Place& at) {
      const BlockInfo read = block(at);
      const std::uint64_t expected = info.address + static_cast<std::uint64_t>(tiled);
      if (read.address != expected)
        fail(member(at, "address"), fmt::format("{}, where the block before ends", expected));
      if (read.size > info.total_size - tiled) fail(member(at, "size"), "blocks that end where their segment does");
      tiled += read.size;
      if (read.state != BlockState::inactive) {
        active += read.size;
        requested += read.requested_size;
      }
      if (read.state == BlockState::active_allocated) allocated += read.size;
      info.blocks.push_back(read);
    });
    const auto check_sum = [&](std::string_view name, std::int64_t said, std::int64_t counted, std::string_view what) {
      if (said != counted) fail(member(place, name), fmt::format("{}, the sum of {}", counted, what));
    };
    check_sum("total_size", info.total_size, tiled, "its blocks");
    check_sum("allocated_size", info.allocated_size, allocated, "its active_allocated blocks");
    check_sum("active_size", info.active_size, active, "its active blocks");
    check_sum("requested_size", info.requested_size, requested, "what its active blocks were requested as");
  }

  // What one version or another lacks keeps its default.
  AllocatorSettings settings(const Place& place) const {
    object(place);
    AllocatorSettings settings;
    const auto read = [&](std::string_view name, auto& field, auto&& convert) {
      if (place.json.find(name) != nullptr) field = convert(member(place, name));
    };
    const auto as_integer = [this](const Place& at) { return integer(at); };
    const auto as_boolean = [this](const Place& at) { return boolean(at); };
    read("PYTORCH_CUDA_ALLOC_CONF", settings.text, [this](const Place& at) { return string(at); });
    read("max_split_size", settings.max_split_size, [this](const Place& at) { return integer(at, -1); });
    read("garbage_collection_threshold", settings.garbage_collection_threshold,
         [this](const Place& at) { return number(at); });
    read("expandable_segments", settings.expandable_segments, as_boolean);
    read("pinned_num_register_threads", settings.pinned_num_register_threads, as_integer);
    read("release_lock_on_cudamalloc", settings.release_lock_on_cudamalloc, as_boolean);
    read("pinned_use_cuda_host_register", settings.pinned_use_cuda_host_register, as_boolean);
    read("graph_capture_record_stream_reuse", settings.graph_capture_record_stream_reuse, as_boolean);
    read("roundup_power2_divisions", settings.roundup_power2_divisions,
         [this](const Place& at) { return divisions(at); });
    return settings;
  }

  std::map<std::int64_t, std::int64_t> divisions(const Place& place) const {
    std::map<std::int64_t, std::int64_t> buckets;
    const LocatedJson& json = object(place);
    for (std::size_t index = 0; index < json.names.size(); ++index) {
      const std::string& name = json.names[index];
      std::int64_t mebibytes = 0;
      const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), mebibytes);
      const Place bucket{json.elements[index], &place, name};
      if (error != std::errc{} || stop != name.data() + name.size() || mebibytes <= 0)
        fail(bucket, "a number of MiB as its name");
      buckets[mebibytes] = integer(bucket, 0);
    }
    return buckets;
  }

  MemoryStats stats(const Place& place) const {
    object(place);
    MemoryStats stats;
    visit_values(stats, [&](const std::string& key, std::int64_t& value) { value = integer(member(place, key)); });
    return stats;
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t devices_ = 0;
};

}  // namespace

Snapshot parse_snapshot(std::string_view text, std::string_view name) { return SnapshotParser(text, name).parse(); }

Snapshot read_snapshot(const std::string& path) { return parse_snapshot(read_input_file(path), path); }

}  // namespace cistern
