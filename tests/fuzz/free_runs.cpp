// Free runs beside an owner for each sector: bytes come and are taken in any pieces by several streams, and whatever is
// asked of the runs is counted sector by sector. And where in them a request fits best, beside all positions in turn.

#include "allocator/free_runs.h"

#include "allocator/tight_fit.h"
#include "tests/allocator/page_sizes.h"
#include "tests/allocator/plain_tight_fit.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace cistern {
namespace {

constexpr Sectors kSize = 512;
constexpr StreamNumber kStreams = 4;
constexpr StreamNumber kNobody = -1;
// Around an edge of regions, behind an arena that has none.
constexpr Sectors kBase = (Sectors{3} << kArenaBits) + (Sectors{1} << 20) - kSize / 2;

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps) { owners_.fill(kNobody); }

  void run() {
    while (steps_.more()) {
      step();
      compare_all();
      ask();
    }
    runs_.audit();
  }

 private:
  using Runs = std::vector<FreeRun>;

  [[nodiscard]] StreamNumber owner(Sectors address) const {
    if (address < kBase || address >= kBase + kSize) return kNobody;
    return owners_[static_cast<std::size_t>(address - kBase)];
  }
  // As long as all have the same owner.
  [[nodiscard]] FreeRun same_from(Sectors address, Sectors end) const {
    FreeRun same{address, 1, owner(address)};
    while (same.end() < end && owner(same.end()) == same.stream) ++same.sectors;
    return same;
  }
  [[nodiscard]] Runs pieces(Sectors address, Sectors end) const {
    Runs found;
    while (address < end) {
      const FreeRun same = same_from(address, end);
      if (same.stream != kNobody) found.push_back(same);
      address = same.end();
    }
    return found;
  }
  void set(Sectors address, Sectors count, StreamNumber stream) {
    std::fill_n(owners_.begin() + (address - kBase), count, stream);
  }
  FreeRun range() {
    const auto begin = static_cast<Sectors>(steps_.word() % static_cast<std::uint64_t>(kSize));
    const auto text = static_cast<Sectors>(steps_.byte());
    return {kBase + begin, std::min(1 + text / 4, kSize - begin)};
  }

  void step() {
    const std::uint64_t kind = steps_.byte();
    const FreeRun range = this->range();
    switch (kind % 8) {
      case 0:
      case 1:
      case 2:
        give(range, static_cast<StreamNumber>(kind / 8 % kStreams));
        break;
      case 3:
        // Many apart.
        for (Sectors at = range.address; at < range.end(); at += 1 + static_cast<Sectors>(kind / 32))
          give({at, 1}, static_cast<StreamNumber>(kind / 8 % kStreams));
        break;
      case 4:
      case 5:
        for (const FreeRun& piece : pieces(range.address, range.end())) take(piece);
        break;
      case 6:
        take_all(range);
        break;
      default:
        keep_room(kind / 8);
    }
  }
  // What of it is not free.
  void give(const FreeRun& range, StreamNumber stream) {
    for (Sectors address = range.address; address < range.end();) {
      const FreeRun same = same_from(address, range.end());
      if (same.stream == kNobody) {
        runs_.give(same.address, same.sectors, stream);
        set(same.address, same.sectors, stream);
      }
      address = same.end();
    }
  }
  void take(const FreeRun& piece) {
    require(runs_.take_of(runs_.holding(piece.address), piece.address, piece.end()) == piece,
            "the first piece is taken");
    set(piece.address, piece.sectors, kNobody);
  }
  // What is free from its beginning on, of whichever streams.
  void take_all(const FreeRun& range) {
    Sectors end = range.address;
    while (end < range.end() && owner(end) != kNobody) ++end;
    if (end == range.address) return;
    const Sectors count = end - range.address;
    const Runs expected = pieces(range.address, end);
    require(runs_.pieces(range.address, count) == expected.size(), "how many pieces there are");
    if (count % 2 == 0) {
      runs_.take(range.address, count);
    } else {
      Runs taken;
      runs_.take(range.address, count, taken);
      require(taken == expected, "what is taken, and whose it was");
    }
    set(range.address, count, kNobody);
  }
  void keep_room(std::size_t count) {
    runs_.keep_room(count);
    require(runs_.has_room(0), "room that is kept is there");
    runs_.drop_room(count);
    require(runs_.has_room(count), "room that was kept is there until more come");
  }

  void compare_all() {
    const Runs expected = pieces(kBase, kBase + kSize);
    Runs found;
    runs_.for_each([&](const FreeRun& run) { found.push_back(run); });
    require(found == expected, "all runs, by address");
    Sectors all = 0;
    for (StreamNumber stream = 0; stream < kStreams; ++stream) {
      Runs own;
      std::copy_if(expected.begin(), expected.end(), std::back_inserter(own),
                   [&](const FreeRun& run) { return run.stream == stream; });
      std::stable_sort(own.begin(), own.end(),
                       [](const FreeRun& a, const FreeRun& b) { return a.sectors < b.sectors; });
      Runs by_size;
      runs_.by_size().for_each_from(stream, 0, [&](RunNumber /*number*/, const RunNode& run) {
        by_size.push_back(run.run());
        return true;
      });
      require(by_size == own, "a stream's runs, by size");
      const auto sectors = std::count(owners_.begin(), owners_.end(), stream);
      require(runs_.sectors_of(stream) == sectors, "how many sectors of a stream are free");
      require(runs_.has_any_of(stream) == (sectors != 0), "whether a stream has any");
      all += sectors;
      compare_fit(std::move(own), stream);
    }
    require(runs_.sectors() == all, "how many sectors are free");
  }
  void compare_fit(Runs own, StreamNumber stream) {
    const Sectors sectors = 1 + static_cast<Sectors>(asked_++ % 40);
    const int most = asked_ % 3 == 0 ? kFewFits : kMostFits;
    const TightFit found = tight_fit(runs_.by_size(), stream, sectors, kPageOf8, most);
    const auto expected = plain_tight_fit(std::move(own), sectors, kPageOf8, most);
    require(static_cast<bool>(found) == expected.has_value(), "whether a run holds a request");
    if (!found) return;
    require(
        found.address == expected->address && found.pages == expected->pages && found.is_exact == expected->is_exact,
        "where a request fits best");
  }

  // Of a few sectors, here or there.
  void ask() {
    const FreeRun range = this->range();
    const auto stream = static_cast<StreamNumber>(steps_.byte() % kStreams);
    const Sectors count = range.sectors;
    const Runs in = pieces(range.address, range.end());
    Sectors free = 0;
    for (const FreeRun& piece : in) free += piece.sectors;
    require(runs_.sectors_in(range.address, count) == free, "how much of it is free");
    require(runs_.is_free(range.address, count) == (free == count), "whether it is free");
    const bool is_one = in.size() == 1 && free == count;
    require(runs_.is_one_run(range.address, count) == is_one, "whether it is one run");
    require(runs_.is_free_of(range.address, count, stream) == (is_one && in.front().stream == stream),
            "whether it is free on a stream");
    const Runs around = pieces(kBase, kBase + kSize);
    const auto ending = std::find_if(around.begin(), around.end(), [&](const FreeRun& run) {
      return run.end() == range.end() && run.stream == stream;
    });
    require(runs_.ending_at(range.end(), stream) == (ending == around.end() ? std::nullopt : std::optional(*ending)),
            "the run that ends there");
    Runs behind;
    runs_.for_each_from(range.address, [&](const FreeRun& run) {
      behind.push_back(run);
      return behind.size() < 3;
    });
    Runs expected;
    for (const FreeRun& run : around)
      if (run.end() > range.address && expected.size() < 3) expected.push_back(run);
    require(behind == expected, "the runs from there on");
    if (owner(range.address) != kNobody) ask_around(range.address);
  }
  void ask_around(Sectors address) {
    Sectors begin = address;
    Sectors end = address;
    while (owner(begin - 1) != kNobody) --begin;
    while (owner(end) != kNobody) ++end;
    require(runs_.stretch_around(address) == FreeRun{begin, end - begin, owner(address)}, "what is free around it");
  }

  Steps steps_;
  FreeRuns runs_;
  std::array<StreamNumber, kSize> owners_{};
  std::uint64_t asked_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program(Steps(data, size)).run();
  return 0;
}
