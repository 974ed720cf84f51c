#pragma once

// Where a request would be placed in what a snapshot shows: the allocator's own rules, asked about memory that
// is not there.
//
// Thread safety: values, and a function of its arguments.

#include <cistern/options.h>
#include <cistern/snapshot.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "tools/block_records.h"
#include "tools/recorded_pool.h"

namespace cistern {

struct PlacementRequest {
  std::size_t bytes = 0;  // below kTooLarge
  std::int64_t stream = 0;
  int device = 0;
  std::pair<std::int64_t, std::int64_t> pool_id{0, 0};
};

// Why free memory of the device does not serve: the first of these that holds.
enum class Unfit : std::uint8_t {
  other_pool,    // another pool's
  other_stream,  // another stream's
  other_kind,    // small requests' while the request is large, or the other way round
  not_cached,    // `direct` serves nothing from a cache
  expandable,    // in an expandable segment, while the policy is classic
  too_small,
  max_split_size,  // the best fit, on the other side of max_split_size from the request
  room_to_grow,    // before the block that serves by size, but with more room behind it in its expandable segment
  not_looked_at,   // large enough, but larger than the best fit, and only that is looked at
  pending,         // freed, and awaited by other streams
};
inline constexpr std::size_t kUnfitReasons = 10;
// In words.
[[nodiscard]] const char* to_string(Unfit reason) noexcept;

struct UnfitMemory {
  BlockFigures figures;  // requested_bytes: 0
  std::int64_t largest = 0;
  std::int64_t large_enough = 0;  // blocks
};

// What is handed out, and what of the block that it is cut from stays free behind it.
struct CutBlock {
  std::uint64_t segment = 0;
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::int64_t rest_bytes = 0;  // 0: it is taken whole
};

struct Placement {
  std::size_t rounded_bytes = 0;
  bool is_large = false;
  bool expands = false;               // the driver is asked for pages of an expandable segment, not for a segment
  SegmentGrowth growth;               // where it expands, and none serves
  std::size_t segment_bytes = 0;      // where it does not: that the driver would be asked for
  std::int64_t new_block_bytes = 0;   // cut from what the driver gives
  std::optional<CutBlock> served_by;  // nothing: the driver is asked
  std::int64_t candidates = 0;        // free blocks of the stream's pool that are large enough
  std::array<UnfitMemory, kUnfitReasons> unfit;
  // The largest free block of the stream's pool once every pending free is done.
  std::int64_t largest_without_pending = 0;
  // What a full flush gives back to the driver, pending frees done: segments of the default pool without a live block,
  // and of expandable ones the whole pages that are free.
  BlockFigures flushed;
  // The block that serves then, before the driver is asked once more, if research_after_flush is on.
  std::optional<std::int64_t> found_after_flush;

  [[nodiscard]] const UnfitMemory& operator[](Unfit reason) const { return unfit[static_cast<std::size_t>(reason)]; }
};

[[nodiscard]] Placement place(const Snapshot& snapshot, const AllocatorOptions& options,
                              const PlacementRequest& request);

}  // namespace cistern
