// Placement while everything goes on at once: plans under way that end late, handles that leave meanwhile, frees that
// wait, bytes that other streams claim, and steps of ever other lengths that take what they know. No byte is two
// blocks'.

#include "allocator/page_placement.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/allocator/naive_bytes.h"
#include "tests/allocator/placement_case.h"

namespace cistern {
namespace {

class PageProgramsTest : public PlacementCase {
 protected:
  struct Live {
    PagedBlock block;
    int id;
  };
  struct Out {
    PagePlan plan;
    bool is_mapped;
  };

  [[nodiscard]] bool one_in(int many) { return random_() % static_cast<std::uint64_t>(many) == 0; }
  [[nodiscard]] std::size_t any_of(std::size_t count) { return random_() % count; }

  void arrive(const PagedBlock& block) {
    bytes_.arrive(placement_.table(), block, ++last_id_);
    live_.push_back({block, last_id_});
  }
  // By the ways that a heap goes, one after the other.
  void allocate(const PageRequest& request) {
    if (const auto known = placement_.take_known(request)) {
      ++known_;
      return arrive(*known);
    }
    if (const auto larger = placement_.find_larger(request); larger != PlacementLog::kNone) {
      ++parts_;
      return arrive(placement_.block_at(placement_.take_part(larger, request, true)));
    }
    auto handed_over = placement_.plan_known(request);
    Out out{handed_over ? *std::move(handed_over) : placement_.plan(request), false};
    ASSERT_EQ(out.plan.kind, PlanKind::placed);
    if (one_in(2)) map(out);
    out_.push_back(std::move(out));
    if (!one_in(6) || out_.size() > 3) end_plan(out_.size() - 1);
  }
  void map(Out& out) {
    ASSERT_TRUE(out.is_mapped || out.plan.gather.empty() || carry_out(out.plan.gather, driver_));
    out.is_mapped = true;
  }
  void end_plan(std::size_t at) {
    std::swap(out_[at], out_.back());
    Out out = std::move(out_.back());
    out_.pop_back();
    if (!out.is_mapped && one_in(8)) return placement_.abandon(out.plan);
    map(out);
    arrive(placement_.commit(out.plan));
  }
  void free(std::size_t at) {
    std::swap(live_[at], live_.back());
    placement_.freed(live_.back().block);
    pending_.push_back(live_.back());
    live_.pop_back();
    if (!waits_ || one_in(3)) settle(pending_.size() - 1);
  }
  void settle(std::size_t at) {
    std::swap(pending_[at], pending_.back());
    const auto [block, id] = pending_.back();
    pending_.pop_back();
    bytes_.leave(placement_.table(), block, id);
    if (streams_ > 1 && one_in(20))
      placement_.settle_for(block.known, static_cast<StreamNumber>(any_of(static_cast<std::size_t>(streams_))));
    else
      placement_.settle(block);
  }
  void begin_departure() {
    if (leaving_) return end_departure();
    leaving_ = placement_.leave(static_cast<std::int64_t>(1 + any_of(8)));
    if (leaving_->empty()) leaving_.reset();
  }
  void end_departure() {
    for (Departure::Leaving& leaving : leaving_->handles) {
      if (one_in(5)) continue;  // the driver refuses
      for (std::size_t i = 0; i < leaving.mappings; ++i) {
        Departure::Mapping& mapping = leaving_->mappings[leaving.first_mapping + i];
        driver_.unmap(leaving.handle, mapping.address);
        mapping.is_gone = true;
      }
      driver_.release(leaving.handle);
      leaving.is_gone = true;
      ++departed_;
    }
    placement_.left(*leaving_);
    leaving_.reset();
  }
  void end_all() {
    while (!out_.empty()) end_plan(out_.size() - 1);
    if (leaving_) end_departure();
    while (!live_.empty()) free(live_.size() - 1);
    while (!pending_.empty()) settle(pending_.size() - 1);
  }
  // A step as long as `shorter` hundredths less than all.
  void run(const std::vector<PageRequest>& step, Sectors shorter, bool is_disturbed) {
    for (const PageRequest& full : step) {
      allocate({full.sectors - full.sectors * shorter / 100, full.stream});
      if (HasFatalFailure()) return;
      if (is_disturbed && one_in(12)) begin_departure();
      if (!out_.empty() && one_in(3)) end_plan(any_of(out_.size()));
      if (full.sectors % 3 == 0 && !live_.empty()) free(live_.size() - 1);
      if (!pending_.empty() && one_in(4)) settle(any_of(pending_.size()));
    }
    end_all();
  }

  NaiveBytes bytes_{kPageOf128};
  std::mt19937_64 random_;
  std::vector<Live> live_, pending_;
  std::vector<Out> out_;
  std::optional<Departure> leaving_;
  int streams_ = 1;
  bool waits_ = false;
  int last_id_ = 0, known_ = 0, parts_ = 0, departed_ = 0;
};

TEST_F(PageProgramsTest, WhateverGoesOnMeanwhileNoByteIsTwoBlocks) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_.seed(seed);
    streams_ = seed % 3 == 0 ? 2 : 1;
    waits_ = seed % 4 == 0;
    std::vector<PageRequest> step;
    const std::size_t requests = 20 + any_of(60);
    for (std::size_t i = 0; i < requests; ++i)
      step.push_back({static_cast<Sectors>(1 + any_of(1 + any_of(900))),
                      static_cast<StreamNumber>(any_of(static_cast<std::size_t>(streams_)))});
    for (int pass = 0; pass < 80; ++pass) {
      run(step, static_cast<Sectors>(any_of(12)), pass % 8 == 7);
      if (HasFatalFailure()) return;
      placement_.audit();
    }
  }
  EXPECT_GT(known_, 500);
  EXPECT_GT(parts_, 500);
  EXPECT_GT(departed_, 100);
}

// With more pages more of a step is known: 32 requests for each.
TEST(PagePrograms, AStepIsKnownThatIsAsLongAsThePagesThatItTakes) {
  constexpr std::size_t kEntries = 16;
  constexpr std::size_t kRequests = 40 * kEntries;
  PagePlacement placement(kPageOf128, PagePlacement::kNoLimit, PagePlacement::kNoLimit, kEntries);
  ScriptedDriver driver;
  std::size_t known = 0;
  for (int pass = 0; pass < 3; ++pass) {
    known = 0;
    std::vector<PagedBlock> blocks;
    for (std::size_t i = 0; i < kRequests; ++i) {
      const PageRequest request{1 + static_cast<Sectors>(i % 60), 0};
      if (const auto block = placement.take_known(request)) {
        ++known;
        blocks.push_back(*block);
        continue;
      }
      PagePlan plan = placement.plan(request);
      ASSERT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver));
      blocks.push_back(placement.commit(plan));
    }
    for (const PagedBlock& block : blocks) {
      placement.freed(block);
      placement.settle(block);
    }
  }
  EXPECT_EQ(known, kRequests);
}

}  // namespace
}  // namespace cistern
