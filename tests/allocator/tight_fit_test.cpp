#include "allocator/tight_fit.h"
#include "tests/allocator/page_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace cistern {
namespace {

// Pages wholly inside the run of which the block has a sector, counted one by one.
std::int64_t touched(Sectors run, Sectors size, Sectors block, Sectors sectors) {
  std::int64_t count = 0;
  for (Sectors page = kPageOf8.up(run); page + kPageOf8.sectors() <= run + size; page += kPageOf8.sectors())
    if (block < page + kPageOf8.sectors() && block + sectors > page) ++count;
  return count;
}

TEST(TightFitTest, ARunOfJustThatSizeAtOnce) {
  const FreeRuns::BySize runs = {{4, 96}, {12, 0}, {12, 40}, {13, 200}};
  const auto fit = tight_fit(runs, 12, kPageOf8);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->address, 0);
  EXPECT_EQ(fit->pages, 0);
  EXPECT_FALSE(tight_fit(runs, 14, kPageOf8));
}

TEST(TightFitTest, FragmentsBeforeWholePages) {
  // 24 sectors from 5: a fragment of 3, two pages, a fragment of 5.
  const FreeRuns::BySize runs = {{24, 5}};
  EXPECT_EQ(tight_fit(runs, 3, kPageOf8)->address, 5);
  EXPECT_EQ(tight_fit(runs, 5, kPageOf8)->address, 24);
  EXPECT_EQ(tight_fit(runs, 4, kPageOf8)->pages, 0);
  EXPECT_EQ(tight_fit(runs, 6, kPageOf8)->pages, 1);
  EXPECT_EQ(tight_fit(runs, 13, kPageOf8)->address, 16);  // a page and the fragment behind it
}

TEST(TightFitTest, OfManyRunsTheSmallestAreLookedAt) {
  FreeRuns::BySize runs{{12, 4096}};  // a page and a fragment of four
  EXPECT_EQ(tight_fit(runs, 4, kPageOf8)->address, 4104);
  for (Sectors page = 0; page < 32; ++page) runs.emplace(5, 8 * page + 1);
  EXPECT_EQ(tight_fit(runs, 4, kPageOf8)->address, 1);
}

// No position anywhere touches fewer whole pages than the one found.
TEST(TightFitTest, NoPositionInAnyRunTouchesFewerWholePages) {
  std::mt19937_64 random(20261121);
  for (int round = 0; round < 3000; ++round) {
    FreeRuns::BySize runs;
    Sectors address = static_cast<Sectors>(random() % 8);
    for (int i = 0; i < 6; ++i) {
      const auto size = static_cast<Sectors>(1 + random() % 50);
      runs.emplace(size, address);
      address += size + 1 + static_cast<Sectors>(random() % 20);
    }
    const auto sectors = static_cast<Sectors>(1 + random() % 40);
    const auto fit = tight_fit(runs, sectors, kPageOf8);
    std::optional<std::int64_t> least;
    bool is_exact = false;
    bool is_inside = false;
    for (const auto& [size, run] : runs) {
      is_exact = is_exact || size == sectors;
      if (fit && fit->address >= run && fit->address + sectors <= run + size) {
        is_inside = true;
        if (size != sectors) {
          ASSERT_EQ(fit->pages, touched(run, size, fit->address, sectors));
        }
      }
      for (Sectors block = run; block + sectors <= run + size; ++block)
        least = std::min(least.value_or(1000), touched(run, size, block, sectors));
    }
    ASSERT_EQ(fit.has_value(), least.has_value());
    if (!fit) continue;
    ASSERT_TRUE(is_inside);
    ASSERT_EQ(fit->pages, is_exact ? 0 : *least) << "round " << round;
  }
}

}  // namespace
}  // namespace cistern
