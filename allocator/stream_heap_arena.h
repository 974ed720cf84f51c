#pragma once

// StreamHeapArena: storage for the StreamHeaps of one heap, kept for reuse, and how a thread finds one
// without the heap's lock: by stream, or by the page that an address lies in. A block in a page that shows another
// stream than the block's is a guest there, and is found by its address: streams that have each other's bytes have
// many. What is known of an address stays when the guest is gone, until there is no more room: so the next one there
// changes no place in the map, and one that comes and goes with steps that are followed, which tell nobody, is found.
//
// Only streams that are awake serve without the heap's lock, which has to take the mutex of each of them. A
// stream is woken when it asks for the second time, if there is room, and sleeps again when it has not served alone
// for long and others wake, or ask for the heap's lock; or where too many take turns (WakeCounts).
// Thread safety: the finds may be called from any thread at any time. What they find may be another
// stream's by then, which it says under its mutex. Guests are added and removed by who has a turn in pages; the rest is
// for who holds the heap's lock.

#include "allocator/growing_table.h"
#include "allocator/heap_mutex.h"
#include "allocator/latest_finds.h"
#include "allocator/page_directory.h"
#include "allocator/published_map.h"
#include "allocator/stream_heap.h"
#include "allocator/wake_counts.h"
#include "stats/recorder.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace cistern {

class StreamHeapArena {
 public:
  // The granularity of the driver's allocations of 1 MiB and more.
  static constexpr std::uint64_t kPage = std::uint64_t{2} << 20;

  // The mutex is that of the heap, the recorder counts what streams report. Both outlive the arena's use.
  StreamHeapArena(HeapMutex& mutex, Recorder& recorder) : mutex_(mutex), recorder_(recorder) {}
  StreamHeapArena(const StreamHeapArena&) = delete;
  StreamHeapArena& operator=(const StreamHeapArena&) = delete;

  // Of the default pool; null: not known without the heap's lock. O(1).
  [[nodiscard]] StreamHeap* find(const StreamIdentity& stream) const noexcept {
    StreamHeap* const recent = find_recent(stream);
    return recent != nullptr ? recent : by_stream_.find(key_of(stream.id));
  }
  // The same, and null as well where others came since with the same remainder. Without a loop.
  [[nodiscard, gnu::always_inline]] StreamHeap* find_recent(const StreamIdentity& stream) const noexcept {
    return latest_.find(key_of(stream.id));
  }
  // Whose live blocks around that address are found in StreamHeap::live, but for guests; null: not known. O(1).
  [[nodiscard]] StreamHeap* find_by_page(std::uint64_t address) const noexcept {
    return by_page_.find(address / kPage);
  }
  // Whose guest begins at that address, or began there last; null: none did, as far as is known. O(1).
  [[nodiscard]] const StreamHeap::Guest* find_guest(std::uint64_t address) const noexcept {
    return guests_.find(address);
  }
  // The same; nothing: what is known is just being changed. O(1).
  [[nodiscard]] std::optional<const StreamHeap::Guest*> look_for_guest(std::uint64_t address) const noexcept {
    return guests_.look(address);
  }
  // Whose live block may begin at that address. O(1).
  [[nodiscard]] StreamHeap* find_by_address(std::uint64_t address) const noexcept {
    const StreamHeap::Guest* const guest = find_guest(address);
    return guest != nullptr && guest->is_live ? guest->of : find_by_page(address);
  }
  // As find_by_page, and null as well where others came since with the same remainder. Without a loop.
  [[nodiscard, gnu::always_inline]] StreamHeap* find_recent_by_page(std::uint64_t address) const noexcept {
    return by_page_.find_recent(address / kPage);
  }

  // Throws std::bad_alloc, unchanged. O(1) amortised.
  [[nodiscard]] StreamHeap& take(const StreamIdentity& stream, PrivatePool* home);
  // The stream is over: no find by stream finds it, and it does not wake again.
  void end(StreamHeap& heap) noexcept;
  // Requires: it has no references.
  void give_back(StreamHeap& heap) noexcept;

  // The stream asks for memory with the heap's lock. O(1) amortised, but for streams that fall asleep.
  void note_request(StreamHeap& heap) noexcept {
    if (!heap.is_awake.load(std::memory_order_relaxed) && !heap.wants_to_wake) consider_waking(heap);
    if (wake_counts_.note_request(mutex_.awake())) look_for_idle();
  }

