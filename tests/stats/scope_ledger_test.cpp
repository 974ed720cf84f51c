// Scopes on the recorder: each has peaks and sums of its own, whatever the others and the resets do.

#include "stats/scope_ledger.h"

#include "stats/fields.h"
#include "stats/recorder.h"
#include "tests/property.h"
#include "tests/stats/stat.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <list>
#include <vector>

namespace cistern {
namespace {

[[maybe_unused]] const bool scope_ledger_configured = configure_properties("ScopesProperty", 2000, 200);

class ScopesTest : public ::testing::Test {
 protected:
  void allocate(std::int64_t bytes) { recorder_.block_allocated(PoolKind::large, bytes, bytes, {}, false); }
  void free(std::int64_t bytes) {
    recorder_.free_requested(PoolKind::large, bytes, false);
    recorder_.free_completed(PoolKind::large, bytes, bytes, {});
  }
  Stat bytes_in(const OpenScope& scope) const { return recorder_.scope_stats(scope).allocated_bytes.all; }

  Recorder recorder_;
};

TEST_F(ScopesTest, AScopeBeginsWithWhatIsThere) {
  allocate(100);
  OpenScope scope;
  recorder_.open_scope(scope);
  EXPECT_EQ(bytes_in(scope), stat(100, 100, 0, 0));
  allocate(30);
  free(100);
  EXPECT_EQ(bytes_in(scope), stat(30, 130, 30, 100));
  recorder_.close_scope(scope);
}

TEST_F(ScopesTest, AnInnerScopeTakesNothingFromTheOuter) {
  OpenScope outer;
  recorder_.open_scope(outer);
  allocate(100);
  free(100);
  OpenScope inner;
  recorder_.open_scope(inner);
  allocate(40);
  EXPECT_EQ(bytes_in(inner), stat(40, 40, 40, 0));
  EXPECT_EQ(bytes_in(outer), stat(40, 100, 140, 100));
  recorder_.close_scope(inner);
  EXPECT_EQ(bytes_in(outer), stat(40, 100, 140, 100));
  EXPECT_EQ(recorder_.stats().allocated_bytes.all, stat(40, 100, 140, 100)) << "nor from the heap";
  recorder_.close_scope(outer);
}

TEST_F(ScopesTest, OverlappingScopesMayEndInAnyOrder) {
  OpenScope first, second, third;
  recorder_.open_scope(first);
  allocate(10);
  recorder_.open_scope(second);
  allocate(50);
  free(50);
  recorder_.open_scope(third);
  allocate(5);
  recorder_.close_scope(second);
  EXPECT_EQ(bytes_in(first).peak, 60) << "what the second saw is the first's as well";
  EXPECT_EQ(bytes_in(third).peak, 15);
  recorder_.close_scope(first);
  allocate(100);
  EXPECT_EQ(bytes_in(third), stat(115, 115, 105, 0));
  recorder_.close_scope(third);
}

TEST_F(ScopesTest, ResetsDisturbNoScope) {
  OpenScope scope;
  recorder_.open_scope(scope);
  recorder_.allocation_retried();
  allocate(60);
  allocate(40);
  free(60);
  recorder_.reset_peaks();
  recorder_.reset_accumulated();
  EXPECT_EQ(recorder_.stats().allocated_bytes.all, stat(40, 40, 0, 0));
  EXPECT_EQ(bytes_in(scope), stat(40, 100, 100, 60));
  EXPECT_EQ(recorder_.scope_stats(scope).num_alloc_retries, 1);
  free(40);
  EXPECT_EQ(bytes_in(scope), stat(0, 100, 100, 100));
  recorder_.close_scope(scope);
}

TEST_F(ScopesTest, AScopeThatOpensDoesNotLowerTheHeapsPeaks) {
  allocate(100);
  free(100);
  OpenScope scope;
  recorder_.open_scope(scope);
  EXPECT_EQ(recorder_.stats().allocated_bytes.all.peak, 100);
  recorder_.close_scope(scope);
  EXPECT_EQ(recorder_.stats().allocated_bytes.all.peak, 100);
}

// A scope by hand: the figures after every step are looked at one by one.
struct Watched {
  OpenScope scope;
  MemoryStats expected;
};

void follow(MemoryStats& expected, const MemoryStats& before, const MemoryStats& after) {
  for (const PoolStatField& field : kPoolStatFields)
    for (const PoolField& pool : kPoolFields) {
      const Stat& old = before.*field.member.*pool.member;
      const Stat& now = after.*field.member.*pool.member;
      Stat& mine = expected.*field.member.*pool.member;
      mine.current = now.current;
      mine.peak = std::max(mine.peak, now.current);
      mine.allocated += now.allocated - old.allocated;
      mine.freed += now.freed - old.freed;
    }
  expected.num_ooms += after.num_ooms - before.num_ooms;
}

// What a scope has that begins at a moment with these figures.
MemoryStats begin_at(const MemoryStats& stats) {
  MemoryStats begin;
  follow(begin, stats, stats);
  for (const PoolStatField& field : kPoolStatFields)
    for (const PoolField& pool : kPoolFields) {
      Stat& stat = begin.*field.member.*pool.member;
      stat.peak = stat.current;
    }
  return begin;
}

RC_GTEST_PROP(ScopesProperty, EveryScopeEqualsOneThatLooksAfterEveryStep, ()) {
  Recorder recorder;
  std::list<Watched> open;
  std::vector<std::pair<PoolKind, std::int64_t>> live;
  for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1 << 20))) {
    const MemoryStats before = recorder.stats();
    const auto pool = choice % 2 == 0 ? PoolKind::small : PoolKind::large;
    const std::int64_t bytes = 512 * (1 + choice % 4096);
    bool follows = true;
    switch (choice / 2 % 16) {
      case 0:
      case 1:
        open.emplace_back();
        recorder.open_scope(open.back().scope);
        open.back().expected = begin_at(before);
        break;
      case 2:
        if (open.empty()) break;
        recorder.close_scope(std::next(open.begin(), choice % static_cast<int>(open.size()))->scope);
        open.erase(std::next(open.begin(), choice % static_cast<int>(open.size())));
        break;
      case 3:
        recorder.reset_peaks();
        follows = false;
        break;
      case 4:
        recorder.reset_accumulated();
        follows = false;
        break;
      case 5:
        recorder.out_of_memory();
        break;
      case 6:
      case 7:
      case 8:
      case 9:
        if (live.empty()) break;
        recorder.free_requested(live.back().first, live.back().second, false);
        recorder.free_completed(live.back().first, live.back().second, live.back().second, {});
        live.pop_back();
        break;
      default:
        recorder.block_allocated(pool, bytes, bytes, {}, false);
        live.emplace_back(pool, bytes);
        break;
    }
    const MemoryStats after = recorder.stats();
    if (follows)
      for (Watched& watched : open) follow(watched.expected, before, after);
    for (const Watched& watched : open) {
      MemoryStats stats = recorder.scope_stats(watched.scope);
      stats.max_split_size = watched.expected.max_split_size;
      RC_ASSERT(stats == watched.expected);
    }
  }
}

}  // namespace
}  // namespace cistern
