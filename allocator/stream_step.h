#pragma once

// StreamStep: what happened to a block of a stream, in 16 bytes, and what it adds to the sums that tell states of the
// stream apart (Recurrence). All are O(1).

#include "stats/block_ledger.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace cistern {

class StreamStep {
 public:
  enum class Kind : std::uint8_t {
    allocation,
    free,  // at once
    use,   // another stream uses it: the first since it was handed out
    wait,  // freed, behind events on all those that used it
    done,  // and these came
  };
  struct Of {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t requested = 0;
    PoolKind pool = PoolKind::small;
  };

  StreamStep() = default;
  // `splits`: the change that came with it.
  StreamStep(Kind kind, const Of& block, const InactiveSplitChange& splits) noexcept
      : where_(block.address << kAddressShift | block.bytes / kUnit),
        what_(block.requested | size_of(splits) / kUnit << kSplitsShift |
              static_cast<std::uint64_t>(splits.bytes < 0) << kFellShift |
              static_cast<std::uint64_t>(splits.count + kMostJoined) << kCountShift |
              static_cast<std::uint64_t>(block.pool) << kPoolShift | static_cast<std::uint64_t>(kind) << kKindShift) {}
  // Whether such a step can be told. What is larger is no part of a recurrence.
  [[nodiscard]] static bool can_tell(const Of& block, const InactiveSplitChange& splits) noexcept {
    return ((block.address >> kAddressBits) | (block.bytes >> kMostBits) | (size_of(splits) >> kMostBits)) == 0;
  }

  [[nodiscard]] bool is_allocation_of(std::uint64_t requested) const noexcept {
    static_assert(Kind::allocation == Kind{0});
    return requested <= kRequestedMask && (what_ & (kRequestedMask | kKindMask)) == requested;
  }
  [[nodiscard]] bool is(Kind kind, std::uint64_t address) const noexcept {
    return (where_ & ~kUnitsMask) == address << kAddressShift && this->kind() == kind;
  }
  [[nodiscard]] Kind kind() const noexcept { return static_cast<Kind>(what_ >> kKindShift); }
  [[nodiscard]] std::uint64_t address() const noexcept { return where_ >> kUnitsBits << (kUnitsBits - kAddressShift); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return (where_ & kUnitsMask) * kUnit; }
  [[nodiscard]] std::uint64_t requested() const noexcept { return what_ & kRequestedMask; }
  [[nodiscard]] PoolKind pool() const noexcept { return static_cast<PoolKind>(what_ >> kPoolShift & 1); }
  [[nodiscard]] InactiveSplitChange splits() const noexcept {
    const auto size = static_cast<std::int64_t>((what_ >> kSplitsShift & kUnitsMask) * kUnit);
    const bool fell = (what_ >> kFellShift & 1) != 0;
    return {static_cast<std::int64_t>(what_ >> kCountShift & kCountMask) - kMostJoined, fell ? -size : size};
  }
  // Of a block, the same for all its steps. Rough: other blocks may make the same sum now and then.
  [[nodiscard]] static std::uint64_t rough_mark_of(std::uint64_t address, std::uint64_t requested) noexcept {
    return address / kUnit + (requested << (64 - kUnitsBits));
  }
  [[nodiscard]] std::uint64_t rough_mark() const noexcept {
    return (where_ >> kUnitsBits) + (what_ << (64 - kUnitsBits));
  }
  [[nodiscard]] static std::uint64_t mark_of(const Of& block) noexcept {
    std::uint64_t bits = (block.address << kAddressShift ^ block.bytes) * 0x9E3779B97F4A7C15ULL +
                         block.requested * 0xC2B2AE3D27D4EB4FULL;
    bits = (bits ^ bits >> 32) * 0xBF58476D1CE4E5B9ULL;
    return bits ^ bits >> 29;
  }
  // How often the step adds the block's mark to the sum that is the state. A block that is in use alone counts once;
  // used by others, or waiting, otherwise.
  [[nodiscard]] static constexpr std::uint64_t times(Kind kind) noexcept {
    constexpr std::array<std::int8_t, 5> kTimes = {1, -1, 2, 2, -5};
    static_assert(kTimes[0] + kTimes[1] == 0 && kTimes[0] + kTimes[2] + kTimes[3] + kTimes[4] == 0);
    return static_cast<std::uint64_t>(std::int64_t{kTimes[static_cast<std::size_t>(kind)]});
  }
  // What the step adds to the sum.
  [[nodiscard]] static std::uint64_t change_by(Kind kind, const Of& block) noexcept {
    return mark_of(block) * times(kind);
  }
  [[nodiscard]] std::uint64_t change() const noexcept {
    return change_by(kind(), {address(), bytes(), requested(), pool()});
  }
  // Whether it is one of a block that other streams use.
  [[nodiscard]] static constexpr bool is_of_use(Kind kind) noexcept { return kind >= Kind::use; }
  friend bool operator==(const StreamStep&, const StreamStep&) = default;

 private:
  static constexpr std::uint64_t kUnit = 512;  // all addresses and sizes of blocks are multiples of it
  static constexpr unsigned kUnitsBits = 24;
  static constexpr std::uint64_t kUnitsMask = (std::uint64_t{1} << kUnitsBits) - 1;
  static constexpr unsigned kMostBits = 33;     // of bytes: 8 GiB less a unit
  static constexpr unsigned kAddressBits = 49;  // CUDA's addresses have 49 at most
  static constexpr unsigned kAddressShift = 64 - kAddressBits;
  static constexpr std::uint64_t kRequestedMask = (std::uint64_t{1} << kMostBits) - 1;
  static constexpr unsigned kSplitsShift = kMostBits;
  static constexpr unsigned kFellShift = kSplitsShift + kUnitsBits;
  static constexpr unsigned kCountShift = kFellShift + 1;
  static constexpr std::uint64_t kCountMask = 3;
  static constexpr std::int64_t kMostJoined = 2;  // inactive splits become one more at most, or so many fewer
  static constexpr unsigned kPoolShift = kCountShift + 2;
  static constexpr unsigned kKindShift = 61;
  static constexpr std::uint64_t kKindMask = ~std::uint64_t{0} << kKindShift;
  static_assert(kUnit == std::uint64_t{1} << (kMostBits - kUnitsBits) && kPoolShift + 1 == kKindShift);
  static_assert(kUnitsBits - kAddressShift == 9);

  [[nodiscard]] static std::uint64_t size_of(const InactiveSplitChange& splits) noexcept {
    return static_cast<std::uint64_t>(std::abs(splits.bytes));
  }

  // Not initialised: there are many, and each is written before it is read.
  std::uint64_t where_;  // from above: the address in units, the size in units
  std::uint64_t what_;   // from above: the kind, the pool, how splits changed, what was asked for
};

}  // namespace cistern
