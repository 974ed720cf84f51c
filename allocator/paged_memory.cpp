#include "allocator/paged_memory.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <utility>

#include "allocator/size_policy.h"
#include "runtime/driver_error.h"
#include "stats/invariant.h"

namespace cistern {
namespace {

// Addresses of an arena, in multiples of the device's memory: a stream's next ones are in another arena when half
// of these are used, and a gather takes less than the rest.
constexpr std::size_t kReserved = 4;

// A page is 2 MiB, or what the device asks for.
PageSize page_size(const DriverApi& api, const PageSource& source) {
  const CUmemAllocationProp properties = source.properties(false);
  std::size_t granularity = 0;
  check_driver(api, api.mem_get_allocation_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               DriverEntryId::mem_get_allocation_granularity, [] { return std::string("paged memory"); });
  const std::size_t page = std::bit_ceil(std::max(granularity, kSmallSegment));
  return PageSize(std::countr_zero(page / static_cast<std::size_t>(kSectorBytes)));
}

std::size_t arena_bytes(PageSize page, std::size_t device_bytes) {
  return whole_pages(kReserved * device_bytes, static_cast<std::size_t>(page.sectors() * kSectorBytes));
}

}  // namespace

PagedMemory::PagedMemory(const DriverApi& api, PageSource& source, std::size_t device_bytes)
    : placement(page_size(api, source), PagePlacement::kNoLimit,
                static_cast<std::int64_t>(kReserved / 2 * device_bytes /
                                          static_cast<std::size_t>(page_size(api, source).sectors() * kSectorBytes))),
      driver(api, source, placement.table().page(), arena_bytes(placement.table().page(), device_bytes)) {}

StreamNumber PagedMemory::add(const Stream& stream) {
  auto number = static_cast<StreamNumber>(streams_.size());
  if (!unused_.empty()) {
    std::pop_heap(unused_.begin(), unused_.end(), std::greater<>());
    number = unused_.back();
    unused_.pop_back();
    streams_[static_cast<std::size_t>(number)] = stream;
  } else {
    if (unused_.capacity() == streams_.size()) unused_.reserve(2 * streams_.size() + 8);
    streams_.push_back(stream);
  }
  stream.heap->paged_stream = number;
  return number;
}

std::vector<std::size_t> PagedMemory::owned_bytes() const {
  std::vector<std::size_t> bytes(streams_.size());
  for_each_free([&](const FreeRun& run) {
    bytes[static_cast<std::size_t>(run.stream)] += static_cast<std::size_t>(run.sectors * kSectorBytes);
  });
  for_each_stream([&](StreamNumber number, const Stream& stream) {
    for (const Block* block = stream.segment->first; block != nullptr; block = block->next)
      bytes[static_cast<std::size_t>(number)] += block->bytes;
  });
  return bytes;
}

void PagedMemory::provide_for(PageTable::Arena arena) {
  const auto count = static_cast<std::size_t>(arena) + 1;
  if (bases_.size() < count) bases_.resize(count);
  unfreed_arenas_.reserve(count);
}

void PagedMemory::learn(PageTable::Arena arena) noexcept {
  bases_[static_cast<std::size_t>(arena)].address = driver.address_of(arena);
}

Sectors PagedMemory::place_at(std::uint64_t address) const noexcept {
  PageTable::Arena arena = 0;
  while (base_of(arena) == 0 || address - base_of(arena) >= driver.arena_bytes()) ++arena;
  return PageTable::begin_of(arena) + static_cast<Sectors>((address - base_of(arena)) / kSectorBytes);
}

void PagedMemory::attach(Block& block, KnownPlaces::Number number) noexcept {
  const KnownPlace& place = placement.place(number);
  block.paged_place = number;
  block.address = address_of(place.address);
  block.bytes = static_cast<std::size_t>(place.sectors * kSectorBytes);
  Segment* segment = stream(place.stream).segment;
  block.segment = segment;
  block.kind = segment->kind;
  block.previous = nullptr;
  block.next = segment->first;
  if (block.next != nullptr) block.next->previous = &block;
  segment->first = &block;
}

void PagedMemory::detach(Block& block) noexcept {
  (block.previous != nullptr ? block.previous->next : block.segment->first) = block.next;
  if (block.next != nullptr) block.next->previous = block.previous;
}

void PagedMemory::abandon() noexcept {
  const PageTable& table = placement.table();
  table.for_each_mapping(
      [&](PageTable::Handle handle, Sectors place) { static_cast<void>(driver.unmap(place, table.pages_of(handle))); });
  table.for_each_handle([&](PageTable::Handle handle) { driver.release(handle); });
  static_cast<void>(driver.settle_debts());
  for (PageTable::Arena arena = 0; arena < table.arenas(); ++arena) static_cast<void>(driver.free_arena(arena));
}

// Every byte that is owned, by its home: no two overlap, and together they are all of the handles'.
std::size_t PagedMemory::check() const {
  placement.audit();
  const PageTable& table = placement.table();
  std::map<Sectors, Sectors> owned;  // where a piece begins and ends
  const auto add = [&](Sectors begin, Sectors sectors) {
    const auto place = owned.emplace(begin, begin + sectors).first;
    const auto next = std::next(place);
    require(next == owned.end() || next->first >= begin + sectors, "a byte of paged memory has one owner");
    require(place == owned.begin() || std::prev(place)->second <= begin, "a byte of paged memory has one owner");
  };
  Sectors sum = 0;
  Sectors live = 0;
  std::int64_t blocks = 0;
  PlacementLog::Key state;
  for_each_free([&](const FreeRun& run) {
    add(run.address, run.sectors);
    sum += run.sectors;
  });
  for_each_stream([&](StreamNumber number, const Stream& stream) {
    require(stream.segment->owner == stream.heap && stream.segment->paged_stream == number &&
                stream.heap->paged_stream == number,
            "a stream's segment knows whose it is");
    const Block* previous = nullptr;
    for (const Block* block = stream.segment->first; block != nullptr; previous = block, block = block->next) {
      const KnownPlace& place = placement.place(place_of(*block));
      require(block->previous == previous && block->segment == stream.segment && place.stream == number,
              "paged blocks are linked with their stream");
      require(place.is_live, "a place knows that it has a block");
      require(block->state != BlockState::inactive, "free bytes are no paged block");
      require(block->address == address_of(place.address) &&
                  block->bytes == static_cast<std::size_t>(place.sectors * kSectorBytes),
              "a paged block lies where its place says");
      table.for_each_piece(place.address, place.sectors, [&](Sectors home, Sectors sectors) {
        add(home, sectors);
        return true;
      });
      sum += place.sectors;
      ++blocks;
      if (block->state != BlockState::active_allocated) continue;
      live += place.sectors;
      PlacementLog::add(state, PlacementLog::mark_of({place.address, place.sectors + place.less}));
    }
  });
  placement.audit(live, blocks, state);
  return static_cast<std::size_t>(sum * kSectorBytes);
}

}  // namespace cistern
