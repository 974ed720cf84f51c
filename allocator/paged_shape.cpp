#include "allocator/paged_shape.h"

#include "allocator/device_cut.h"

#include <algorithm>
#include <utility>

namespace cistern {

BlockInfo free_block(std::uint64_t address, std::size_t bytes) {
  BlockInfo block;
  block.address = address;
  block.size = static_cast<std::int64_t>(bytes);
  block.state = BlockState::inactive;
  block.stack = kNoStack;
  block.tag = kNoTag;
  return block;
}

std::vector<SegmentInfo> lay_out(const SegmentInfo& of_stream, std::vector<BlockInfo> pieces,
                                 const std::vector<PagedRange>& ranges) {
  std::sort(pieces.begin(), pieces.end(), [](const BlockInfo& a, const BlockInfo& b) { return a.address < b.address; });
  std::vector<SegmentInfo> segments;
  for (const BlockInfo& piece : pieces) {
    const auto range = std::find_if(ranges.begin(), ranges.end(), [&piece](const PagedRange& one) {
      return piece.address >= one.address && piece.address - one.address < one.bytes;
    });
    const bool goes_on =
        !segments.empty() && segments.back().range_address == range->address &&
        segments.back().address + static_cast<std::uint64_t>(segments.back().total_size) == piece.address;
    if (!goes_on) {
      SegmentInfo& begun = segments.emplace_back(of_stream);
      begun.address = piece.address;
      begun.total_size = 0;
      begun.is_expandable = true;
      begun.range_address = range->address;
      begun.range_size = static_cast<std::int64_t>(range->bytes);
    }
    SegmentInfo& segment = segments.back();
    segment.total_size += piece.size;
    count(segment, piece);
    segment.blocks.push_back(piece);
  }
  return segments;
}

void PagedCut::reserve(const Size& size) {
  const auto make_room = [](auto& elements, std::size_t count) {
    elements.resize(count + count / 16 + 16);
    elements.clear();
  };
  make_room(runs, size.runs);
  make_room(streams, size.streams);
  make_room(ranges, size.ranges);
}

bool PagedCut::has_room_for(const Size& size) const {
  return runs.capacity() >= size.runs && streams.capacity() >= size.streams && ranges.capacity() >= size.ranges;
}

void PagedCut::lay_out(std::vector<SegmentInfo>& all) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.stream < b.stream; });
  const std::size_t others = all.size() - streams.size();
  std::vector<SegmentInfo> shown;
  auto run = runs.begin();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    SegmentInfo& of_stream = all[others + i];
    std::vector<BlockInfo> pieces = std::exchange(of_stream.blocks, {});
    of_stream.allocated_size = of_stream.active_size = of_stream.requested_size = 0;
    for (; run != runs.end() && run->stream == streams[i]; ++run)
      pieces.push_back(free_block(run->address, run->bytes));
    std::vector<SegmentInfo> of_it = cistern::lay_out(of_stream, std::move(pieces), ranges);
    shown.insert(shown.end(), std::make_move_iterator(of_it.begin()), std::make_move_iterator(of_it.end()));
  }
  all.resize(others);
  all.insert(all.end(), std::make_move_iterator(shown.begin()), std::make_move_iterator(shown.end()));
}

}  // namespace cistern
