// What is counted of streams that share paged memory, beside the same counted plainly: when they part and come
// together, and which of them stand alone.

#include "allocator/hand_over_tally.h"
#include "allocator/stream_parting.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cistern {
namespace {

class PartingProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    if (kind % 8 == 0) {
      parting_.come_together();
      PartingProgram anew;
      anew.parting_ = parting_;
      anew.rounds_left_ = rounds_left_;
      *this = anew;
    } else if (kind % 8 == 1) {
      note(static_cast<std::int64_t>(steps.word()) % StreamParting::kRequests, kind / 16 % 2 == 0);
    } else if (kind % 8 < 6) {
      const std::uint64_t figures = steps.byte();
      round(others_from(kind / 8), pages_from(figures), figures / 16);
    } else {
      // Such rounds one after the other until something happens.
      const bool were_apart = are_apart_;
      for (std::uint64_t i = 0; i < kind * 8 && are_apart_ == were_apart; ++i) round(others_from(kind / 8), pages_, 0);
    }
    compare(steps.byte());
  }

 private:
  // As many as are many, or one less, or more.
  [[nodiscard]] std::int64_t others_from(std::uint64_t text) const {
    const std::int64_t many = text % 4 < 2 ? StreamParting::kRequests / 64 : StreamParting::kRequests / 32;
    return many - 1 + static_cast<std::int64_t>(text / 4 % 3);
  }
  // About as many as there were, or others.
  [[nodiscard]] std::int64_t pages_from(std::uint64_t text) const {
    if (text % 4 == 3) return static_cast<std::int64_t>(text) * static_cast<std::int64_t>(text);
    return pages_ + (text % 4 == 0 ? 0 : pages_ / 256 + static_cast<std::int64_t>(text % 4) - 1);
  }
  // So many requests, which may be the last of this round and the first of the next one.
  void note(std::int64_t count, bool has_others) {
    while (count > 0) {
      const std::int64_t noted = std::min(count, StreamParting::kRequests - requests_);
      std::int64_t ends = 0;
      for (std::int64_t i = 1; i < noted; ++i) ends += parting_.note(has_others) ? 1 : 0;
      count -= noted;
      requests_ += noted;
      others_ += has_others ? noted : 0;
      const bool is_last = requests_ == StreamParting::kRequests;
      require(parting_.note(has_others) == is_last && ends == 0, "how many requests a round has");
      if (is_last) end_round(next_pages_, next_peaks_, next_little_);
    }
  }
  // The rest of one, so that as many had others' bytes as are said if not more had before.
  void round(std::int64_t others, std::int64_t pages, std::uint64_t peaks) {
    if (rounds_left_ == 0) return;
    --rounds_left_;
    next_pages_ = pages;
    next_little_ = peaks / 2 % 2 == 0 ? 0 : pages / 16 + 3;
    const std::int64_t most = pages + std::max(pages / 32, next_little_);
    next_peaks_ = peaks % 2 == 0 ? most - static_cast<std::int64_t>(peaks / 4) * pages / 4 : most + 1;
    const std::int64_t left = StreamParting::kRequests - requests_;
    const std::int64_t more = std::clamp<std::int64_t>(others - others_, 0, left);
    note(more, true);
    note(left - more, false);
  }
  void end_round(std::int64_t pages, std::int64_t peaks, std::int64_t little) {
    parting_.end_round(pages, peaks, little);
    if (are_apart_ && others_ * 32 >= StreamParting::kRequests) {
      are_apart_ = false;
      restless_to_part_ = std::min(2 * restless_to_part_, 1024);
    } else if (!are_apart_) {
      const bool hardly_grew = (pages - pages_) * 256 <= pages_;
      const bool saves_nothing = (peaks - pages) * 32 <= pages || peaks - pages <= little;
      if (others_ * 64 >= StreamParting::kRequests && hardly_grew && saves_nothing) ++restless_;
      if (restless_ == restless_to_part_) {
        are_apart_ = true;
        restless_ = 0;
        pages_when_parted_ = pages;
      }
    }
    require(parting_.are_apart() == are_apart_, "whether they are apart");
    pages_ = pages;
    requests_ = others_ = 0;
  }
  void compare(std::uint64_t live) const {
    require(parting_.are_apart() == are_apart_, "whether they are still apart");
    if (!are_apart_) return;
    // An eighth more than was ever live, or a little more, but not less than there was.
    const auto ever_live = static_cast<std::int64_t>(live * live);
    for (const std::int64_t little : {std::int64_t{0}, ever_live / 8 + 1}) {
      std::int64_t most = ever_live + little;
      if (little * 8 < ever_live) most = ever_live * 9 / 8;
      require(parting_.most_pages(ever_live, little) == std::max(most, pages_when_parted_),
              "how many pages there may be before others' bytes are had");
    }
  }

  StreamParting parting_;
  int rounds_left_ = 24;       // each takes thousands of requests
  std::int64_t requests_ = 0;  // of this round
  std::int64_t others_ = 0;    // that had bytes of others
  std::int64_t pages_ = 0;     // when the last round ended
  std::int64_t pages_when_parted_ = 0;
  bool are_apart_ = false;
  int restless_ = 0;  // rounds since they came together
  int restless_to_part_ = 1;
  // When this round ends.
  std::int64_t next_pages_ = 0;
  std::int64_t next_peaks_ = 0;
  std::int64_t next_little_ = 0;
};

class TallyProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const StreamNumber to = number_from(kind / 16);
    if (kind % 16 < 4) {
      provide(to, steps.byte());
    } else if (kind % 16 < 8) {
      note(to, number_from(steps.byte()), kind);
    } else if (kind % 16 < 12) {
      const std::uint64_t text = steps.byte();
      for (std::uint64_t i = 0; i <= text % 20; ++i) be_held_up(to, text / 20 % 4, text / 80 % 2);
    } else if (kind % 16 == 12) {
      tally_.reset();
      figures_.clear();
    } else if (kind % 16 == 13) {
      tally_.share_anew();
      for (auto& [number, stream] : streams_) stream.stand_with_others();
    } else if (kind % 16 == 14) {
      forget(to);
    } else {
      streams_[to].went += 1;
    }
    compare();
  }

 private:
  using Pair = std::pair<StreamNumber, StreamNumber>;  // to, from
  using Figures = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  struct Stream {
    void stand_with_others() {
      went_at_last.reset();
      stalls.clear();
      stands_alone = false;
    }

    bool is_provided = false;
    std::int64_t came = 0;  // blocks
    std::int64_t went = 0;
    std::optional<std::int64_t> went_at_last;  // when it was stalled last
    std::vector<std::int64_t> stalls;          // what had come at each, while 32 came
    bool stands_alone = false;
  };

  // A few, of which some are far from the others.
  static StreamNumber number_from(std::uint64_t text) {
    const auto number = static_cast<StreamNumber>(text % 8);
    return number < 6 ? number : number * 40;
  }

  void provide(StreamNumber to, std::uint64_t owners) {
    std::vector<StreamNumber> from;
    for (std::uint64_t bit = 0; bit < 8; ++bit)
      if ((owners >> bit & 1) != 0) from.push_back(number_from(bit));
    tally_.provide(to, from);
    streams_[to].is_provided = true;
    for (const StreamNumber one : from) {
      provided_.insert({to, one});
      figures_.insert({{to, one}, {}});
    }
  }
  // Nothing of a pair whose figures became 0 since it was provided.
  void note(StreamNumber to, StreamNumber from, std::uint64_t text) {
    if (!provided_.contains({to, from})) return;
    const auto bytes = static_cast<std::int64_t>(text * 512);
    const bool is_held_up = text % 2 == 0;
    tally_.note(to, from, bytes, is_held_up);
    const auto place = figures_.find({to, from});
    if (place == figures_.end()) return;
    auto& [hand_overs, all_bytes, held_up] = place->second;
    hand_overs += 1;
    all_bytes += bytes;
    held_up += is_held_up ? 1 : 0;
  }
  // Once more when so many more blocks have come, and gone.
  void be_held_up(StreamNumber to, std::uint64_t come, std::uint64_t go) {
    Stream& stream = streams_[to];
    if (!stream.is_provided) return;
    stream.came += static_cast<std::int64_t>(come);
    stream.went += static_cast<std::int64_t>(go);
    tally_.held_up(to, stream.came, stream.went);
    if (stream.went_at_last == stream.went) return;
    stream.went_at_last = stream.went;
    if (!stream.stalls.empty() && stream.came >= stream.stalls.front() + 32) stream.stalls.clear();
    stream.stalls.push_back(stream.came);
    stream.stands_alone = stream.stands_alone || stream.stalls.size() == 16;
  }
  void forget(StreamNumber number) {
    tally_.forget(number);
    streams_.erase(number);
    const auto is_of = [number](const Pair& pair) { return pair.first == number || pair.second == number; };
    std::erase_if(provided_, is_of);
    std::erase_if(figures_, [&](const auto& entry) { return is_of(entry.first); });
  }
  void compare() const {
    for (std::uint64_t text = 0; text < 9; ++text) {
      const StreamNumber number = text < 8 ? number_from(text) : 1000;
      const auto stream = streams_.find(number);
      require(tally_.stands_alone(number) == (stream != streams_.end() && stream->second.stands_alone),
              "which streams stand alone");
    }
    std::map<Pair, Figures> found;
    tally_.for_each([&](StreamNumber to, StreamNumber from, const HandOverTally::Pair& pair) {
      const bool is_new = found.insert({{to, from}, {pair.hand_overs, pair.bytes, pair.held_up}}).second;
      require(is_new, "each pair is there once");
    });
    std::map<Pair, Figures> expected = figures_;
    std::erase_if(expected, [](const auto& entry) { return std::get<0>(entry.second) == 0; });
    require(found == expected, "all pairs with a figure");
  }

  HandOverTally tally_;
  std::set<Pair> provided_;
  std::map<Pair, Figures> figures_;  // of those that were provided since they became 0
  std::map<StreamNumber, Stream> streams_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Steps steps(data, size);
  PartingProgram parting;
  TallyProgram tally;
  while (steps.more()) {
    if (steps.byte() % 4 == 0)
      parting.step(steps);
    else
      tally.step(steps);
  }
  return 0;
}
