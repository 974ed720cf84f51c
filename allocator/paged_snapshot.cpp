// What a heap shows of its paged memory: in snapshots, reports and statistics by stream.

#include "allocator/heap_reports.h"
#include "stats/json_writer.h"
#include "stats/snapshot_members.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace cistern {
namespace {

Block* merge_by_address(Block* a, Block* b) noexcept {
  Block* all = nullptr;
  Block** end = &all;
  while (a != nullptr && b != nullptr) {
    Block*& first = b->address < a->address ? b : a;
    *end = first;
    end = &first->right;
    first = first->right;
  }
  *end = a != nullptr ? a : b;
  return all;
}

// All live and pending blocks by address, linked by `right`, which only free blocks of pools use otherwise. Runs of 2^i
// blocks are merged as in SegmentList::sort: without host memory.
Block* chain_by_address(const PagedMemory& paged) noexcept {
  std::array<Block*, 64> runs{};
  paged.for_each_stream([&runs](StreamNumber, const PagedMemory::Stream& stream) {
    for (Block* block = stream.segment->first; block != nullptr; block = block->next) {
      block->right = nullptr;
      Block* run = block;
      std::size_t place = 0;
      for (; runs[place] != nullptr; ++place) run = merge_by_address(std::exchange(runs[place], nullptr), run);
      runs[place] = run;
    }
  });
  Block* all = nullptr;
  for (Block* run : runs) all = merge_by_address(run, all);
  return all;
}

// A block or a free run.
struct Piece {
  BlockInfo info;
  StreamNumber stream = 0;
  [[nodiscard]] std::uint64_t end() const { return info.address + static_cast<std::uint64_t>(info.size); }
};

// The pieces of one arena, by address.
class Pieces {
 public:
  // `chain`: blocks by address, those of the arena first.
  Pieces(const PagedMemory& paged, PageTable::Arena arena, const Block* chain)
      : paged_(&paged), block_(chain), free_(PageTable::begin_of(arena)), end_(PageTable::begin_of(arena + 1)) {
    end_address_ = paged.base_of(arena) + paged.driver.arena_bytes();
  }
  // False: there is none.
  bool next(Piece& piece) {
    const Block* const block = block_ != nullptr && block_->address < end_address_ ? block_ : nullptr;
    FreeRun run;
    paged_->placement.free_runs().for_each_from(free_, [&run](const FreeRun& first) {
      run = first;
      return false;
    });
    const bool has_run = run.sectors != 0 && run.address < end_;
    if (block == nullptr && !has_run) return false;
    if (has_run && (block == nullptr || paged_->address_of(run.address) < block->address)) {
      piece = {free_block(paged_->address_of(run.address), static_cast<std::size_t>(run.sectors * kSectorBytes)),
               run.stream};
      free_ = run.end();
      return true;
    }
    piece = {describe(image_of(*block)), block->segment->paged_stream};
    block_ = block->right;
    return true;
  }
  [[nodiscard]] const Block* rest() const { return block_; }

 private:
  const PagedMemory* paged_;
  const Block* block_;
  Sectors free_;
  Sectors end_;
  std::uint64_t end_address_ = 0;
};

SegmentInfo segment_of(const PagedMemory& paged, PageTable::Arena arena, const Piece& first, int device) {
  SegmentInfo info;
  info.device = device;
  info.address = first.info.address;
  info.stream = stream_number(paged.stream(first.stream).segment->stream);
  info.is_large = paged.stream(first.stream).segment->kind == PoolKind::large;
  info.is_expandable = true;
  info.range_address = paged.base_of(arena);
  info.range_size = static_cast<std::int64_t>(paged.driver.arena_bytes());
  return info;
}

}  // namespace

void HeapReports::stream_paged(JsonWriter& json, StackIndex first_stack,
                               const std::function<void(std::uint64_t)>& write_below) const {
  if (paged_ == nullptr) return;
  const PagedMemory& paged = *paged_;
  const Block* chain = chain_by_address(paged);
  std::uint64_t behind = 0;
  for (;;) {
    // The next arena by where it lies.
    PageTable::Arena arena = -1;
    for (PageTable::Arena one = 0; one < paged.known_arenas(); ++one)
      if (paged.base_of(one) >= behind && paged.base_of(one) != 0 &&
          (arena < 0 || paged.base_of(one) < paged.base_of(arena)))
        arena = one;
    if (arena < 0) return;
    behind = paged.base_of(arena) + paged.driver.arena_bytes();
    write_below(paged.base_of(arena));
    Pieces pieces(paged, arena, chain);
    Pieces ahead = pieces;
    Piece piece;
    bool is_more = ahead.next(piece);
    while (is_more) {
      SegmentInfo info = segment_of(paged, arena, piece, device_);
      const StreamNumber stream = piece.stream;
      std::size_t joined = 0;
      std::uint64_t end = info.address;
      for (; is_more && piece.stream == stream && piece.info.address == end; is_more = ahead.next(piece), ++joined) {
        info.total_size += piece.info.size;
        count(info, piece.info);
        end = piece.end();
      }
      begin_segment(json, info);
      Piece written;
      for (; joined != 0 && pieces.next(written); --joined) {
        if (written.info.stack != kNoStack) written.info.stack += first_stack;
        write_block(json, written.info);
      }
      end_segment(json);
    }
    chain = pieces.rest();
  }
}

