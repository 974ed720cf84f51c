// What a heap keeps of its streams beside plain lists and sets: the events that bytes are to be had behind, how many
// streams may be awake, and the frees that are left to a stream's next turn.

#include "allocator/block.h"
#include "allocator/left_frees.h"
#include "allocator/stream_marks.h"
#include "allocator/wake_counts.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace cistern {
namespace {

class MarksProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    // Near the newest, before it or behind it.
    const auto near = static_cast<StreamMarks::Number>(kind / 16);
    const StreamMarks::Number number = newest_ + near - std::min(newest_, 4U);
    if (kind % 16 < 11) {
      keep(number);
    } else if (kind % 16 < 15) {
      marks_.done(number);
      done_ = std::max(done_, number);
      drop(std::find_if(kept_.begin(), kept_.end(), [this](const Kept& kept) { return kept.number > done_; }));
    } else {
      marks_.forget();
      done_ = newest_ = 0;
      drop(kept_.end());
    }
    for (const std::weak_ptr<int>& event : std::exchange(dropped_, {}))
      require(event.expired(), "an event that makes way is not held");
    for (StreamMarks::Number at = number - std::min(number, 20U); at < number + 20; ++at) compare(at);
  }

 private:
  struct Kept {
    StreamMarks::Number number;
    std::weak_ptr<int> event;
  };

  // What it owns stands for an event.
  void keep(StreamMarks::Number number) {
    auto event = std::make_shared<int>();
    const bool is_overtaken = number <= done_ || (!kept_.empty() && number < kept_.back().number);
    if (is_overtaken) {
      dropped_.push_back(event);
    } else {
      if (kept_.size() == 8) {
        dropped_.push_back(kept_.back().event);
        kept_.pop_back();
      }
      kept_.push_back({number, event});
      newest_ = number;
    }
    marks_.keep(number, std::shared_ptr<StreamEnd>(std::move(event), nullptr));
  }
  void drop(std::vector<Kept>::iterator end) {
    for (auto kept = kept_.begin(); kept != end; ++kept) dropped_.push_back(kept->event);
    kept_.erase(kept_.begin(), end);
  }
  void compare(StreamMarks::Number number) const {
    require(marks_.is_done(number) == (number <= done_), "whether what was queued before a mark is done");
    const auto behind =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.number >= number; });
    const StreamMarks::Mark* const found = marks_.behind(number);
    require((found != nullptr) == (behind != kept_.end()), "whether there is an event behind a mark");
    if (found == nullptr) return;
    const bool is_it = !found->event.owner_before(behind->event) && !behind->event.owner_before(found->event);
    require(is_it && found->number == behind->number, "the first event behind a mark");
  }

  StreamMarks marks_;
  std::vector<Kept> kept_;                   // the oldest first
  std::vector<std::weak_ptr<int>> dropped_;  // by this step
  StreamMarks::Number done_ = 0;
  StreamMarks::Number newest_ = 0;
};

class WakeProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::uint64_t which = steps.byte();
    if (kind % 8 < 2) {
      request(which * 8);
    } else if (kind % 8 < 4) {
      for (std::uint64_t i = 0; i <= kind / 4; ++i) refuse((which + i) % refused_at_.size());
    } else if (kind % 8 == 4) {
      forget(which % refused_at_.size());
    } else if (kind % 8 < 7) {
      for (std::uint64_t i = 0; i <= kind / 8; ++i) wake((which + i) % refused_at_.size());
    } else {
      look(which % (awake_ + 1));
    }
    for (const std::size_t few : {WakeCounts::kFew, AwakeStreams::kMost})
      for (std::size_t awake = few - 1; awake <= few; ++awake)
        require(counts_.has_room(awake) == (awake < most_), "no more are awake than may be");
  }

 private:
  // Many of a round: each that is awake had time for a turn, as if one were where none is; and where only a few may be,
  // each that could be.
  [[nodiscard]] bool is_round_over() const {
    const std::size_t each = most_ == WakeCounts::kFew ? AwakeStreams::kMost : std::max<std::size_t>(awake_, 1);
    return requests_ > WakeCounts::kRequestsEach * each;
  }
  void request(std::uint64_t count) {
    for (; count != 0; --count) {
      ++requests_;
      require(counts_.note_request(awake_) == is_round_over(), "it is looked at the end of a round");
      if (is_round_over() && count % 4 != 0) look(awake_);
    }
  }
  void refuse(std::size_t stream) {
    const bool is_first = !was_refused_ && !were_refused_before_;
    const bool is_counted = refused_.insert(stream).second;
    was_refused_ = was_refused_ || is_counted;
    require(counts_.refuse(refused_at_[stream]) == (is_counted && is_first), "the first of a round that finds no room");
  }
  void forget(std::size_t stream) {
    counts_.forget(refused_at_[stream]);
    refused_.erase(stream);
  }
  void wake(std::size_t stream) {
    if (awake_ >= most_) return;
    forget(stream);
    ++wakes_;
    const bool is_looked = wakes_ >= std::max(2 * stayed_, WakeCounts::kFew);
    require(counts_.note_wake() == is_looked, "it is looked when twice as many woke as stayed");
    if (is_looked) look(awake_ / 2);
    ++awake_;
  }
  // Those that are idle go to sleep.
  void look(std::size_t busy) {
    if (is_round_over()) {
      most_ = busy + refused_.size() > AwakeStreams::kMost ? WakeCounts::kFew : AwakeStreams::kMost;
      were_refused_before_ = !std::exchange(refused_, {}).empty();
      was_refused_ = false;
      requests_ = 0;
    }
    wakes_ = 0;
    stayed_ = counts_.look(awake_, busy);
    require(stayed_ == std::min(busy, most_), "those that are not idle stay awake, as many as may be");
    awake_ = stayed_;
  }

  WakeCounts counts_;
  std::array<std::uint64_t, 100> refused_at_{};  // by stream
  std::set<std::size_t> refused_;                // in this round
  bool was_refused_ = false;                     // any in this round, whatever became of it
  bool were_refused_before_ = false;
  std::size_t awake_ = 0;
  std::size_t most_ = AwakeStreams::kMost;
  std::size_t requests_ = 0;  // of this round
  std::size_t wakes_ = 0;     // since the last look
  std::size_t stayed_ = 0;
};

class FreesProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    for (std::uint64_t i = 0; i <= kind / 8 && left_.size() < LeftFrees::kMost; ++i) {
      left_.push_back(&blocks_[(kind + i * 5) % blocks_.size()]);
      frees_.add(left_.back());
    }
    if (kind % 4 == 0) {
      std::vector<Block*> taken;
      frees_.take([&](Block* block) { taken.push_back(block); });
      require(taken == left_, "all are taken, in the order of their frees");
      left_.clear();
    }
    require(frees_.empty() == left_.empty() && frees_.is_full() == (left_.size() == LeftFrees::kMost),
            "how many are left");
  }

 private:
  std::array<Block, 32> blocks_;
  LeftFrees frees_;
  std::vector<Block*> left_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  MarksProgram marks;
  WakeProgram wakes;
  FreesProgram frees;
  Steps steps(data, size);
  while (steps.more()) {
    const std::uint64_t which = steps.byte() % 8;
    if (which < 3)
      marks.step(steps);
    else if (which < 7)
      wakes.step(steps);
    else
      frees.step(steps);
  }
  return 0;
}
