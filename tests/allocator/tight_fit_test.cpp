#include "allocator/tight_fit.h"
#include "tests/allocator/page_sizes.h"
#include "tests/allocator/plain_tight_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr StreamNumber kStream = 3;

struct Run {
  Sectors sectors;
  Sectors address;
  [[nodiscard]] FreeRun free(StreamNumber stream = kStream) const { return {address, sectors, stream}; }
  friend bool operator<(const Run& a, const Run& b) {
    return std::tie(a.sectors, a.address) < std::tie(b.sectors, b.address);
  }
};
using Runs = std::set<Run>;

// Beside streams that have the same, and what would be better; in one tree, or in bins.
std::optional<TightFit> tight_fit(const Runs& runs, Sectors sectors, int most, bool have_bins) {
  RunNodes nodes;
  nodes.provide(3 * runs.size() + RunsBySize::kFew + 3);
  RunsBySize by_size(nodes);
  by_size.add_stream(kStream + 1);
  const auto add = [&](const FreeRun& run) {
    const RunNumber number = nodes.take();
    nodes[number].be({run});
    by_size.add(number);
  };
  for (const Run& run : runs)
    for (const StreamNumber stream : {kStream - 1, kStream, kStream + 1}) add(run.free(stream));
  for (const StreamNumber stream : {kStream - 1, kStream + 1}) add({Sectors{1} << 30, sectors, stream});
  if (have_bins) {
    std::vector<RunNumber> more;
    for (std::size_t i = 0; i <= RunsBySize::kFew; ++i) {
      more.push_back(nodes.take());
      nodes[more.back()].be({{Sectors{1} << 20, sectors, kStream}});
      by_size.add(more.back());
    }
    by_size.provide_bins(kStream);
    for (const RunNumber number : more) by_size.remove(number);
  }
  const TightFit fit = cistern::tight_fit(by_size, kStream, sectors, kPageOf8, most);
  if (!fit) return std::nullopt;
  EXPECT_GE(fit.address, nodes[fit.run].address) << "it is in that run";
  EXPECT_LE(fit.address + sectors, nodes[fit.run].end());
  return fit;
}
std::optional<TightFit> tight_fit(const Runs& runs, Sectors sectors, int most = kMostFits) {
  const auto fit = tight_fit(runs, sectors, most, false);
  const auto in_bins = tight_fit(runs, sectors, most, true);
  EXPECT_EQ(fit.has_value(), in_bins.has_value());
  if (fit && in_bins) {
    EXPECT_EQ(std::tie(fit->address, fit->pages), std::tie(in_bins->address, in_bins->pages));
  }
  return fit;
}

TEST(TightFitTest, ARunOfJustThatSizeAtOnce) {
  const Runs runs = {{4, 96}, {12, 0}, {12, 40}, {13, 200}};
  const auto fit = tight_fit(runs, 12);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->address, 0);
  EXPECT_EQ(fit->pages, 0);
  EXPECT_TRUE(fit->is_exact);
  EXPECT_FALSE(tight_fit(runs, 11)->is_exact);
  EXPECT_FALSE(tight_fit(runs, 14));
}

TEST(TightFitTest, FragmentsBeforeWholePages) {
  // 24 sectors from 5: a fragment of 3, two pages, a fragment of 5.
  const Runs runs = {{24, 5}};
  EXPECT_EQ(tight_fit(runs, 3)->address, 5);
  EXPECT_EQ(tight_fit(runs, 5)->address, 24);
  EXPECT_EQ(tight_fit(runs, 4)->pages, 0);
  EXPECT_EQ(tight_fit(runs, 6)->pages, 1);
  EXPECT_EQ(tight_fit(runs, 13)->address, 16);  // a page and the fragment behind it
}

TEST(TightFitTest, OfManyRunsTheSmallestAreLookedAt) {
  Runs runs{{12, 4096}};  // a page and a fragment of four
  EXPECT_EQ(tight_fit(runs, 4)->address, 4104);
  for (Sectors page = 0; page < 32; ++page) runs.insert({5, 8 * page + 1});
  EXPECT_EQ(tight_fit(runs, 4)->address, 1);
}

// No position anywhere touches fewer whole pages than the one found.
TEST(TightFitTest, NoPositionInAnyRunTouchesFewerWholePages) {
  std::mt19937_64 random(20261121);
  for (int round = 0; round < 3000; ++round) {
    Runs runs;
    Sectors address = static_cast<Sectors>(random() % 8);
    for (int i = 0; i < 6; ++i) {
      const auto size = static_cast<Sectors>(1 + random() % 50);
      runs.insert({size, address});
      address += size + 1 + static_cast<Sectors>(random() % 20);
    }
    const auto sectors = static_cast<Sectors>(1 + random() % 40);
    const auto fit = tight_fit(runs, sectors);
    std::optional<std::int64_t> least;
    bool is_exact = false;
    bool is_inside = false;
    for (const auto& [size, run] : runs) {
      is_exact = is_exact || size == sectors;
      if (fit && fit->address >= run && fit->address + sectors <= run + size) {
        is_inside = true;
        if (size != sectors) {
          ASSERT_EQ(fit->pages, plain_touched_pages({run, size}, fit->address, sectors, kPageOf8));
        }
      }
      for (Sectors block = run; block + sectors <= run + size; ++block)
        least = std::min(least.value_or(1000), plain_touched_pages({run, size}, block, sectors, kPageOf8));
    }
    ASSERT_EQ(fit.has_value(), least.has_value());
    if (!fit) continue;
    ASSERT_TRUE(is_inside);
    ASSERT_EQ(fit->pages, is_exact ? 0 : *least) << "round " << round;
  }
}

std::optional<TightFit> plainly(const Runs& runs, Sectors sectors, int most) {
  std::vector<FreeRun> all;
  for (const Run& run : runs) all.push_back(run.free());
  return plain_tight_fit(std::move(all), sectors, kPageOf8, most);
}

TEST(TightFitTest, WhatItDoesNotLookAtIsNotBetter) {
  std::mt19937_64 random(20261123);
  for (int round = 0; round < 5000; ++round) {
    Runs runs;
    Sectors address = 0;
    const auto longest = 2 + random() % 40;
    const auto count = 1 + random() % 50;
    for (std::size_t i = 0; i < count; ++i) {
      address += 1 + static_cast<Sectors>(random() % 9);
      const auto size = static_cast<Sectors>(1 + random() % longest);
      runs.insert({size, address});
      address += size;
    }
    const auto sectors = static_cast<Sectors>(1 + random() % longest);
    const int most = random() % 2 == 0 ? kMostFits : kFewFits;
    const auto found = tight_fit(runs, sectors, most);
    const auto expected = plainly(runs, sectors, most);
    ASSERT_EQ(found.has_value(), expected.has_value()) << "round " << round;
    if (!found) continue;
    ASSERT_EQ(found->address, expected->address) << "round " << round << ", " << sectors << " sectors";
    ASSERT_EQ(found->pages, expected->pages) << "round " << round << ", " << sectors << " sectors";
    ASSERT_EQ(found->is_exact, expected->is_exact) << "round " << round << ", " << sectors << " sectors";
  }
}

}  // namespace
}  // namespace cistern
