// The pools of streams and their storage, beside maps: whose are found by stream, by page and by address, which go when
// nothing refers to them any more, and which may serve without the heap's lock.

#include "allocator/stream_pools.h"

#include <cistern/simulated.h>

#include "allocator/device_allocator.h"
#include "allocator/event_pools.h"
#include "allocator/observers.h"
#include "allocator/out_of_memory_dump.h"
#include "runtime/context.h"
#include "tests/fuzz/plain_waking.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr std::uint64_t kStreams = 80;  // more than may be awake
constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
constexpr std::uint64_t kPages = 24;
constexpr std::uint64_t kBlocksOfPage = 8;

// What the lock asks for what streams left for later: nothing here.
struct IdleHeap final : private SnapshotSource {
  Written write_snapshot(int, int*) noexcept override { return Written::not_all; }

  SimulatedDriver driver{{.backing = Backing::none}};
  Contexts contexts{driver.api()};
  EventPools event_pools{driver.api(), 1};
  Observers observers;
  DeviceAllocator heap{{contexts, event_pools, observers, *this}, 0, AllocatorOptions{}, HistoryOptions{}};
};

class Program {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t text = steps.byte();
    if (kind == 255) {
      const HeapLook look(mutex_);
      waking_.lock();
    } else {
      mutex_.lock();
      waking_.lock();
      change(kind % 16, kind / 16, text);
      mutex_.unlock();
    }
    waking_.compare(mutex_);
    compare_stream(text % kStreams);
    // Most of what goes wrong stays so.
    if (++steps_ % 16 == 0) compare();
  }
  void finish() {
    for (std::uint64_t address = kPage; address < (1 + kPages) * kPage; address += kPage / kBlocksOfPage) {
      compare_address(address);
      remove_block(address);
    }
    compare();
    while (!runs_.empty()) remove_pages(runs_.back());
    for (auto& [heap, kept] : heaps_) heap->references = 0;
    for (std::size_t of : {0, 1}) drop(of, false);
    require(heaps_.empty(), "without references none is left");
    mutex_.lock();
    waking_.lock();
    mutex_.unlock();
    compare();
    require(mutex_.awake() == 0, "who is gone sleeps");
  }

 private:
  // Of a stream that has storage.
  struct Kept {
    std::size_t of = 0;  // the default pool, or the private one
    std::uint64_t stream = 0;
    bool is_over = false;
    bool has_end = false;
    std::weak_ptr<int> end;
  };
  struct Guest {
    StreamHeap* of;
    bool is_live;
  };

  // Never looked at.
  static PrivatePool* home() {
    static int place;
    return reinterpret_cast<PrivatePool*>(&place);
  }
  static StreamIdentity stream_of(std::uint64_t number) {
    if (number == 0) return {};
    return {reinterpret_cast<CUstream>(number * 64), number * 5 % 83};
  }

  void change(std::uint64_t kind, std::uint64_t more, std::uint64_t text) {
    const std::size_t of = text / kStreams % 4 == 3 ? 1 : 0;
    const std::uint64_t number = text % kStreams;
    if (kind < 3)
      request(of, number, more % 4 == 3 ? kStreams : more % 4, 1 + more / 4);
    else if (kind == 3)
      serve_alone(number, more);
    else if (kind == 4)
      request(of, number, more % 4, 100 * (1 + more / 4));
    else if (kind == 5)
      refer(text, more % 2 == 0);
    else if (kind == 6)
      for (std::uint64_t i = 0; i <= more * more / 2; ++i) end(i == 0 ? of : 0, (number + i) % kStreams, more % 2 == 0);
    else if (kind == 7)
      drop(of, more % 2 == 0);
    else if (kind < 10)
      add_pages(text, more);
    else if (kind == 10)
      change_run(text, more);
    else if (kind == 11)
      mark(of, number);
    else
      change_blocks(kind, more, text);
  }

  [[nodiscard]] StreamHeap* heap_of(std::size_t of, std::uint64_t number) const {
    const auto place = streams_[of].find(stream_of(number).id);
    return place == streams_[of].end() ? nullptr : place->second;
  }
  // Of whichever stream that is not over; null where there is none.
  [[nodiscard]] StreamHeap* any_heap(std::uint64_t text) const {
    const auto& streams = streams_[streams_[1].empty() || text % 4 != 3 ? 0 : 1];
    if (streams.empty()) return nullptr;
    return std::next(streams.begin(), static_cast<std::ptrdiff_t>(text % streams.size()))->second;
  }

  // So many streams in turn, each so many times.
  void request(std::size_t of, std::uint64_t first, std::uint64_t count, std::uint64_t times) {
    for (std::uint64_t i = 0; i <= count; ++i) {
      StreamHeap& heap = find_or_make(of, (first + i) % kStreams);
      for (std::uint64_t time = 0; time < times && requests_left_ != 0; ++time, --requests_left_) {
        waking_.request(heap);
        arena_.note_request(heap);
      }
    }
  }
  StreamHeap& find_or_make(std::size_t of, std::uint64_t number) {
    const StreamIdentity stream = stream_of(number);
    StreamHeap* const known = heap_of(of, number);
    StreamHeap& heap = pools_[of].of(stream);
    if (known != nullptr) {
      require(&heap == known, "a stream's pools stay its own");
      return heap;
    }
    require(heaps_.emplace(&heap, Kept{of, stream.id, false, false, {}}).second, "storage is one stream's");
    require(heap.stream.id == stream.id && heap.stream.handle == stream.handle, "whose it is");
    require(heap.home == (of == 0 ? nullptr : home()), "in which pool");
    require(heap.references == 0 && !heap.is_ended && heap.end.use_count() == 0,
            "nothing is left of who had it before");
    require(!heap.has_hidden_segments && !heap.lacks_addresses, "nor what was known of its memory");
    streams_[of][stream.id] = &heap;
    if (of == 0) latest_[(stream.id + 2) % latest_.size()] = &heap;
    waking_.begin(heap);
    ever_.insert(&heap);
    most_ = std::max(most_, heaps_.size());
    return heap;
  }
  void serve_alone(std::uint64_t number, std::uint64_t count) {
    for (std::uint64_t i = 0; i <= count * 5; ++i)
      if (StreamHeap* const heap = heap_of(0, (number + i) % kStreams))
        if (waking_.serve_alone(*heap)) heap->has_served_alone = true;
  }
  void refer(std::uint64_t text, bool is_more) {
    StreamHeap* const heap = any_heap(text);
    if (heap == nullptr) return;
    auto& held = references_[heap];
    held += is_more ? 1 : 0;
    if (is_more) ++heap->references;
    if (is_more || held == 0) return;
    --held;
    --heap->references;
  }
  void end(std::size_t of, std::uint64_t number, bool has_end) {
    auto owned = has_end ? std::make_shared<int>() : nullptr;
    StreamHeap* const heap = heap_of(of, number);
    if (heap != nullptr) {
      Kept& kept = heaps_.at(heap);
      kept.is_over = true;
      kept.has_end = has_end;
      kept.end = owned;
      forget_look_ups(*heap);
      over_[of].push_back(heap);
    }
    pools_[of].end_stream(stream_of(number).id, std::shared_ptr<StreamEnd>(std::move(owned), nullptr));
  }
  void forget_look_ups(StreamHeap& heap) {
    const Kept& kept = heaps_.at(&heap);
    streams_[kept.of].erase(kept.stream);
    StreamHeap*& latest = latest_[(kept.stream + 2) % latest_.size()];
    if (latest == &heap) latest = nullptr;
    waking_.end(heap);
  }
  void drop(std::size_t of, bool only_ended) {
    std::vector<std::weak_ptr<int>> ends;
    for (auto entry = heaps_.begin(); entry != heaps_.end();) {
      auto& [heap, kept] = *entry;
      const bool stays = kept.of != of || heap->references != 0 || (only_ended && !kept.is_over);
      if (stays) {
        ++entry;
        continue;
      }
      if (!kept.is_over) forget_look_ups(*heap);
      ends.push_back(kept.end);
      references_.erase(heap);
      entry = heaps_.erase(entry);
    }
    std::erase_if(over_[of], [this](StreamHeap* heap) { return !heaps_.contains(heap); });
    over_kept_[of] = over_[of].size();
    if (only_ended)
      pools_[of].drop_ended();
    else
      pools_[of].drop_unreferenced();
    for (const std::weak_ptr<int>& end : ends) require(end.expired(), "nothing holds the last work of who is gone");
  }
  // What is to go with the stream.
  void mark(std::size_t of, std::uint64_t number) {
    if (StreamHeap* const heap = heap_of(of, number)) heap->has_hidden_segments = heap->lacks_addresses = true;
  }

  // Pages are far apart or side by side.
  static std::uint64_t address_of(std::uint64_t page) { return (1 + page) * kPage; }
  [[nodiscard]] StreamHeap* by_page(std::uint64_t address) const {
    const auto place = pages_.find(address / kPage);
    return place == pages_.end() ? nullptr : place->second;
  }
  // No live block lies there.
  [[nodiscard]] bool is_vacant(std::uint64_t address, std::uint64_t bytes) const {
    const auto block = live_.lower_bound(address / kPage * kPage);
    return block == live_.end() || block->first >= address + bytes;
  }
  void add_pages(std::uint64_t text, std::uint64_t more) {
    StreamHeap* const owner = any_heap(text / kPages + more);
    const std::uint64_t page = text % kPages;
    Segment segment;
    segment.address = address_of(page);
    segment.bytes = std::min(1 + more % 4, kPages - page) * kPage;
    segment.owner = owner;
    const bool is_free = std::all_of(runs_.begin(), runs_.end(), [&](const Segment& run) {
      return run.end() <= segment.address || segment.end() <= run.address;
    });
    if (owner == nullptr || !is_free || !is_vacant(segment.address, segment.bytes)) return;
    if (more / 4 == 3) return refuse_pages(segment);
    // Of pages that are not there.
    if (more / 8 == 1) arena_.remove_pages(segment.address, segment.bytes);
    require(more % 2 == 0 ? arena_.add_pages(segment) : arena_.add_pages(segment.address, segment.bytes, *owner),
            "whole pages are added");
    ++owner->references;
    runs_.push_back(segment);
    put(segment, owner);
  }
  void refuse_pages(Segment segment) {
    segment.bytes -= kPage / 2;
    require(!arena_.add_pages(segment), "others may lie in the last page");
    segment.bytes += kPage / 2;
    segment.address += kPage / 2;
    require(!arena_.add_pages(segment), "others may lie in the first");
  }
  void put(const Segment& segment, StreamHeap* owner) {
    for (std::uint64_t page = segment.address / kPage; page < segment.end() / kPage; ++page)
      if (owner != nullptr)
        pages_[page] = owner;
      else
        pages_.erase(page);
  }
  void change_run(std::uint64_t text, std::uint64_t more) {
    if (runs_.empty()) return;
    Segment& run = runs_[text % runs_.size()];
    if (!is_vacant(run.address, run.bytes)) return;
    StreamHeap* const owner = any_heap(text / 4);
    if (more % 4 < 2) return remove_pages(run);
    if (more % 4 == 2) {
      arena_.remove_pages(run);
    } else if (owner != nullptr) {
      --run.owner->references;
      run.owner = owner;
      ++owner->references;
    }
    arena_.put_pages(run);
    put(run, run.owner);
  }
  void remove_pages(Segment& run) {
    arena_.remove_pages(run);
    --run.owner->references;
    put(run, nullptr);
    runs_.erase(runs_.begin() + (&run - runs_.data()));
  }

  // One, or several side by side, as many as there is room for.
  void change_blocks(std::uint64_t kind, std::uint64_t more, std::uint64_t text) {
    const std::uint64_t first = address_of(0) + text % (kPages * kBlocksOfPage) * (kPage / kBlocksOfPage);
    const std::uint64_t end = std::min(first + (1 + more) * (kPage / kBlocksOfPage), address_of(kPages));
    StreamHeap* const heap = any_heap(text / 8 + more);
    for (std::uint64_t address = first; address < end; address += kPage / kBlocksOfPage) {
      if (kind < 14) add_block(address, heap, kind == 12);
      if (kind >= 14 || (more % 4 == 0 && kind == 12)) remove_block(address);
      compare_address(address);
    }
  }
  [[nodiscard]] bool has_room() const {
    // Of an address that nobody knows.
    const bool has_room = arena_.has_room_for_block(std::uint64_t{1} << 50, *ever_heap());
    require(has_room || room_ == 0, "there is the room that was made");
    return has_room;
  }
  [[nodiscard]] const StreamHeap* ever_heap() const { return *ever_.begin(); }
  void make_room() {
    const bool had_room = has_room();
    arena_.make_room_for_guest();
    if (had_room) return;
    std::erase_if(guests_, [](const auto& guest) { return !guest.second.is_live; });
    room_ = guests_.size() + 1;  // as many again
    require(has_room(), "there is room for one more");
  }
  void add_block(std::uint64_t address, StreamHeap* heap, bool makes_room) {
    if (heap == nullptr || live_.contains(address)) return;
    if (makes_room) make_room();
    const bool is_at_home = by_page(address) == heap;
    const bool is_known = guests_.contains(address);
    const bool can_be_found = has_room() || is_at_home || is_known;
    require(arena_.has_room_for_block(address, *heap) == can_be_found, "which blocks would be found");
    if (!can_be_found) return;
    arena_.add_block(address, *heap);
    ++heap->references;
    live_[address] = heap;
    if (is_at_home) return;
    guests_[address] = {heap, true};
    room_ -= is_known ? 0 : std::min(room_, std::size_t{1});
  }
  void remove_block(std::uint64_t address) {
    const auto place = live_.find(address);
    if (place == live_.end()) return;
    StreamHeap* const heap = place->second;
    live_.erase(place);
    arena_.remove_block(address, *heap);
    --heap->references;
    if (by_page(address) != heap) guests_[address].is_live = false;
  }

  void compare() {
    for (std::size_t of : {0, 1}) compare_pools(of);
    for (std::uint64_t number = 0; number < kStreams; ++number) compare_stream(number);
    for (const auto& [heap, kept] : heaps_) {
      waking_.compare(*heap);
      require(heap->is_ended == kept.is_over, "which streams are over");
      require((heap->end.use_count() != 0) == kept.has_end && (!kept.has_end || kept.end.use_count() == 1),
              "the last work of a stream that is over is held");
    }
    require(ever_.size() <= most_ + 7, "storage is used again");
    require(mutex_.streams().capacity() >= std::min(most_, AwakeStreams::kMost), "to wake asks for nothing");
    for (std::uint64_t page = 0; page <= kPages; ++page) {
      require(arena_.find_by_page(page * kPage + kPage / 2) == by_page(page * kPage), "whose a page is");
      require(arena_.find_recent_by_page(page * kPage) == by_page(page * kPage), "whose it is at once");
    }
    compare_guests();
  }
  void compare_stream(std::uint64_t number) const {
    const StreamIdentity stream = stream_of(number);
    for (std::size_t of : {0, 1}) {
      require(pools_[of].knows(stream.id) == (heap_of(of, number) != nullptr), "who has pools");
      require(pools_[of].has_ended_streams() == !over_[of].empty(), "whether any is over");
      const bool are_many = over_[of].size() > over_kept_[of] && over_[of].size() - over_kept_[of] > over_kept_[of] + 8;
      require(pools_[of].has_many_ended() == are_many, "whether many ended since it was looked");
    }
    StreamHeap* const heap = heap_of(0, number);
    require(arena_.find(stream) == heap, "whom a stream's look-up finds");
    StreamHeap* const latest = latest_[(stream.id + 2) % latest_.size()];
    require(arena_.find_recent(stream) == (latest == heap ? heap : nullptr), "whom it finds at once");
  }
  void compare_pools(std::size_t of) const {
    std::vector<const StreamHeap*> expected;
    for (const auto& [id, heap] : streams_[of]) expected.push_back(heap);
    expected.insert(expected.end(), over_[of].begin(), over_[of].end());
    std::vector<const StreamHeap*> all;
    pools_[of].for_each([&](const StreamHeap& heap) { all.push_back(&heap); });
    require(all == expected, "all streams by their ids, and those that are over in their order");
    all.clear();
    pools_[of].for_each_ended([&](const StreamHeap& heap) { all.push_back(&heap); });
    require(std::equal(all.begin(), all.end(), over_[of].begin(), over_[of].end()), "those that are over");
  }
  void compare_guests() const {
    std::map<std::uint64_t, std::pair<StreamHeap*, bool>> expected;
    for (const auto& [address, guest] : guests_) expected[address] = {guest.of, guest.is_live};
    std::map<std::uint64_t, std::pair<StreamHeap*, bool>> all;
    arena_.for_each_guest([&](std::uint64_t address, const StreamHeap::Guest& guest) {
      require(all.insert({address, {guest.of, guest.is_live}}).second, "a guest is known once");
    });
    require(all == expected, "of which addresses something is known, and what");
  }
  void compare_address(std::uint64_t address) const {
    const auto known = guests_.find(address);
    const bool is_known = known != guests_.end();
    const StreamHeap::Guest* const guest = arena_.find_guest(address);
    require((guest != nullptr) == is_known, "whether a guest began there");
    require(!is_known || (guest->of == known->second.of && guest->is_live == known->second.is_live), "whose it was");
    require(arena_.look_for_guest(address) == guest, "nothing is just being changed");
    const auto block = live_.find(address);
    StreamHeap* const found = arena_.find_by_address(address);
    require(block == live_.end() ? found == by_page(address) : found == block->second, "whose block may be there");
  }

  IdleHeap idle_;
  HeapMutex mutex_{idle_.heap};
  Recorder recorder_;
  StreamHeapArena arena_{mutex_, recorder_};
  std::array<StreamPools, 2> pools_{StreamPools(arena_), StreamPools(arena_, home())};
  PlainWaking waking_;
  std::uint64_t steps_ = 0;
  std::uint64_t requests_left_ = 8'000;
  std::map<StreamHeap*, Kept> heaps_;
  std::array<std::map<std::uint64_t, StreamHeap*>, 2> streams_;  // by id; of those that are not over
  std::array<std::vector<StreamHeap*>, 2> over_;                 // in their order
  std::array<std::size_t, 2> over_kept_{};                       // when it was looked last
  std::array<StreamHeap*, 16> latest_{};                         // by remainder
  std::map<StreamHeap*, std::size_t> references_;                // beside those of pages and blocks
  HeapSet ever_;
  std::size_t most_ = 0;  // at a time
  std::vector<Segment> runs_;
  std::map<std::uint64_t, StreamHeap*> pages_;
  std::map<std::uint64_t, StreamHeap*> live_;  // blocks by address
  std::map<std::uint64_t, Guest> guests_;      // live ones, and what is known of others
  std::size_t room_ = 0;                       // at least, for guests
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program program;
  for (Steps steps(data, size); steps.more();) program.step(steps);
  program.finish();
  return 0;
}
