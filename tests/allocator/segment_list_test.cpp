// Segments that were chosen: their order, and that it is kept where they are equal.
#include "allocator/segment_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

namespace cistern {
namespace {

std::vector<const Segment*> in_order(const SegmentList& list) {
  std::vector<const Segment*> found;
  for (const Segment* segment = list.first(); segment != nullptr; segment = segment->next_chosen)
    found.push_back(segment);
  return found;
}

TEST(SegmentList, TakesAtBothEndsAndGivesTheFirst) {
  std::vector<Segment> segments(3);
  SegmentList list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.pop_front(), nullptr);
  list.push_front(&segments[1]);
  list.push_back(&segments[2]);
  list.push_front(&segments[0]);
  EXPECT_EQ(in_order(list), (std::vector<const Segment*>{&segments[0], &segments[1], &segments[2]}));
  SegmentList other(std::move(list));
  EXPECT_TRUE(list.empty()) << "it was moved";  // NOLINT(bugprone-use-after-move)
  for (Segment& segment : segments) EXPECT_EQ(other.pop_front(), &segment);
  EXPECT_TRUE(other.empty());
  other.push_back(&segments[2]);
  EXPECT_EQ(other.first(), &segments[2]) << "it may be filled again";
}

TEST(SegmentList, IsSortedAsAStableSortWould) {
  for (const std::size_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    std::mt19937_64 random(count);
    std::vector<Segment> segments(count);
    SegmentList list;
    std::vector<const Segment*> expected;
    for (Segment& segment : segments) {
      segment.bytes = random() % 10;
      list.push_back(&segment);
      expected.push_back(&segment);
    }
    const auto before = [](const Segment& a, const Segment& b) { return a.bytes < b.bytes; };
    list.sort(before);
    std::stable_sort(expected.begin(), expected.end(),
                     [&](const Segment* a, const Segment* b) { return before(*a, *b); });
    EXPECT_EQ(in_order(list), expected);
    Segment last;
    list.push_back(&last);
    EXPECT_EQ(in_order(list).back(), &last) << "the end is known";
  }
}

}  // namespace
}  // namespace cistern