// A segment for each stream, behind all others, which PagedCut::lay_out replaces by what is to be shown.
void HeapReports::cut_paged(DeviceCut& cut) const {
  if (paged_ == nullptr) return;
  paged_->for_each_stream([&](StreamNumber number, const PagedMemory::Stream& stream) {
    cut.segments.push_back(image_of(*stream.segment));
    cut.first.push_back(stream.segment->first);
    cut.paged.streams.push_back(number);
  });
  paged_->for_each_free([&](const FreeRun& run) {
    const auto bytes = static_cast<std::size_t>(run.sectors * kSectorBytes);
    cut.paged.runs.push_back({run.stream, paged_->address_of(run.address), bytes});
  });
  paged_ranges(cut.paged.ranges);
}

void HeapReports::paged_ranges(std::vector<PagedRange>& ranges) const {
  for (PageTable::Arena arena = 0; arena < paged_->known_arenas(); ++arena)
    if (paged_->base_of(arena) != 0) ranges.push_back({paged_->base_of(arena), paged_->driver.arena_bytes()});
}

std::vector<FreeRun> HeapReports::free_runs_by_stream() const {
  std::vector<FreeRun> runs;
  if (paged_ != nullptr) paged_->for_each_free([&runs](const FreeRun& run) { runs.push_back(run); });
  std::sort(runs.begin(), runs.end(), [](const FreeRun& a, const FreeRun& b) { return a.stream < b.stream; });
  return runs;
}

void HeapReports::add_paged_segments(std::vector<SegmentInfo>& all, const Segment& of_stream,
                                     std::vector<BlockInfo> blocks, std::span<const FreeRun> by_stream) const {
  auto run = std::lower_bound(by_stream.begin(), by_stream.end(), of_stream.paged_stream,
                              [](const FreeRun& one, StreamNumber stream) { return one.stream < stream; });
  for (; run != by_stream.end() && run->stream == of_stream.paged_stream; ++run)
    blocks.push_back(
        free_block(paged_->address_of(run->address), static_cast<std::size_t>(run->sectors * kSectorBytes)));
  std::vector<PagedRange> ranges;
  paged_ranges(ranges);
  SegmentInfo alike;
  alike.device = device_;
  alike.stream = stream_number(of_stream.stream);
  alike.is_large = of_stream.kind == PoolKind::large;
  for (SegmentInfo& segment : lay_out(alike, std::move(blocks), ranges)) all.push_back(std::move(segment));
}

PagedCut::Size HeapReports::size_of_paged_cut() const {
  PagedCut::Size size;
  if (paged_ == nullptr) return size;
  paged_->for_each_stream([&size](StreamNumber, const PagedMemory::Stream&) { ++size.streams; });
  paged_->for_each_free([&size](const FreeRun&) { ++size.runs; });
  size.ranges = static_cast<std::size_t>(paged_->known_arenas());
  return size;
}

// What a flush gives back of it, and what stays; as one block what can be gathered.
void HeapReports::add_paged(Usage& usage) const {
  if (paged_ == nullptr) return;
  const PagePlacement& placement = paged_->placement;
  std::size_t free = 0;
  std::size_t whole = 0;
  paged_->for_each_free([&](const FreeRun& run) {
    const auto bytes = static_cast<std::size_t>(run.sectors * kSectorBytes);
    free += bytes;
    usage.largest_free_block = std::max(usage.largest_free_block, bytes);
  });
  const FreeRuns& runs = placement.free_runs();
  placement.table().for_each_handle([&](PageTable::Handle handle) {
    const Sectors sectors = placement.table().sectors_of(handle);
    if (runs.is_free(placement.table().home_of(handle), sectors))
      whole += static_cast<std::size_t>(sectors * kSectorBytes);
  });
  usage.free_whole += whole;
  usage.free_split += free - whole;
  usage.largest_free_block = std::max(usage.largest_free_block, whole);
}

}  // namespace cistern
