#pragma once

// Free runs by stream, and of a stream by size and then address.
//
// A stream's few runs are one tree. Once more were there when its bins were to be provided, they are parted into these:
// sizes below 64 KiB have one each, and from there 64 between a power of two and the next. A bit a bin tells which has
// runs, and in it they are a tree, mostly of a few. So runs of other sizes cost nothing. The bins of a stream take 5.4
// KiB of host memory. Complexity: O(log n) expected in the runs of a tree to add one and to find the first, and O(1)
// expected to remove one and to go on. Not thread-safe.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/bit_tree.h"
#include "allocator/free_run.h"
#include "allocator/page_size.h"
#include "allocator/run_tree.h"

namespace cistern {

class RunsBySize {
 public:
  explicit RunsBySize(RunNodes& nodes) : nodes_(nodes) {}
  RunsBySize(const RunsBySize&) = delete;
  RunsBySize& operator=(const RunsBySize&) = delete;

  // So many are worth no bins.
  static constexpr std::size_t kFew = 32;

  // The stream's runs can be kept. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream) {
    if (streams_.size() <= static_cast<std::size_t>(stream)) streams_.resize(static_cast<std::size_t>(stream) + 1);
  }
  // If it has more than few runs now it has bins from here on. Throws std::bad_alloc, unchanged. O(1), and O(n log n)
  // once. Requires: add_stream.
  void provide_bins(StreamNumber stream) {
    if (const OfStream& its = of(stream); its.runs > kFew && its.bins == nullptr) part(stream);
  }
  // Requires: its stream's runs can be kept, and it is not here.
  void add(RunNumber number) noexcept {
    const RunNode& run = nodes_[number];
    OfStream& its = of(run.stream);
    ++its.runs;
    if (its.bins == nullptr) return Tree::insert(nodes_, its.all, number);
    add(*its.bins, number);
  }
  // Requires: it is here.
  void remove(RunNumber number) noexcept {
    const RunNode& run = nodes_[number];
    OfStream& its = of(run.stream);
    --its.runs;
    if (its.bins == nullptr) return Tree::erase(nodes_, its.all, number);
    Bins& bins = *its.bins;
    const std::size_t bin = bin_of(run.sectors);
    Tree::erase(nodes_, bins.roots[bin], number);
    if (bins.roots[bin] == kNoRun) bins.has.clear(bin);
  }
  // Whether it is where it would be with so many sectors, wherever it began.
  [[nodiscard]] bool stays(const RunNode& run, Sectors sectors) const noexcept {
    return Tree::is_alone(run) && (of(run.stream).bins == nullptr || bin_of(run.sectors) == bin_of(sectors));
  }
  // Calls visit(number, const RunNode&) for the stream's runs of at least so many sectors, as long as it returns true.
  template <class Visit>
  void for_each_from(StreamNumber stream, Sectors sectors, Visit&& visit) const {
    if (static_cast<std::size_t>(stream) >= streams_.size()) return;
    const Bins* const bins = of(stream).bins.get();
    std::size_t bin = bin_of(sectors);
    RunNumber at = Tree::first_behind(nodes_, bins == nullptr ? of(stream).all : bins->roots[bin],
                                      [sectors](const RunNode& run) { return run.sectors < sectors; });
    for (;;) {
      if (at == kNoRun) {
        if (bins == nullptr) return;
        bin = bins->has.next(bin + 1);
        if (bin == Bits::kNone) return;
        at = Tree::first(nodes_, bins->roots[bin]);
      }
      if (!visit(at, nodes_[at])) return;
      at = Tree::next(nodes_, at);
    }
  }
  [[nodiscard]] bool has_any_of(StreamNumber stream) const noexcept {
    const auto index = static_cast<std::size_t>(stream);
    return index < streams_.size() && streams_[index].runs != 0;
  }
  // Throws std::logic_error where the index is not in order. Returns how many runs there are. O(n).
  [[nodiscard]] std::size_t audit() const;

 private:
  static constexpr unsigned kPartsBits = 6;
  static constexpr std::size_t kBins = 1344;  // what is larger than 31.75 GiB is in the last
  using Bits = BitTree<2>;
  static_assert(kBins <= Bits::kMost);
  struct Bins {
    Bins() {
      roots.fill(kNoRun);
      has.provide(kBins);
    }
    std::array<RunNumber, kBins> roots;
    Bits has;
  };
  struct OfStream {
    RunNumber all = kNoRun;  // the tree of them, without bins
    std::size_t runs = 0;
    std::unique_ptr<Bins> bins;
  };
  [[nodiscard]] static std::size_t bin_of(Sectors sectors) noexcept {
    const auto units = static_cast<std::size_t>(sectors);
    const auto bits = static_cast<unsigned>(std::bit_width(units | std::size_t{1} << kPartsBits));
    const unsigned octave = bits - 1 - kPartsBits;
    return std::min((std::size_t{octave} << kPartsBits) + (units >> octave), kBins - 1);
  }
  // Size and address as one number: comparing two of them takes no jump, which nothing could foresee.
  __extension__ using Rank = unsigned __int128;
  [[nodiscard]] static Rank rank_of(const RunNode& run) noexcept {
    return Rank{static_cast<std::uint64_t>(run.sectors)} << 64 | static_cast<std::uint64_t>(run.address);
  }
  using Tree =
      RunTree<&RunNode::by_size, [](const RunNode& a, const RunNode& b) noexcept { return rank_of(a) < rank_of(b); }>;

  void add(Bins& bins, RunNumber number) noexcept {
    const std::size_t bin = bin_of(nodes_[number].sectors);
    bins.has.set(bin);
    Tree::insert(nodes_, bins.roots[bin], number);
  }
  [[gnu::noinline]] void part(StreamNumber stream);
  [[nodiscard]] OfStream& of(StreamNumber stream) noexcept { return streams_[static_cast<std::size_t>(stream)]; }
  [[nodiscard]] const OfStream& of(StreamNumber stream) const noexcept {
    return streams_[static_cast<std::size_t>(stream)];
  }

  RunNodes& nodes_;
  std::vector<OfStream> streams_;
};

}  // namespace cistern
