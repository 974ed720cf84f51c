#pragma once

// The executable specification of the `classic` and `expandable` policies: naive, linear,
// obviously right.
//
// It knows neither pools nor trees nor locks: segments are vectors of blocks by address, and
// every search is a scan. An expandable segment is a whole address range, in which what is not
// mapped is a block, too. Addresses are predicted too, from a device that hands out the
// lowest free 2 MiB granules. Statistics are kept by the plain rules of the metric table.

#include <cistern/allocator.h>

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "reference_ledger.h"

namespace cistern::model {

struct ModelBlock {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;
  bool live = false;
  bool pending = false;
  std::set<int> users;           // streams recorded while it is live
  std::set<int> captured_users;  // of those, the ones recorded while captured, and not since
  int tag = 0;                   // of a block in use
  std::uint64_t freed = 0;       // the number of its free
  std::uint64_t free_since = 0;  // searches of its pool when it became free
  bool mapped = true;            // always, but in address ranges
  [[nodiscard]] bool free() const { return mapped && !live && !pending; }
};

struct ModelSegment {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  int stream = 0;
  bool small = false;
  std::vector<ModelBlock> blocks;
  int pool = 0;          // 0: the default pool
  std::size_t page = 0;  // of an address range; 0: a segment of the driver's own
  [[nodiscard]] bool expandable() const { return page != 0; }
  [[nodiscard]] bool is_split() const { return blocks.size() > 1; }
};

// A free that waits for a stream.
struct AwaitedFree {
  int stream = 0;
  std::size_t bytes = 0;
  std::uint64_t freed = 0;  // its number
};
// Where the addresses of ranges begin: those of other segments are lower.
inline constexpr std::uint64_t kFirstRange = std::uint64_t{1} << 50;

// A private pool: of captures, or a MemPool.
struct ModelPool {
  int uses = 0;
  bool is_mem_pool = false;
  bool use_on_oom = false;
  bool no_split = false;
  int parent = 0;
};

struct ModelRecording {
  int pool = 0;
  int stream = -1;  // whose requests it takes; -1: all
  bool by_guard = false;
};

class ReferenceAllocator {
 public:
  ReferenceAllocator(std::size_t capacity_bytes, const AllocatorOptions& options);

  // The predicted address relative to the device's first, or nothing: out of memory.
  std::optional<std::uint64_t> allocate(std::size_t bytes, int stream);
  void free(std::uint64_t address);
  void record_stream(std::uint64_t address, int stream);
  void empty_cache();
  void trim(std::size_t target_bytes);
  // Turns expandable segments on or off.
  void expand(bool on) { options_.policy = on ? Policy::expandable : Policy::classic; }
  // Private pools, by number.
  void begin(int pool, int stream);
  void end(int pool);
  void release_pool(int pool);
  void make_mem_pool(int pool, const ModelPool& settings);
  void drop_mem_pool(int pool) { take_use(pool); }
  void enter(int pool);
  void leave();
  std::optional<std::uint64_t> allocate_in(int pool, std::size_t bytes, int stream);
  [[nodiscard]] int uses(int pool) const { return pools_.count(pool) == 0 ? 0 : pools_.at(pool).uses; }
  // A captured stream queues no work.
  void capture(int stream) { captured_.insert(stream); }
  void end_capture(int stream) { captured_.erase(stream); }

  void reset_peaks();
  void reset_accumulated();

  // The device's side: work is queued on a stream, or all that is queued there is done.
  void occupy(int stream) { ++queued_[stream]; }
  void finish_work(int stream) { done_[stream] = queued_[stream]; }
  void step(int stream) { ++done_[stream]; }

  // What blocks are tagged with from now on, what changed since it was last asked, and who waits.
  void set_tag(int tag) { tag_ = tag; }
  [[nodiscard]] std::vector<Change> take_changes() { return std::exchange(changes_, {}); }
  [[nodiscard]] std::vector<AwaitedFree> awaited() const;

  [[nodiscard]] const MemoryStats& stats() const { return stats_; }
  [[nodiscard]] const std::list<ModelSegment>& segments() const { return segments_; }

 private:
  struct PendingEvent {
    int stream;
    std::uint64_t position;  // of the work it waits for
    std::uint64_t block;     // address
  };
  using Place = std::pair<std::list<ModelSegment>::iterator, std::size_t>;

  [[nodiscard]] std::size_t round(std::size_t bytes) const;
  [[nodiscard]] std::size_t segment_size(std::size_t rounded) const;
  std::optional<std::uint64_t> serve(int pool, std::size_t bytes, int stream);
  std::optional<Place> find_free(std::size_t rounded, int stream, bool small, int pool);
  std::optional<Place> find_overflow(std::size_t rounded, int stream, bool small, int pool);
  std::optional<Place> new_segment(std::size_t rounded, int stream, bool small, int pool);
  [[nodiscard]] int route(int stream) const;
  [[nodiscard]] bool follows_2_4() const { return options_.pytorch_rules == PytorchRules::v2_4; }
  [[nodiscard]] bool capturing() const;
  [[nodiscard]] bool gives_back(int pool) const { return pool == 0 || uses(pool) == 0; }
  void take_use(int pool);
  void release_leftovers();
  void record_put_off_frees();
  void queue_events(ModelBlock& block);
  std::uint64_t hand_out(Place place, std::size_t rounded, std::size_t requested);
  void complete_free(std::uint64_t address);
  void poll();
  void query_events();
  void flush();
  bool release_available(std::size_t rounded, int stream, bool small, int pool);
  void collect_garbage();
  // reference_ranges.cpp: expandable segments.
  using Segments = std::list<ModelSegment>;
  [[nodiscard]] bool expands(int pool) const;
  [[nodiscard]] std::size_t range_bytes(bool small) const;
  std::optional<Place> prefer_beside_ranges(std::vector<Place> candidates);
  std::optional<Place> grow(std::size_t rounded, int stream, bool small, int pool);
  std::optional<Place> find_room(std::size_t rounded, int stream, bool small, int pool);
  void add_range(int stream, bool small, int pool);
  void map(Segments::iterator range, std::size_t block, std::size_t bytes);
  template <class Chosen>
  void release_pages(Chosen chosen, std::size_t most);
  void release_pages_of_flush(bool waits);
  void release_pages_of_trim(std::size_t most);
  void drop_empty_ranges();
  void move_leftover_ranges();
  void release(std::list<ModelSegment>::iterator segment);
  [[nodiscard]] bool collects() const;
  Place locate(std::uint64_t address);
  std::vector<int> polling_order() const;
  void change(PoolStat MemoryStats::*stat, bool small, std::int64_t by, int tag = 0);
  void change(Stat MemoryStats::*stat, std::int64_t by);

  std::size_t capacity_;
  AllocatorOptions options_;
  std::size_t limit_ = kUnlimited;
  std::size_t held_ = 0;
  std::uint64_t searches_[2] = {0, 0};  // [small]
  std::list<ModelSegment> segments_;
  std::map<int, std::vector<PendingEvent>> pending_;  // by stream number
  std::map<int, std::uint64_t> queued_, done_;
  std::map<int, ModelPool> pools_;
  std::vector<ModelRecording> recordings_;  // oldest first
  std::set<int> captured_;
  std::vector<std::uint64_t> put_off_;  // freed during a capture
  bool leftovers_ = false;
  MemoryStats stats_;
  int tag_ = 0;
  std::uint64_t frees_ = 0;
  std::vector<Change> changes_;
};

}  // namespace cistern::model
