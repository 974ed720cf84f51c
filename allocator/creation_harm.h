#pragma once

// Which requests are worth a driver call to be placed well: those whose blocks are live when memory is created.
//
// A class is an eighth of an octave of sizes on one stream. Its harm is the share of its blocks during whose life
// memory was created, the last ones weighing more; a class that is not known yet has all of it.
// Room for a stream is address space, and pages come where its blocks end.
// Complexity: O(1).
// Not thread-safe: guarded by the heap's lock, or by a stream's turn in pages (StreamHits::turn_in_pages).

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/free_run.h"
#include "allocator/growing_table.h"
#include "allocator/page_size.h"

namespace cistern {

class CreationHarm {
 public:
  static constexpr std::size_t kClasses = 8 * 48;

  // The class of a size of at least one sector: floor(8 log2(sectors)).
  [[nodiscard]] static std::size_t class_of(Sectors sectors) noexcept {
    const auto bits = static_cast<std::uint64_t>(sectors);
    const auto octave = static_cast<std::size_t>(std::bit_width(bits)) - 1;
    const std::uint64_t scaled = octave <= kScale ? bits << (kScale - octave) : bits >> (octave - kScale);
    const std::size_t begun = kBegun[(scaled >> (kScale - kCellBits)) % kCells];
    const std::size_t part = begun + (scaled >= kRoots[begun + 1] ? 1 : 0);
    return std::min(kParts * octave + part, kClasses - 1);
  }

  // The stream's classes can be kept, so that `ended` needs no host memory. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream) { streams_.expect(static_cast<std::size_t>(stream) + 1); }
  // A block of this size ended.
  void ended(Sectors sectors, StreamNumber stream, bool memory_was_created) {
    ended_of_class(class_of(sectors), stream, memory_was_created);
  }
  // So many did, one after the other.
  void ended_of_class(std::size_t size_class, StreamNumber stream, bool memory_was_created, std::int64_t times = 1) {
    add_stream(stream);
    std::uint16_t& spared = streams_[static_cast<std::size_t>(stream)][size_class];
    constexpr std::int64_t kEnough = 64;  // after which what was before weighs next to nothing
    for (times = std::min(times, kEnough); times > 0; --times) spared = nearer(spared, memory_was_created ? 0 : kAll);
  }
  [[nodiscard]] double of(Sectors sectors, StreamNumber stream) const;

 private:
  // An octave has eight parts. Sizes are compared as fractions of so many bits with where parts begin, rounded up:
  // 2^(i/8), for i from 0 to 8.
  static constexpr std::size_t kParts = 8;
  static constexpr std::size_t kScale = 52;
  static constexpr std::array<std::uint64_t, kParts + 1> kRoots = {
      0x10'0000'0000'0000, 0x11'72B8'3C7D'517B, 0x13'06FE'0A31'B716, 0x14'BFDA'D536'2A28, 0x16'A09E'667F'3BCD,
      0x18'ACE5'422A'A0DC, 0x1A'E89F'995A'D3AE, 0x1D'5818'DCFB'A488, 0x20'0000'0000'0000};
  // Of each 64th of an octave, which part has begun where it begins. In none of them two begin.
  static constexpr std::size_t kCellBits = 6;
  static constexpr std::size_t kCells = std::size_t{1} << kCellBits;
  static constexpr std::array<std::uint8_t, kCells> kBegun = [] {
    std::array<std::uint8_t, kCells> begun{};
    for (std::size_t cell = 0, part = 0; cell < kCells; ++cell) {
      while (kRoots[part + 1] <= (kCells + cell) << (kScale - kCellBits)) ++part;
      begun[cell] = static_cast<std::uint8_t>(part);
    }
    return begun;
  }();

  // In parts of kAll: a floating-point number would become subnormal in the end, which takes a processor a hundred
  // times as long.
  static constexpr std::int32_t kAll = 1 << 15;
  static constexpr std::int32_t kLastsOfAll = 4;  // the last block weighs a quarter
  using Classes = std::array<std::uint16_t, kClasses>;

  // To the nearest.
  [[nodiscard]] static std::uint16_t nearer(std::int32_t spared, std::int32_t to) {
    const std::int32_t change = to - spared;
    const std::int32_t half = change < 0 ? -kLastsOfAll / 2 : kLastsOfAll / 2;
    return static_cast<std::uint16_t>(spared + (change + half) / kLastsOfAll);
  }

  // What each class lacks of all harm: 0 of those that are not known.
  GrowingTable<Classes> streams_;
};

}  // namespace cistern
