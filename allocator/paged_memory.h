#pragma once

// PagedMemory: what a heap has for the policy `paged`: where its blocks lie, the driver's part of it, which stream has
// which number, and what is to be known of each block that is not free.
//
// A stream's blocks hang on a Segment of its own, which stands for the stream alone: it has no bytes and no place, and
// its blocks, live or pending, are linked in no order. Free bytes are no blocks: they are the placement's.
// Not thread-safe: the heap's lock is held, or a stream's turn in pages (StreamHits::turn_in_pages), but for `driver`,
// which needs none.

#include "allocator/block.h"
#include "allocator/device_pages.h"
#include "allocator/hand_over_tally.h"
#include "allocator/page_placement.h"
#include "allocator/page_source.h"
#include "allocator/stream_heap.h"
#include "allocator/stream_marks.h"
#include "allocator/stream_parting.h"
#include "runtime/driver_api.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace cistern {

class PagedMemory {
 public:
  struct Stream {
    StreamHeap* heap = nullptr;  // null: the number is nobody's
    Segment* segment = nullptr;
    StreamMarks marks = {};
  };

  // `source` outlives it. Throws DriverError.
  PagedMemory(const DriverApi& api, PageSource& source, std::size_t device_bytes);

  [[nodiscard]] static Sectors sectors_for(std::size_t bytes) {
    return (static_cast<Sectors>(bytes) + kSectorBytes - 1) / kSectorBytes;
  }
  [[nodiscard]] std::size_t bytes_of(std::int64_t pages) const {
    return static_cast<std::size_t>(placement.table().page().sectors(pages) * kSectorBytes);
  }
  // Pages that hold no more than so many bytes.
  [[nodiscard]] std::int64_t pages_in(std::size_t bytes) const {
    return placement.table().page().whole(static_cast<Sectors>(bytes) / kSectorBytes);
  }

  // Streams, whose heaps know their numbers. O(1) amortised; throws std::bad_alloc, unchanged.
  [[nodiscard]] StreamNumber add(const Stream& stream);
  void set_segment(StreamNumber stream, Segment* segment) {
    streams_[static_cast<std::size_t>(stream)].segment = segment;
  }
  void remove(StreamNumber stream) noexcept {
    hand_overs.forget(stream);
    placement.forget_peak(stream);
    Stream& one = streams_[static_cast<std::size_t>(stream)];
    one.heap->paged_stream = -1;
    one = {};
    unused_.push_back(stream);  // there is room
    std::push_heap(unused_.begin(), unused_.end(), std::greater<>());
  }
  [[nodiscard]] StreamMarks& marks(StreamNumber number) { return streams_[static_cast<std::size_t>(number)].marks; }
  [[nodiscard]] const Stream& stream(StreamNumber number) const { return streams_[static_cast<std::size_t>(number)]; }
  template <class Visit>
  void for_each_stream(Visit&& visit) const {
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if (streams_[i].heap != nullptr) visit(static_cast<StreamNumber>(i), streams_[i]);
  }
  // Of blocks and free runs, by stream. O(blocks and free runs). Throws std::bad_alloc.
  [[nodiscard]] std::vector<std::size_t> owned_bytes() const;

  // Where a byte lies on the device. Requires: its arena is known.
  [[nodiscard]] std::uint64_t address_of(Sectors place) const {
    const PageTable::Arena arena = PageTable::arena_of(place);
    return base_of(arena) + static_cast<std::uint64_t>((place - PageTable::begin_of(arena)) * kSectorBytes);
  }
  // The reverse. Requires: it lies in an arena that is known. O(arenas).
  [[nodiscard]] Sectors place_at(std::uint64_t address) const noexcept;
  [[nodiscard]] std::uint64_t base_of(PageTable::Arena arena) const {
    return bases_[static_cast<std::size_t>(arena)].address;
  }
  // Room for what `learn` keeps. Throws std::bad_alloc, unchanged.
  void provide_for(PageTable::Arena arena);
  // Where an arena that was mapped in lies; and that it lies nowhere any more.
  void learn(PageTable::Arena arena) noexcept;
  void forget(PageTable::Arena arena) noexcept {
    if (arena < known_arenas()) bases_[static_cast<std::size_t>(arena)] = {};
  }
  // Up to where blocks in it are found by page.
  void note_found(PageTable::Arena arena, std::uint64_t end) noexcept {
    std::uint64_t& found = bases_[static_cast<std::size_t>(arena)].found_end;
    found = std::max(found, end);
  }
  [[nodiscard]] std::size_t found_bytes(PageTable::Arena arena) const {
    const Base& base = bases_[static_cast<std::size_t>(arena)];
    return base.found_end == 0 ? 0 : static_cast<std::size_t>(base.found_end - base.address);
  }

