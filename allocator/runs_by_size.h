#pragma once

// Free runs by stream, and of a stream by size and then address.
//
// Complexity: as SortedChunks. Not thread-safe.

#include <cstddef>
#include <cstdint>

#include "allocator/free_run.h"
#include "allocator/page_size.h"
#include "allocator/sorted_chunks.h"

namespace cistern {

class RunsBySize {
 public:
  void provide(std::size_t runs) { ranks_.provide(runs); }
  [[nodiscard]] bool has_room_for(std::size_t runs) const noexcept { return ranks_.has_room_for(runs); }
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  // Requires: it is in one arena, and no run of the stream begins there. Throws std::bad_alloc where there is no room,
  // unchanged.
  void add(const FreeRun& run) { ranks_.insert(rank_of(run)); }
  // Requires: it is there.
  void remove(const FreeRun& run) noexcept { ranks_.erase(ranks_.lower_bound(rank_of(run))); }
  // The run is another one of its stream now. Requires: it is there, and the other is not.
  void change(const FreeRun& run, const FreeRun& to) noexcept {
    ranks_.change(ranks_.lower_bound(rank_of(run)), rank_of(to));
  }
  [[nodiscard]] bool contains(const FreeRun& run) const { return ranks_.contains(rank_of(run)); }
  // Calls visit(FreeRun) for the stream's runs of at least so many sectors, as long as it returns true.
  template <class Visit>
  void for_each_from(StreamNumber stream, Sectors sectors, Visit&& visit) const {
    if (sectors > static_cast<Sectors>(kLargest)) return;
    auto at = ranks_.lower_bound(rank_of({0, sectors, stream}));
    for (; at != ranks_.end(); at = ranks_.next(at)) {
      const FreeRun run = run_of(ranks_[at]);
      if (run.stream != stream || !visit(run)) return;
    }
  }
  // Calls visit(FreeRun) for all, as they are found. Throws std::logic_error where the index is not in order.
  template <class Visit>
  void audit(Visit&& visit) const {
    ranks_.audit();
    for (auto at = ranks_.begin(); at != ranks_.end(); at = ranks_.next(at)) visit(run_of(ranks_[at]));
  }

 private:
  // One number is compared without a jump, which nothing could foresee. A run lies in one arena.
  __extension__ using Rank = unsigned __int128;
  static constexpr std::uint64_t kLargest = (std::uint64_t{1} << kArenaBits) - 1;
  static constexpr std::uint64_t kLast = (std::uint64_t{1} << kAddressBits) - 1;
  static_assert(kArenaBits + kAddressBits + 32 <= 128);
  [[nodiscard]] static Rank rank_of(const FreeRun& run) {
    return Rank{static_cast<std::uint32_t>(run.stream)} << (kArenaBits + kAddressBits) |
           Rank{static_cast<std::uint64_t>(run.sectors)} << kAddressBits | static_cast<std::uint64_t>(run.address);
  }
  [[nodiscard]] static FreeRun run_of(Rank rank) {
    return {static_cast<Sectors>(static_cast<std::uint64_t>(rank) & kLast),
            static_cast<Sectors>(static_cast<std::uint64_t>(rank >> kAddressBits) & kLargest),
            static_cast<StreamNumber>(static_cast<std::uint32_t>(rank >> (kArenaBits + kAddressBits)))};
  }
  struct ItsOwn {
    [[nodiscard]] Rank operator()(const Rank& rank) const { return rank; }
  };

  SortedChunks<Rank, ItsOwn> ranks_;
};

}  // namespace cistern
