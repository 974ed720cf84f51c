#pragma once

// Free runs by stream, and of a stream by size and then address.
//
// Complexity: as SortedChunks. Not thread-safe.

#include <cstddef>
#include <cstdint>

#include "allocator/free_run.h"
#include "allocator/sorted_chunks.h"

namespace cistern {

class RunsBySize {
 public:
  void provide(std::size_t runs) { ranks_.provide(runs); }
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  // Requires: no run of the stream begins there. Throws std::bad_alloc where there is no room, unchanged.
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
    auto at = ranks_.lower_bound(rank_of({0, sectors, stream}));
    for (; at != ranks_.end(); at = ranks_.next(at)) {
      const FreeRun run = run_of(ranks_[at]);
      if (run.stream != stream || !visit(run)) return;
    }
  }
  void audit() const { ranks_.audit(); }

 private:
  // One number is compared without a jump, which nothing could foresee. Addresses and sizes are below 2^44 sectors,
  // eight pebibytes.
  __extension__ using Rank = unsigned __int128;
  static constexpr unsigned kBits = 44;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;
  [[nodiscard]] static Rank rank_of(const FreeRun& run) {
    return Rank{static_cast<std::uint32_t>(run.stream)} << 2 * kBits |
           Rank{static_cast<std::uint64_t>(run.sectors)} << kBits | static_cast<std::uint64_t>(run.address);
  }
  [[nodiscard]] static FreeRun run_of(Rank rank) {
    return {static_cast<Sectors>(static_cast<std::uint64_t>(rank) & kMask),
            static_cast<Sectors>(static_cast<std::uint64_t>(rank >> kBits) & kMask),
            static_cast<StreamNumber>(static_cast<std::uint32_t>(rank >> 2 * kBits))};
  }
  struct ItsOwn {
    [[nodiscard]] Rank operator()(const Rank& rank) const { return rank; }
  };

  SortedChunks<Rank, ItsOwn> ranks_;
};

}  // namespace cistern
