#pragma once

// Whether a stream's requests look at its free runs before the places that are remembered: the log's, and windows.
//
// Remembered places make a step that comes again one without driver calls. But they lie where pages were gathered once,
// and who takes one brings its pages there, out of the runs that they were in. Where each step differs, runs so get
// ever shorter: what is not remembered finds none, gathers pages for one more place, and it never ends. So a gather is
// put down to remembered places, as far as requests since the last one followed any. When that comes to eight times
// what there is, free runs go first. If gathers come to as much then, they did not help: places go first again, and
// twice as much is needed for the next change.
// Complexity: O(1).
// Not thread-safe: guarded by the heap's lock, or by a stream's turn in pages (StreamHits::turn_in_pages).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/free_run.h"

namespace cistern {

class FitsFirst {
 public:
  // What the stream does can be noted. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream) {
    if (streams_.size() <= static_cast<std::size_t>(stream)) streams_.resize(static_cast<std::size_t>(stream) + 1);
  }
  [[nodiscard]] bool of(StreamNumber stream) const noexcept {
    const auto index = static_cast<std::size_t>(stream);
    return index < streams_.size() && streams_[index].fits_go_first;
  }
  [[nodiscard]] bool of_any() const noexcept { return with_fits_ > 0; }
  // So many requests followed no remembered place, and gathered nothing. Requires: add_stream.
  void passed(StreamNumber stream, std::int64_t requests = 1) noexcept {
    streams_[static_cast<std::size_t>(stream)].passed += requests;
  }
  // A request gathered so many handles that there were, of `pages` in all; `came` had come before. Requires:
  // add_stream.
  void gathered(StreamNumber stream, std::int64_t handles, std::int64_t came, std::int64_t pages) noexcept {
    Stream& of = streams_[static_cast<std::size_t>(stream)];
    const std::int64_t all = came - std::exchange(of.came, came + 1);
    const std::int64_t followed = std::clamp<std::int64_t>(all - std::exchange(of.passed, 0), 0, all);
    of.blame += handles * (of.fits_go_first ? kWhole : all == 0 ? 0 : kWhole * followed / all);
    if (of.blame <= kWhole * pages * of.patience) return;
    of.blame = 0;
    of.fits_go_first = !of.fits_go_first;
    with_fits_ += of.fits_go_first ? 1 : -1;
    if (!of.fits_go_first) of.patience = std::min(2 * of.patience, kMostPatience);
  }
  // Its number is to be another's.
  void forget(StreamNumber stream) noexcept {
    const auto index = static_cast<std::size_t>(stream);
    if (index >= streams_.size()) return;
    if (of(stream)) --with_fits_;
    const std::int64_t came = streams_[index].came;
    streams_[index] = Stream{.came = came};
  }

 private:
  static constexpr std::int64_t kWhole = 1024;
  // Of the traces studied those whose steps come again put up to 4 times what there is down to places in their first
  // pass, and two of several streams made more calls, and one in its third pass, where 2 to 4 times was enough.
  static constexpr std::int64_t kPatience = 8;
  static constexpr std::int64_t kMostPatience = std::int64_t{1} << 20;

  struct Stream {
    std::int64_t came = 0;    // requests, up to the last gather
    std::int64_t passed = 0;  // of those since
    std::int64_t blame = 0;   // handles, by kWhole each
    std::int64_t patience = kPatience;
    bool fits_go_first = false;
  };

  std::vector<Stream> streams_;
  std::int64_t with_fits_ = 0;
};

}  // namespace cistern