  // The segment's blocks are found by page from now on, if it fills its pages, so that nothing else lies in
  // them, and there is host memory for their entries: then true. O(bytes / 2 MiB).
  [[nodiscard]] bool add_pages(const Segment& segment) noexcept {
    return add_pages(segment.address, segment.bytes, *segment.owner);
  }
  // Requires: they were added. Before the driver gets them, for what it makes there next is found by them.
  void remove_pages(const Segment& segment) noexcept { remove_pages(segment.address, segment.bytes); }
  // The same of pages that are in no segment; to remove some that were not added is nothing.
  [[nodiscard]] bool add_pages(std::uint64_t address, std::size_t bytes, StreamHeap& owner) noexcept;
  void remove_pages(std::uint64_t address, std::size_t bytes) noexcept;
  // Whether nothing else lies in pages there.
  [[nodiscard]] static bool fills_pages(std::uint64_t address, std::size_t bytes) noexcept {
    return address % kPage == 0 && bytes % kPage == 0;
  }
  // Makes room for the entries of pages that are put later. Throws std::bad_alloc, unchanged. O(bytes / 1 GiB), and
  // once for each of these more.
  void reserve_pages(std::uint64_t address, std::size_t bytes) {
    by_page_.reserve(address / kPage, (address + bytes - 1) / kPage);
  }
  // Requires: they were added, or room for them reserved. The segment is new, has another owner, or stays although they
  // were removed.
  void put_pages(const Segment& segment) noexcept;

  // Makes room for one more guest. Throws std::bad_alloc, unchanged. By who holds the heap's lock, and not only to
  // look: then no stream follows steps. O(1) amortised.
  void make_room_for_guest() {
    if (!guests_.has_room(1)) forget_former_guests();
  }
  // Whether a block of the stream there would be found. O(1).
  [[nodiscard]] bool has_room_for_block(std::uint64_t address, const StreamHeap& heap) const noexcept {
    return guests_.has_room(1) || find_by_page(address) == &heap || guests_.contains(address);
  }
  // A block of the stream begins there. Requires: room. O(1).
  void add_block(std::uint64_t address, StreamHeap& heap) noexcept {
    if (find_by_page(address) != &heap) guests_.put(address, &heap.guest);
  }
  // And is gone. Requires: it was added, and the page shows what it did then. O(1).
  void remove_block(std::uint64_t address, StreamHeap& heap) noexcept {
    if (find_by_page(address) != &heap) guests_.put(address, &heap.former_guest);
  }
  // Calls visit(address, Guest) for each address of which something is known. O(room).
  template <class Visit>
  void for_each_guest(Visit&& visit) const {
    guests_.for_each(visit);
  }

 private:
  // For so many at most storage is obtained, and its pages brought, at once: each page that is touched first costs more
  // than the rest of a new stream.
  static constexpr std::size_t kSlab = 8;
  // Streams in a row that are found without the map.
  static constexpr std::size_t kLatest = 16;

  // No stream's is 0: the legacy default stream has the highest id.
  [[nodiscard]] static std::uint64_t key_of(std::uint64_t stream_id) noexcept { return stream_id + 2; }
  template <class Visit>
  static void for_each_page(std::uint64_t address, std::size_t bytes, Visit&& visit) {
    for (std::uint64_t page = address / kPage; page * kPage < address + bytes; ++page) visit(page);
  }

  // Storage for some, each made when it is taken first.
  class Slab {
   public:
    // Throws std::bad_alloc.
    explicit Slab(std::size_t heaps);
    Slab(Slab&& other) noexcept = default;
    Slab& operator=(Slab&&) = delete;
    ~Slab();
    [[nodiscard]] bool is_full() const noexcept { return made_ == size_; }
    // Requires: it is not full.
    [[nodiscard]] StreamHeap& make() noexcept;

   private:
    struct alignas(StreamHeap) Storage {
      std::byte bytes[sizeof(StreamHeap)];
    };
    GrowingTable<StreamRoom> rooms_;  // without pages until they are used
    std::unique_ptr<Storage[]> heaps_;
    std::size_t size_;
    std::size_t made_ = 0;
  };

  [[nodiscard]] StreamHeap& take_unused();
  void forget_former_guests();
  void consider_waking(StreamHeap& heap) noexcept;
  void look_for_idle() noexcept;
  void put_to_sleep(StreamHeap& heap) noexcept;

  HeapMutex& mutex_;
  Recorder& recorder_;
  WakeCounts wake_counts_;
  std::vector<Slab> slabs_;
  std::size_t count_ = 0;  // that were made
  StreamHeap* unused_ = nullptr;
  LatestFinds<StreamHeap, kLatest> latest_;
  PublishedMap<StreamHeap> by_stream_;
  PageDirectory<StreamHeap> by_page_;
  PublishedMap<const StreamHeap::Guest> guests_;  // by address
};

}  // namespace cistern
