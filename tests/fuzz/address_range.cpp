// An address range, of which pages are mapped and blocks come and go, beside plain arrays of its pages and of their
// parts.

#include "allocator/address_range.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kPages = 20;
constexpr std::size_t kPartsOfPage = 4;
constexpr std::size_t kParts = kPages * kPartsOfPage;
constexpr std::size_t kPart = 512;
constexpr std::size_t kPage = kPart * kPartsOfPage;

enum class PageState : std::uint8_t { unmapped, mapped, coming, going };
enum class PartState : std::uint8_t { free, in_use, pending };  // of what is mapped

struct Plain {
  struct Page {
    PageState state = PageState::unmapped;
    bool begins_piece = false;  // of pages that are on their way together
  };
  struct Part {
    PartState state = PartState::free;
    bool begins_block = false;  // that is in use or pending
  };
  struct Piece {
    std::size_t page;
    std::size_t pages;
    PageState state;
  };

  [[nodiscard]] PageState state_of(std::size_t part) const { return pages[part / kPartsOfPage].state; }
  [[nodiscard]] bool is_free(std::size_t part) const {
    return state_of(part) == PageState::mapped && parts[part].state == PartState::free;
  }
  // Where the run of parts that follow each other ends, all of which `is_of` says.
  template <class IsOf>
  [[nodiscard]] static std::size_t end_of(std::size_t from, IsOf&& is_of) {
    while (from < kParts && is_of(from)) ++from;
    return from;
  }
  [[nodiscard]] std::size_t end_of_block(std::size_t part) const {
    if (is_free(part)) return end_of(part, [&](std::size_t i) { return is_free(i); });
    return end_of(part + 1, [&](std::size_t i) { return parts[i].state != PartState::free && !parts[i].begins_block; });
  }
  [[nodiscard]] std::size_t end_of_piece(std::size_t page) const {
    const PageState state = pages[page].state;
    std::size_t end = page + 1;
    while (end < kPages && pages[end].state == state && !(state != PageState::mapped && pages[end].begins_piece)) ++end;
    return end;
  }
  [[nodiscard]] std::vector<Piece> pieces() const {
    std::vector<Piece> all;
    for (std::size_t page = 0; page < kPages; page = end_of_piece(page))
      if (pages[page].state != PageState::unmapped) all.push_back({page, end_of_piece(page) - page, pages[page].state});
    return all;
  }

  std::array<Page, kPages> pages;
  std::array<Part, kParts> parts;
};

