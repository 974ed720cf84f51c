// Segments that were chosen beside standard lists; and for how long the streams of a thread share, beside counters.

#include "allocator/segment_list.h"

#include "allocator/shared_counts.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// Of two lists, and segments of which each is in one of them or in none.
class ListProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    const std::size_t of = kind / 8 % lists_.size();
    if (kind % 8 < 4)
      add(of, kind % 8 < 2, 1 + kind / 16, steps.byte());
    else if (kind % 8 == 4)
      take(of, 1 + kind / 16);
    else if (kind % 8 < 7)
      sort(of, kind / 16);
    else
      hand_over(of, kind / 16);
    for (std::size_t i = 0; i < lists_.size(); ++i) compare(lists_[i], expected_[i]);
  }

 private:
  void add(std::size_t of, bool is_in_front, std::uint64_t count, std::uint64_t size) {
    for (; count != 0 && !left_.empty(); --count, size = size * 5 + 3) {
      Segment* const segment = left_.back();
      left_.pop_back();
      segment->bytes = size % 16;
      is_in_front ? lists_[of].push_front(segment) : lists_[of].push_back(segment);
      expected_[of].insert(is_in_front ? expected_[of].begin() : expected_[of].end(), segment);
    }
  }
  void take(std::size_t of, std::uint64_t count) {
    for (; count != 0; --count) {
      Segment* const first = lists_[of].pop_front();
      require(first == (expected_[of].empty() ? nullptr : expected_[of].front()),
              "the first is taken, if there is one");
      if (first == nullptr) return;
      expected_[of].pop_front();
      left_.push_back(first);
    }
  }
  // By orders in which some or all are equal.
  void sort(std::size_t of, std::uint64_t by) {
    const auto before = [by](const Segment& a, const Segment& b) {
      return by % 2 == 0 ? a.bytes / (1 + by) < b.bytes / (1 + by) : a.bytes % (1 + by) > b.bytes % (1 + by);
    };
    lists_[of].sort(before);
    expected_[of].sort([&](const Segment* a, const Segment* b) { return before(*a, *b); });
  }
  // To the other one, and what that had is in none; or by way of another, which may be of one segment.
  void hand_over(std::size_t of, std::uint64_t how) {
    if (how % 3 == 0) {
      SegmentList moved(std::move(lists_[of]));
      compare(lists_[of], {});
      compare(moved, expected_[of]);
      lists_[of] = std::move(moved);
    } else if (how % 3 == 1) {
      lists_[of] = std::move(lists_[1 - of]);
      left_.insert(left_.end(), expected_[of].begin(), expected_[of].end());
      expected_[of] = std::exchange(expected_[1 - of], {});
    } else if (!left_.empty() && expected_[of].empty()) {
      lists_[of] = SegmentList(left_.back());
      expected_[of].push_back(left_.back());
      left_.pop_back();
    }
  }
  static void compare(const SegmentList& list, const std::list<Segment*>& expected) {
    require(list.empty() == expected.empty(), "whether there is any");
    const Segment* next = list.first();
    for (const Segment* segment : expected) {
      require(next == segment, "all are there, in order");
      next = next->next_chosen;
    }
    require(next == nullptr, "nothing else is there");
  }

  std::vector<Segment> segments_ = std::vector<Segment>(100);
  std::vector<Segment*> left_ = [this] {
    std::vector<Segment*> all;
    for (Segment& segment : segments_) all.push_back(&segment);
    return all;
  }();  // in no list
  std::array<SegmentList, 2> lists_;
  std::array<std::list<Segment*>, 2> expected_;
};

// Twice as long as those before if these came to their end by themselves, else half as long: within bounds.
class SharesProgram {
 public:
  // Few programs come to the longest: it takes them as long as thousands of others.
  explicit SharesProgram(bool is_long) : most_requests_(is_long ? 4 * kLongest : 2 * SharedCounts::kFirstStay) {}

  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    if (kind % 8 < 2) {
      begin(kind / 8 % 4 == 3);
    } else if (kind % 8 == 2) {
      shares_.give_way();
      left_ /= 2;
      gave_way_ = true;
    } else if (kind % 8 < 5) {
      request(steps.word());
    } else {
      request(left_ - std::min(left_, kind / 8 % 4));
    }
    require(shares_.is_over() == (left_ == 0), "they share for so many requests");
  }

 private:
  static constexpr std::uint64_t kLongest = 16 * SharedCounts::kFirstStay;

  void begin(bool is_others) {
    if (stay_ == 0)
      stay_ = SharedCounts::kFirstStay;
    else
      stay_ = std::clamp(left_ == 0 && !gave_way_ ? 2 * stay_ : stay_ / 2, SharedCounts::kFirstStay, kLongest);
    left_ = stay_;
    gave_way_ = false;
    is_others_ = is_others;
    static const ThreadMark other;
    const ThreadMark* const own = ThreadMark::of_this_thread();
    shares_.begin(is_others ? &other : own);
    require(shares_.is_of(own) == !is_others && shares_.is_of(&other) == is_others, "whose streams share");
  }
  void request(std::uint64_t count) {
    count = std::min(count, most_requests_ - requests_);
    std::uint64_t counted = 0;
    while (counted < count && shares_.takes_request()) ++counted;
    require(counted == (is_others_ ? 0 : std::min(count, left_)), "requests of the thread are counted while it shares");
    left_ -= counted;
    requests_ += counted;
  }

  const std::uint64_t most_requests_;
  SharedCounts shares_;
  std::uint64_t stay_ = 0;  // none yet
  std::uint64_t left_ = 0;
  bool gave_way_ = false;
  bool is_others_ = false;
  std::uint64_t requests_ = 0;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Steps steps(data, size);
  ListProgram lists;
  SharesProgram shares(steps.byte() == 255);
  while (steps.more()) {
    if (steps.byte() % 4 != 0)
      lists.step(steps);
    else
      shares.step(steps);
  }
  return 0;
}