  // The block is that of the place, on its stream's segment.
  void attach(Block& block, KnownPlaces::Number place) noexcept;
  [[nodiscard]] static KnownPlaces::Number place_of(const Block& block) { return block.paged_place; }
  // Takes the block off its segment.
  void detach(Block& block) noexcept;

  // Of so many arenas it may be known where they lie.
  [[nodiscard]] PageTable::Arena known_arenas() const { return static_cast<PageTable::Arena>(bases_.size()); }

  // Bytes that a plan or a departure has to itself, while the lock is given up: free memory still, to all who ask.
  struct UnderWay {
    const std::vector<FreeRun>* runs = nullptr;
    UnderWay* next = nullptr;
  };
  void begin(UnderWay& one) noexcept {
    one.next = under_way_;
    under_way_ = &one;
  }
  void end(const UnderWay& one) noexcept {
    UnderWay** place = &under_way_;
    while (*place != &one) place = &(*place)->next;
    *place = one.next;
  }
  // Calls visit(FreeRun) for each free run and for what is under way.
  template <class Visit>
  void for_each_free(Visit&& visit) const {
    placement.free_runs().for_each(visit);
    for (const UnderWay* one = under_way_; one != nullptr; one = one->next)
      for (const FreeRun& run : *one->runs) visit(run);
  }

  // Arenas that are empty, and whose addresses the driver did not take back yet.
  [[nodiscard]] std::vector<PageTable::Arena>& unfreed_arenas() { return unfreed_arenas_; }

  // For a heap that ends: gives all of it back, blocks in use included. The device's work is over.
  void abandon() noexcept;
  // Verifies that each byte has one owner, and blocks lie where their places say. Returns the owned bytes. Throws
  // std::logic_error.
  [[nodiscard]] std::size_t check() const;

  PagePlacement placement;
  DevicePages driver;
  HandOverTally hand_overs;
  StreamParting parting;

  // The work of streams when something began that is to wait for it.
  struct StreamWork {
    StreamNumber stream = 0;
    std::shared_ptr<StreamEnd> end;
  };
  using Work = std::vector<StreamWork>;

  // Of mappings that nobody uses any more: see paged_retirement.cpp.
  struct Retirement {
    Work awaited;               // of all streams
    bool is_under_way = false;  // with the lock given up
  };
  Retirement retirement;

  // Of handles that nobody used for long: see paged_decay.cpp. Times are the host clock's.
  struct Decay {
    struct Round {
      std::int64_t since = 0;  // what nobody used since then goes
      std::int64_t began = 0;
      Work awaited;                // of all streams whose work can be told
      std::vector<bool> can_tell;  // which these were, by number
    };
    std::int64_t next_look = 0;
    std::optional<Round> round;
    bool is_under_way = false;  // with the lock given up

    // Another time counts from now on.
    void begin_anew() noexcept {
      next_look = 0;
      round.reset();
    }
  };
  Decay decay;

 private:
  struct Base {
    std::uint64_t address = 0;  // 0: nowhere
    std::uint64_t found_end = 0;
  };

  std::vector<Stream> streams_;       // by number
  std::vector<StreamNumber> unused_;  // numbers that are nobody's, as a heap, the least first; has room for all
  std::vector<Base> bases_;           // of arenas
  std::vector<PageTable::Arena> unfreed_arenas_;
  UnderWay* under_way_ = nullptr;
};

}  // namespace cistern