class Program {
 public:
  explicit Program(std::uint64_t base) {
    // It need not begin where a page of that size would.
    range_.address = (std::uint64_t{1} << 40) + base * kPart;
    range_.bytes = kPages * kPage;
    range_.page_bytes = kPage;
    range_.kind = PoolKind::large;
    range_.owner = owner();
    for (std::uint64_t byte = 0; byte < 3 * kPage; byte += kPart / 2) {
      const std::uint64_t before = range_.page_at_or_before(range_.address + byte) - range_.address;
      const std::uint64_t after = range_.page_at_or_after(range_.address + byte) - range_.address;
      require(before % kPage == 0 && before <= byte && byte < before + kPage, "the page at or before an address");
      require(after % kPage == 0 && after >= byte && after < byte + kPage, "the page at or after it");
    }
  }

  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t text = steps.byte();
    const std::size_t page = text % kPages;
    const std::size_t part = text % kParts;
    const std::size_t count = 1 + kind / 8 % 8;
    switch (kind % 8) {
      case 0:
        map(page, count, kind / 64 % 2 == 0);
        break;
      case 1:
        land(page);
        break;
      case 2:
      case 3:
        use(part, count + kind / 64);
        break;
      case 4:
        free(part, kind / 8 % 4 != 0);
        break;
      case 5:
        cut_out(page, count);
        break;
      case 6:
        unmap(page, count);
        break;
      default:
        harm(kind / 8, text);
    }
    update();
    compare();
    for (const std::size_t bytes : {count * kPart, part * kPart + kind % 2, kParts * kPart - part * kPart})
      compare_room(bytes);
  }
  void finish() {
    for (std::size_t parts = 1; parts <= kParts + 1; ++parts) compare_room(parts * kPart);
  }

 private:
  struct Held {
    Segment segment;
    std::vector<Block> blocks;
  };

  // Never looked at.
  static StreamHeap* owner() {
    static int place;
    return reinterpret_cast<StreamHeap*>(&place);
  }
  [[nodiscard]] std::uint64_t address_of(std::size_t part) const { return range_.address + part * kPart; }

  // As far as nothing is there; at once, or what comes is on its way.
  void map(std::size_t page, std::size_t count, bool is_at_once) {
    const std::size_t from = page;
    for (; page < kPages && page < from + count && plain_.pages[page].state == PageState::unmapped; ++page)
      plain_.pages[page] = {PageState::coming, page == from};
    reserve(page - from);
    if (is_at_once && page != from) land(from);
  }
  void reserve(std::size_t more) {
    const std::vector<Segment*> before = range_.segments;
    range_.reserve_pieces(more);
    require(range_.segments == before, "what there is stays");
    capacity_ = range_.segments.capacity();
  }
  // What is on its way is mapped, and free.
  void land(std::size_t page) {
    if (!is_on_its_way(page)) return;
    while (!plain_.pages[page].begins_piece) --page;
    const std::size_t end = plain_.end_of_piece(page);
    for (; page < end; ++page) {
      plain_.pages[page] = {PageState::mapped, false};
      for (std::size_t i = 0; i < kPartsOfPage; ++i) plain_.parts[page * kPartsOfPage + i] = {};
    }
  }
  [[nodiscard]] bool is_on_its_way(std::size_t page) const {
    return plain_.pages[page].state == PageState::coming || plain_.pages[page].state == PageState::going;
  }
  // As much of it as is free.
  void use(std::size_t part, std::size_t count) {
    const std::size_t from = part;
    for (; part < kParts && part < from + count && plain_.is_free(part); ++part)
      plain_.parts[part] = {PartState::in_use, part == from};
  }
  void free(std::size_t part, bool is_done) {
    if (plain_.state_of(part) != PageState::mapped || plain_.parts[part].state == PartState::free) return;
    while (!plain_.parts[part].begins_block) --part;
    const std::size_t end = plain_.end_of_block(part);
    plain_.parts[part] = {is_done ? PartState::free : PartState::pending, !is_done};
    while (++part < end) plain_.parts[part].state = is_done ? PartState::free : PartState::pending;
  }
  // As many as are free.
  void cut_out(std::size_t page, std::size_t count) {
    const std::size_t from = page;
    for (; page < kPages && page < from + count && is_free_page(page); ++page)
      plain_.pages[page] = {PageState::going, page == from};
  }
  [[nodiscard]] bool is_free_page(std::size_t page) const {
    for (std::size_t i = 0; i < kPartsOfPage; ++i)
      if (!plain_.is_free(page * kPartsOfPage + i)) return false;
    return true;
  }
  // Of what is on its way, from its beginning.
  void unmap(std::size_t page, std::size_t count) {
    if (!is_on_its_way(page)) return;
    while (!plain_.pages[page].begins_piece) --page;
    const std::size_t end = plain_.end_of_piece(page);
    for (; count != 0 && page < end; --count, ++page) plain_.pages[page] = {};
    if (page < end) plain_.pages[page].begins_piece = true;
  }

  // The range is told of what the arrays say.
  void update() {
    const std::vector<Plain::Piece> pieces = plain_.pieces();
    const auto begins = [&](std::uint64_t address) {
      return std::any_of(pieces.begin(), pieces.end(),
                         [&](const Plain::Piece& piece) { return address_of(piece.page * kPartsOfPage) == address; });
    };
    std::erase_if(held_, [&](const auto& entry) {
      if (begins(entry.first)) return false;
      range_.erase(&entry.second.segment);
      return true;
    });
    std::vector<Segment*> come;
    for (const Plain::Piece& piece : pieces) {
      const auto [place, is_new] = held_.try_emplace(address_of(piece.page * kPartsOfPage));
      fill(place->second, piece);
      if (is_new) come.push_back(&place->second.segment);
    }
    // In another order than that of their addresses.
    while (!come.empty()) {
      const auto next = come.begin() + static_cast<std::ptrdiff_t>(come.size() / 2);
      range_.insert(*next);
      come.erase(next);
    }
    require(range_.segments.capacity() == capacity_, "there was room for all pieces");
  }
  void fill(Held& held, const Plain::Piece& piece) {
    Segment& segment = held.segment;
    const std::size_t first = piece.page * kPartsOfPage;
    const std::size_t end = first + piece.pages * kPartsOfPage;
    segment.address = address_of(first);
    segment.bytes = piece.pages * kPage;
    segment.range = &range_;
    segment.kind = range_.kind;
    segment.owner = piece.state == PageState::coming ? nullptr : range_.owner;
    segment.releasing = piece.state != PageState::mapped;
    held.blocks.clear();
    if (piece.state == PageState::going) held.blocks.push_back(made_block(segment, first, end));
    if (piece.state == PageState::mapped)
      for (std::size_t part = first; part < end; part = plain_.end_of_block(part))
        held.blocks.push_back(made_block(segment, part, plain_.end_of_block(part)));
    segment.first = held.blocks.empty() ? nullptr : &held.blocks.front();
    segment.last = held.blocks.empty() ? nullptr : &held.blocks.back();
    for (std::size_t i = 1; i < held.blocks.size(); ++i) {
      held.blocks[i].previous = &held.blocks[i - 1];
      held.blocks[i - 1].next = &held.blocks[i];
    }
  }
  [[nodiscard]] Block made_block(Segment& segment, std::size_t part, std::size_t end) const {
    Block block;
    block.address = address_of(part);
    block.bytes = (end - part) * kPart;
    block.segment = &segment;
    const PartState state = segment.releasing ? PartState::free : plain_.parts[part].state;
    if (state == PartState::in_use) block.state = BlockState::active_allocated;
    if (state == PartState::pending) block.state = BlockState::active_pending_free;
    return block;
  }

  void compare() {
    range_.check();
    std::vector<Segment*> expected;
    bool is_wholly_free = true;
    std::size_t pages = 0;
    for (auto& [address, held] : held_) {
      expected.push_back(&held.segment);
      pages += held.segment.bytes / kPage;
      is_wholly_free = is_wholly_free && !held.segment.releasing;
      for (const Block& block : held.blocks) {
        is_wholly_free = is_wholly_free && block.state == BlockState::inactive;
        compare_pages(block);
      }
    }
    require(range_.segments == expected, "all segments, by address");
    require(range_.is_wholly_free() == is_wholly_free, "whether all memory is free, and none on its way");
    require(pages <= capacity_, "there is room for a segment of each page");
    for (const Plain::Piece& piece : plain_.pieces()) compare_neighbours(piece);
  }
  // A page that lies in a block has all its parts there.
  void compare_pages(const Block& block) const {
    std::size_t count = 0;
    std::uint64_t first = 0;
    for (std::size_t page = kPages; page-- > 0;) {
      const std::uint64_t address = range_.address + page * kPage;
      if (block.address > address || address + kPage > block.address + block.bytes) continue;
      ++count;
      first = address;
    }
    const Pages pages = range_.pages_in(block);
    require(pages.bytes == count * kPage && pages.page_bytes == kPage, "how many pages lie in a block");
    require(count == 0 || pages.address == first, "which pages lie in a block");
    require(releasable_bytes(block) == count * kPage, "what a flush would give back of it");
  }
  [[nodiscard]] Segment* mapped_at(std::size_t page) {
    if (page >= kPages || plain_.pages[page].state != PageState::mapped) return nullptr;
    while (page > 0 && plain_.pages[page - 1].state == PageState::mapped) --page;
    return &held_.at(range_.address + page * kPage).segment;
  }
  void compare_neighbours(const Plain::Piece& piece) {
    const Segment& segment = held_.at(range_.address + piece.page * kPage).segment;
    const std::size_t end = piece.page + piece.pages;
    std::size_t next = end;
    while (next < kPages && plain_.pages[next].state == PageState::unmapped) ++next;
    require(range_.unmapped_behind(segment) == (next - end) * kPage, "how much is unmapped behind a segment");
    Segment* const before = piece.page == 0 ? nullptr : mapped_at(piece.page - 1);
    require(range_.touching_before(segment) == before, "the segment that ends where it begins");
    require(range_.touching_after(segment) == mapped_at(end), "the segment that begins where it ends");
  }

  // The lowest run of free and unmapped parts that has any unmapped and is long enough.
  void compare_room(std::size_t bytes) {
    const auto is_unmapped = [&](std::size_t part) { return plain_.state_of(part) == PageState::unmapped; };
    const auto offers = [&](std::size_t part) { return is_unmapped(part) || plain_.is_free(part); };
    for (std::size_t from = 0; from < kParts; ++from) {
      const std::size_t end = Plain::end_of(from, offers);
      const std::size_t gap = Plain::end_of(from, [&](std::size_t part) { return plain_.is_free(part); });
      if (gap < end && (end - from) * kPart >= bytes)
        return require_room(bytes, from, gap, Plain::end_of(gap, is_unmapped));
      if (end > from) from = end;
    }
    require(!range_.room_for(bytes).has_value(), "there is no room");
  }
  void require_room(std::size_t bytes, std::size_t from, std::size_t gap, std::size_t end_of_gap) {
    const std::optional<AddressRange::Room> room = range_.room_for(bytes);
    require(room.has_value() && room->range == &range_, "there is room");
    require((room->head != nullptr) == (from != gap), "whether a free block is before the gap");
    if (from != gap)
      require(room->head->address == address_of(from) && room->head->bytes == (gap - from) * kPart,
              "the free block before the gap");
    // As many pages as hold what the block does not, if there are so many.
    std::size_t mapped = 0;
    while (mapped < (end_of_gap - gap) * kPart && (gap - from) * kPart + mapped < bytes) mapped += kPage;
    require(room->gap.address == address_of(gap) && room->gap.bytes == mapped && room->gap.page_bytes == kPage,
            "what of the gap to map");
  }

  // What must not be is seen.
  void harm(std::uint64_t kind, std::uint64_t which) {
    if (range_.segments.empty()) return;
    const std::size_t index = which % range_.segments.size();
    Segment& segment = *range_.segments[index];
    const Segment before = segment;
    const std::vector<Segment*> all = range_.segments;
    Segment cut_off;
    const bool is_harm = kind % 10 < 5 ? harm_place(kind % 10, index) : harm_rest(kind % 10, index, cut_off);
    if (is_harm) require_seen();
    segment = before;
    range_.segments = all;
  }
  // These return false where it is none.
  bool harm_place(std::uint64_t kind, std::size_t index) {
    Segment& segment = *range_.segments[index];
    const bool is_last = index + 1 == range_.segments.size();
    if (kind == 0) {
      segment.bytes = (is_last ? range_.end() : range_.segments[index + 1]->address) + kPage - segment.address;
    } else if (kind == 1) {
      segment.address = (index == 0 ? range_.address : range_.segments[index - 1]->end()) - kPage;
    } else if (kind == 2) {
      segment.bytes = 0;
    } else if (kind == 3) {
      segment.bytes -= kPart;
    } else {
      segment.address += kPart;
      segment.bytes -= kPage;
      return segment.bytes != 0;
    }
    return true;
  }
  bool harm_rest(std::uint64_t kind, std::size_t index, Segment& cut_off) {
    Segment& segment = *range_.segments[index];
    if (kind == 5) {
      segment.range = nullptr;
      return true;
    }
    if (kind == 6) {
      if (index == 0) return false;
      std::swap(range_.segments[index], range_.segments[index - 1]);
      return true;
    }
    if (kind == 7) {
      if (segment.bytes == kPage) return false;
      segment.bytes -= kPage;
      cut_off = segment;
      cut_off.address = segment.end();
      cut_off.bytes = kPage;
      range_.segments.insert(range_.segments.begin() + static_cast<std::ptrdiff_t>(index) + 1, &cut_off);
    } else if (kind == 8) {
      segment.owner = nullptr;
    } else {
      segment.kind = PoolKind::small;
    }
    return !segment.releasing;
  }
  void require_seen() const {
    bool is_seen = false;
    try {
      range_.check();
    } catch (const std::logic_error&) {
      is_seen = true;
    }
    require(is_seen, "what must not be is seen");
  }

  AddressRange range_;
  std::size_t capacity_ = 0;  // for so many segments
  Plain plain_;
  std::map<std::uint64_t, Held> held_;  // by address
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Steps steps(data, size);
  Program program(steps.byte() % 16);
  while (steps.more()) program.step(steps);
  program.finish();
  return 0;
}
