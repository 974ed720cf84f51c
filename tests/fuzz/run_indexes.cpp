// Both indexes of free runs beside standard sets: runs of several streams come, go, and get other sizes, or begin
// elsewhere between their neighbours.

#include "allocator/runs_by_address.h"
#include "allocator/runs_by_size.h"

#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace cistern {
namespace {

constexpr StreamNumber kStreams = 3;
constexpr std::size_t kMostRuns = 128;
// So far apart runs begin: sizes are as large as addresses leave them room.
constexpr Sectors kApart = Sectors{1} << 22;

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps) {
    nodes_.provide(kMostRuns);
    by_size_.add_stream(kStreams - 1);
  }

  void run() {
    while (steps_.more()) {
      step();
      ask();
    }
    require(by_address_.audit() == runs_.size() && by_size_.audit() == runs_.size(), "all runs are in both");
  }

 private:
  void step() {
    const std::uint64_t kind = steps_.byte();
    const auto where = static_cast<Sectors>(steps_.word());
    // Near each other, or far; in arenas side by side or not.
    const Sectors address = (kind / 64 + 1) << kArenaBits | (kind % 2 == 0 ? where % 16'384 : where % 4 * kApart);
    if (kind % 16 < 8)
      add(address, size(kind), static_cast<StreamNumber>(kind / 16 % kStreams));
    else if (kind % 16 < 12)
      remove(address);
    else
      change(address, static_cast<Sectors>(kind / 16), size(kind * 7));
  }
  // Near each other, or of any length.
  [[nodiscard]] Sectors size(std::uint64_t kind) {
    const Sectors near = 1 + static_cast<Sectors>(steps_.word());
    return kind % 3 == 0 ? near : (Sectors{1} << kind % 40) + near % 8;
  }
  void add(Sectors address, Sectors sectors, StreamNumber stream) {
    if (runs_.contains(address) || runs_.size() == kMostRuns) return;
    const RunNumber number = nodes_.take();
    nodes_[number].be({{address, sectors, stream}});
    by_address_.provide(address);
    by_address_.add(number);
    by_size_.add(number);
    if (address % 2 == 0) by_size_.provide_bins(stream);
    runs_[address] = number;
  }
  void remove(Sectors address) {
    const auto gone = runs_.lower_bound(address);
    if (gone == runs_.end()) return;
    by_size_.remove(gone->second);
    by_address_.remove(gone->second);
    nodes_.give(gone->second);
    runs_.erase(gone);
  }
  // It begins elsewhere before the next one, if it may, and has another size.
  void change(Sectors address, Sectors by, Sectors sectors) {
    const auto changed = runs_.lower_bound(address);
    if (changed == runs_.end()) return;
    const auto [old, number] = *changed;
    const auto behind = std::next(changed);
    const Sectors begin = behind == runs_.end() || old + by * 1000 < behind->first ? old + by * 1000 : old;
    if (begin >> kArenaBits != old >> kArenaBits) return;
    RunNode& node = nodes_[number];
    by_address_.provide(begin);
    const bool stays_by_size = by_size_.stays(node, sectors);
    const bool stays_by_address = RunsByAddress::stays(node, begin);
    if (!stays_by_size) by_size_.remove(number);
    if (!stays_by_address) by_address_.remove(number);
    node.address = begin;
    node.sectors = sectors;
    if (!stays_by_size) by_size_.add(number);
    if (!stays_by_address) by_address_.add(number);
    runs_.erase(changed);
    runs_[begin] = number;
  }

  // At one of the runs, and beside it.
  void ask() {
    const std::uint64_t kind = steps_.byte();
    if (runs_.empty()) return compare(static_cast<Sectors>(kind), static_cast<Sectors>(kind));
    const auto at = std::next(runs_.begin(), static_cast<std::ptrdiff_t>(kind % runs_.size()));
    const auto beside = static_cast<Sectors>(kind % 3) - 1;
    compare(at->first + beside, nodes_[at->second].sectors + beside);
  }
  void compare(Sectors place, Sectors from) {
    for (Sectors arena = 0; arena < 6; ++arena) {
      const Sectors address = arena << kArenaBits | (place & ((Sectors{1} << kArenaBits) - 1));
      const auto behind = runs_.upper_bound(address);
      const RunNumber expected = behind == runs_.begin() ? kNoRun : std::prev(behind)->second;
      require(by_address_.last_up_to(address) == expected, "the run that begins last up to there");
    }
    for (StreamNumber stream = 0; stream < kStreams; ++stream) compare_sizes(stream, from);
  }
  void compare_sizes(StreamNumber stream, Sectors from) {
    std::set<std::tuple<Sectors, Sectors>> expected;
    bool has_any = false;
    for (const auto& [address, number] : runs_) {
      const RunNode& node = nodes_[number];
      has_any = has_any || node.stream == stream;
      if (node.stream == stream && node.sectors >= from) expected.emplace(node.sectors, node.address);
    }
    require(by_size_.has_any_of(stream) == has_any, "whether a stream has runs");
    auto next = expected.begin();
    by_size_.for_each_from(stream, from, [&](RunNumber /*number*/, const RunNode& run) {
      require(next != expected.end() && *next == std::tuple(run.sectors, run.address), "runs of a stream, by size");
      ++next;
      return true;
    });
    require(next == expected.end(), "all that are as large");
  }

  Steps steps_;
  RunNodes nodes_;
  RunsByAddress by_address_{nodes_};
  RunsBySize by_size_{nodes_};
  std::map<Sectors, RunNumber> runs_;  // by address
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program(Steps(data, size)).run();
  return 0;
}
