#include <cistern/allocator.h>
#include <cistern/mem_pool.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>

#include <random>

#include "tests/byte_units.h"
#include "tests/command/command_fixture.h"
#include "tests/command/made_snapshot.h"
#include "tools/placement.h"
#include "tools/recorded_policy.h"
#include "tools/snapshot_reader.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What is predicted from a snapshot of a heap is what the heap does next.
class PredictedHeap {
 public:
  explicit PredictedHeap(const std::string& options)
      : allocator_({&driver_.api(), AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))}),
        streams_{nullptr, driver_.create_stream()} {}

  void run(std::uint64_t seed, int steps) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      if (!live_.empty() && random() % 100 < 45)
        give(random());
      else if (random() % 100 < 2)
        allocator_.empty_cache();
      else
        take(size_of(random), streams_[random() % streams_.size()]);
    }
  }

  int hits = 0;
  int misses = 0;

 private:
  static std::size_t size_of(std::mt19937_64& random) {
    const std::size_t most = std::size_t{1} << (4 + random() % 22);
    return 1 + random() % most;
  }

  void give(std::uint64_t number) {
    const auto place = live_.begin() + static_cast<std::ptrdiff_t>(number % live_.size());
    allocator_.deallocate(*place);
    live_.erase(place);
  }

  void take(std::size_t bytes, StreamHandle stream) {
    const Snapshot before = allocator_.snapshot();
    const auto handle = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stream));
    const Placement placement = place(before, allocator_.options(), {bytes, handle, 0, {0, 0}});
    void* pointer = allocator_.allocate(bytes, stream);
    live_.push_back(pointer);
    const Snapshot after = allocator_.snapshot();
    const auto [segment, block] = find(after, reinterpret_cast<std::uintptr_t>(pointer));
    SCOPED_TRACE(::testing::Message() << bytes << " bytes on stream " << handle);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(segment->is_large, placement.is_large);
    if (!placement.served_by && placement.expands) {
      ++misses;
      if (placement.growth.address != 0) {
        EXPECT_EQ(block->address, placement.growth.address);
      }
      EXPECT_EQ(block->size, placement.new_block_bytes);
      EXPECT_EQ(reserved(after) - reserved(before), static_cast<std::int64_t>(placement.growth.mapped_bytes));
      return;
    }
    if (placement.served_by) {
      ++hits;
      EXPECT_EQ(after.segments.size(), before.segments.size());
      EXPECT_EQ(block->address, placement.served_by->address);
      EXPECT_EQ(segment->address, placement.served_by->segment);
      EXPECT_EQ(block->size, placement.served_by->bytes);
      return;
    }
    ++misses;
    EXPECT_EQ(after.segments.size(), before.segments.size() + 1);
    EXPECT_EQ(static_cast<std::size_t>(segment->total_size), placement.segment_bytes);
    EXPECT_EQ(block->size, placement.new_block_bytes);
  }

  static std::int64_t reserved(const Snapshot& snapshot) {
    std::int64_t bytes = 0;
    for (const SegmentInfo& segment : snapshot.segments) bytes += segment.total_size;
    return bytes;
  }

  static std::pair<const SegmentInfo*, const BlockInfo*> find(const Snapshot& snapshot, std::uint64_t address) {
    for (const SegmentInfo& segment : snapshot.segments)
      for (const BlockInfo& block : segment.blocks)
        if (block.address == address) return {&segment, &block};
    return {nullptr, nullptr};
  }

  SimulatedDriver driver_{[] {
    SimulatedOptions options;
    options.backing = Backing::none;
    return options;
  }()};
  CachingAllocator allocator_;
  std::vector<StreamHandle> streams_;
  std::vector<void*> live_;
};

TEST(Placement, IsWhatTheAllocatorThenDoes) {
  for (const char* options :
       {"", "max_split_size_mb:24", "roundup_power2_divisions:4", "max_split_size_mb:21,max_non_split_rounding_mb:30",
        "policy:direct", "expandable_segments:True", "expandable_segments:True,roundup_power2_divisions:4"}) {
    SCOPED_TRACE(options);
    int hits = 0;
    int misses = 0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      PredictedHeap heap(options);
      heap.run(seed, 400);
      hits += heap.hits;
      misses += heap.misses;
    }
    EXPECT_GT(misses, 50);
    EXPECT_EQ(hits > 50, std::string_view(options) != "policy:direct");
  }
}

// Gaps of 20 MiB before, between and behind segments that are free, in a range whose ends are known.
TEST(Placement, GapsAreFilledFromTheLowestPlaceInTheRangeThatHoldsTheRequest) {
  constexpr std::uint64_t base = 0x10000000;
  const auto at = [](std::int64_t mebibytes) { return base + static_cast<std::uint64_t>(mebibytes * kSignedMega); };
  Snapshot snapshot = make_snapshot({{at(20), {{15 * kSignedMega, kFree}, {5 * kSignedMega}}, 0, 0, {0, 0}, true},
                                     {at(60), {{20 * kSignedMega, kFree}}, 0, 0, {0, 0}, true},
                                     {at(100), {{8 * kSignedMega, kFree}, {12 * kSignedMega}}, 0, 0, {0, 0}, true}});
  for (SegmentInfo& segment : snapshot.segments) {
    segment.range_address = base;
    segment.range_size = 140 * kSignedMega;
  }
  const AllocatorOptions options = AllocatorOptions::parse("expandable_segments:True");
  const auto growth = [&](std::int64_t mebibytes) {
    return place(snapshot, options, {static_cast<std::size_t>(mebibytes * kSignedMega), 0, 0, {0, 0}}).growth;
  };
  EXPECT_EQ(growth(35).address, at(0));  // before the first segment, which is free at its beginning
  EXPECT_EQ(growth(35).mapped_bytes, 20u * kSignedMega);
  EXPECT_EQ(growth(35).block_bytes, 35u * kSignedMega);
  EXPECT_EQ(growth(66).address, at(40));
  EXPECT_EQ(growth(66).mapped_bytes, 40u * kSignedMega);  // both gaps beside the segment that is all free
  EXPECT_EQ(growth(66).block_bytes, 68u * kSignedMega);
  EXPECT_EQ(growth(69).address, 0u);  // nowhere in this range
  EXPECT_EQ(growth(69).mapped_bytes, 80u * kSignedMega);
}

class ExplainCommandTest : public CommandTest {
 protected:
  // Stream 0's large pool: 3 and 2 MiB free, 5 MiB pending beside the 3. Elsewhere: 6 MiB free of stream 7, 7 MiB of
  // a private pool, and 1 MiB of the small pool.
  ExplainCommandTest() {
    snapshot_ = make_snapshot(
        {{0x10000000, {{3 * kSignedMega, kFree}, {5 * kSignedMega, kPending}, {kSignedMega}, {2 * kSignedMega, kFree}}},
         {0x20000000, {{6 * kSignedMega, kFree}}, 7},
         {0x30000000, {{7 * kSignedMega, kFree}, {kSignedMega}}, 0, 0, {1, 0}},
         {0x40000000, {{kSignedMega}, {kSignedMega, kFree}}}});
  }

  Result explain(Arguments options) const {
    const std::string file = path(is_ours_ ? "s.json" : "s.pickle");
    is_ours_ ? write_json(snapshot_, file) : write_pickle(snapshot_, file);
    options.insert(options.begin(), {"explain", file});
    return run(options);
  }
  nlohmann::json explain_json(Arguments options) const {
    options.push_back("--json");
    const Result result = explain(options);
    EXPECT_EQ(result.status, kExitSuccess) << result.err;
    return nlohmann::json::parse(result.out);
  }
  static nlohmann::json unfit(const nlohmann::json& json, const std::string& reason) {
    for (const auto& each : json["other_free"])
      if (each["reason"] == reason) return each;
    return {};
  }

  Snapshot snapshot_;
  bool is_ours_ = false;  // the form that is explained
};

TEST_F(ExplainCommandTest, TheBestFitOfTheStreamsOwnPoolServes) {
  const auto json = explain_json({"1572864", "0"});
  EXPECT_EQ(json["rounded_bytes"], 1572864);
  EXPECT_EQ(json["segment_type"], "large");
  EXPECT_EQ(json["candidates"], 2);
  EXPECT_EQ(json["served_by"]["address"], 0x10900000);
  EXPECT_EQ(json["served_by"]["segment"], 0x10000000);
  EXPECT_EQ(json["served_by"]["block_bytes"], 2 * kSignedMega);  // what would be left is too little to split
  EXPECT_EQ(json["served_by"]["rest_bytes"], 0);
  EXPECT_EQ(unfit(json, "behind the best fit")["bytes"], 3 * kSignedMega);

  const auto split = explain_json({"1048577", "0x0"});
  EXPECT_EQ(split["served_by"]["address"], 0x10900000);
  EXPECT_EQ(explain_json({"2MiB", "7"})["served_by"]["rest_bytes"], 4 * kSignedMega);
  EXPECT_EQ(explain_json({"2MiB", "0", "--pool", "1,0"})["served_by"]["address"], 0x30000000);
  EXPECT_EQ(explain_json({"1", "0"})["served_by"]["address"], 0x40100000);
}

TEST_F(ExplainCommandTest, WhereNothingServesEachFreeByteHasItsReason) {
  const auto json = explain_json({"4MiB", "0"});
  EXPECT_EQ(json["served_by"], nullptr);
  EXPECT_EQ(json["reason"], "too small");
  EXPECT_EQ(json["candidates"], 0);
  EXPECT_EQ(json["new_segment"], (nlohmann::json{
                                     {"segment_bytes", 20 * kSignedMega},
                                     {"block_bytes", 4 * kSignedMega},
                                     {"rest_bytes", 16 * kSignedMega},
                                 }));
  const auto figures = [&](const char* reason) {
    const auto each = unfit(json, reason);
    return std::array<std::int64_t, 4>{each["blocks"], each["bytes"], each["largest"], each["large_enough"]};
  };
  using Figures = std::array<std::int64_t, 4>;
  EXPECT_EQ(figures("too small"), (Figures{2, 5 * kSignedMega, 3 * kSignedMega, 0}));
  EXPECT_EQ(figures("pending"), (Figures{1, 5 * kSignedMega, 5 * kSignedMega, 1}));
  EXPECT_EQ(figures("another stream"), (Figures{1, 6 * kSignedMega, 6 * kSignedMega, 1}));
  EXPECT_EQ(figures("another pool"), (Figures{1, 7 * kSignedMega, 7 * kSignedMega, 1}));
  EXPECT_EQ(figures("the other size class"), (Figures{1, kSignedMega, kSignedMega, 0}));
  EXPECT_EQ(json["other_free"].size(), 5u);
  EXPECT_EQ(json["largest_without_pending"], 8 * kSignedMega);
  EXPECT_EQ(json["flushed_segments"], 1);  // stream 7's; a private pool keeps its own
  EXPECT_EQ(json["flushed_bytes"], 6 * kSignedMega);
}

// With the option a refused request finds what a flush waited for, unless the flush gave it back.
TEST_F(ExplainCommandTest, WhatAFlushLeavesIsSearchedAgainIfTheOptionIsOn) {
  snapshot_ = make_snapshot(
      {{0x10000000, {{10 * kSignedMega, kPending}, {10 * kSignedMega}}}, {0x20000000, {{20 * kSignedMega, kPending}}}});
  EXPECT_EQ(explain_json({"8MiB", "0"})["found_after_flush"], nullptr);
  snapshot_.settings.text = "research_after_flush:True";
  EXPECT_EQ(explain_json({"8MiB", "0"})["found_after_flush"], 10 * kSignedMega);
  EXPECT_THAT(explain({"8MiB", "0"}).out, HasSubstr("and a block of 10485760 bytes (10.00 MiB) serves"));
  EXPECT_EQ(explain_json({"16MiB", "0"})["found_after_flush"], nullptr) << "its segment went back whole";
  snapshot_.segments[0].is_expandable = true;
  EXPECT_EQ(explain_json({"3MiB", "0"})["found_after_flush"], nullptr) << "these serve nobody under classic";
  snapshot_.settings.expandable_segments = true;
  snapshot_.segments[1].is_expandable = true;
  EXPECT_EQ(explain_json({"8MiB", "0"})["found_after_flush"], 10 * kSignedMega) << "less than a page";
  EXPECT_EQ(explain_json({"16MiB", "0"})["found_after_flush"], nullptr) << "its page went back";
}

TEST_F(ExplainCommandTest, TheRecordedLimitOfSplittingHolds) {
  snapshot_ = make_snapshot({{0x10000000, {{30 * kSignedMega, kFree}, {kSignedMega}}},
                             {0x20000000, {{22 * kSignedMega, kFree}, {kSignedMega}}}});
  EXPECT_NE(explain_json({"25MiB", "0"})["served_by"], nullptr);
  snapshot_.settings.max_split_size = 28 * kSignedMega;
  const auto json = explain_json({"25MiB", "0"});
  EXPECT_EQ(json["served_by"], nullptr);
  EXPECT_EQ(json["reason"], "max_split_size");
  EXPECT_EQ(unfit(json, "max_split_size")["bytes"], 30 * kSignedMega);
  // Above it a block of less than 20 MiB more serves, whole.
  EXPECT_EQ(explain_json({"29MiB", "0"})["served_by"]["block_bytes"], 30 * kSignedMega);
}

TEST_F(ExplainCommandTest, TheRecordedPolicyDecides) {
  snapshot_.settings.roundup_power2_divisions[2] = 2;
  EXPECT_EQ(explain_json({"2097153", "0"})["rounded_bytes"], 3 * kSignedMega);
  snapshot_.settings.text = "policy:direct";
  const auto json = explain_json({"2MiB", "0"});
  EXPECT_EQ(json["policy"], "direct");
  EXPECT_EQ(json["reason"], "policy direct");
  EXPECT_EQ(json["new_segment"]["segment_bytes"], 2 * kSignedMega);
  EXPECT_THAT(explain({"2MiB", "0"}).out, HasSubstr("there is no cache to give back"));
  snapshot_.settings.text = "backend:cudaMallocAsync";
  expect_refused(explain({"2MiB", "0"}), {"policy async"});
}

TEST_F(ExplainCommandTest, PagedMemoryIsNotGuessedAt) {
  is_ours_ = true;
  snapshot_.settings.policy = "paged";
  expect_refused(explain({"2MiB", "0"}), {"s.json", "policy paged"});
  EXPECT_EQ(explain_json({"2MiB", "0", "--pool", "1,0"})["served_by"]["address"], 0x30000000);
}

// In our own form: PyTorch's have no such keys.
TEST_F(ExplainCommandTest, WhatIsRecordedHoldsWhateverTheTextSays) {
  is_ours_ = true;
  snapshot_.settings.text = "expandable_segments:True";
  EXPECT_EQ(explain_json({"2MiB", "0"})["policy"], "classic") << "expandable_segments is recorded as false";
  snapshot_.settings.policy = "direct";
  EXPECT_EQ(explain_json({"2MiB", "0"})["policy"], "direct");
  snapshot_.settings.policy = "expandable,policy:direct";
  expect_refused(explain({"2MiB", "0"}), {"allocator_settings.policy: expandable,policy:direct", "expected"});
  snapshot_.settings.policy = "classic";
  snapshot_.settings.pytorch_rules = "3";
  expect_refused(explain({"2MiB", "0"}), {"allocator_settings.pytorch_rules: 3", "expected"});
}

TEST_F(ExplainCommandTest, AHeapThatWasGivenItsOptionsAsAStructIsExplainedByThem) {
  SimulatedDriver driver({.capacity_bytes = 1 << 30, .backing = Backing::none});
  AllocatorOptions options;
  options.policy = Policy::expandable;
  options.pytorch_rules = PytorchRules::v2_4;
  options.max_split_size_bytes = 28 * kSignedMega;
  options.max_non_split_rounding_bytes = 20 * kSignedMega;
  CachingAllocator allocator({&driver.api(), options});
  static_cast<void>(allocator.allocate(1000));
  std::ostringstream out;
  write_json(allocator.snapshot(), out);
  const AllocatorOptions read = recorded_policy(parse_snapshot(out.str(), "s").settings, "s").options;
  EXPECT_EQ(read.policy, options.policy);
  EXPECT_EQ(read.pytorch_rules, options.pytorch_rules);
  EXPECT_EQ(read.max_split_size_bytes, options.max_split_size_bytes);
  EXPECT_EQ(read.max_non_split_rounding_bytes, options.max_non_split_rounding_bytes);
}

TEST_F(ExplainCommandTest, ExpandableSegmentsServeNoRequestOfPolicyClassic) {
  snapshot_ = make_snapshot({{0x10000000, {{30 * kSignedMega, kFree}, {kSignedMega}}, 0, 0, {0, 0}, true}});
  const auto json = explain_json({"25MiB", "0"});
  EXPECT_EQ(json["served_by"], nullptr);
  EXPECT_EQ(json["reason"], "expandable segment");
}

TEST_F(ExplainCommandTest, ExpandableSegmentsGrowByThePage) {
  snapshot_ = make_snapshot(
      {{0x10000000, {{30 * kSignedMega, kFree}, {10 * kSignedMega}}, 0, 0, {0, 0}, true},
       {0x14000000, {{10 * kSignedMega}, {2 * kSignedMega, kFree}, {8 * kSignedMega, kPending}}, 0, 0, {0, 0}, true},
       {0x18000000, {{15 * kSignedMega}, {5 * kSignedMega, kFree}}, 0, 0, {0, 0}, true}});
  snapshot_.settings.expandable_segments = true;
  const auto served = explain_json({"4MiB", "0"});
  EXPECT_EQ(served["policy"], "expandable");
  // The smaller block is left for what needs the open end behind it.
  EXPECT_EQ(served["served_by"]["address"], 0x10000000);
  EXPECT_EQ(unfit(served, "room to grow behind it")["bytes"], 5 * kSignedMega);
  // Between the first segment and the second 24 MiB are not mapped, behind the second 44.
  const auto between = explain_json({"31MiB", "0"});
  EXPECT_EQ(between["served_by"], nullptr);
  EXPECT_EQ(between["new_pages"], (nlohmann::json{{"address", 0x15400000},
                                                  {"page_bytes", 20 * kSignedMega},
                                                  {"mapped_bytes", 40 * kSignedMega},
                                                  {"block_bytes", 31 * kSignedMega},
                                                  {"rest_bytes", 9 * kSignedMega}}));
  const auto behind = explain_json({"60MiB", "0"});
  EXPECT_EQ(behind["new_pages"]["address"], 0x18F00000);
  EXPECT_EQ(behind["new_pages"]["mapped_bytes"], 60 * kSignedMega);
  EXPECT_EQ(behind["flushed_bytes"], 20 * kSignedMega);  // whole pages alone
  const auto elsewhere = explain_json({"60MiB", "7"});
  EXPECT_EQ(elsewhere["new_pages"]["address"], 0);
  const std::string text = explain({"60MiB", "0"}).out;
  EXPECT_THAT(text, HasSubstr("asked for 3 pages of 20971520 bytes (20.00 MiB) for a block at 0x18f00000\n"));
  EXPECT_THAT(explain({"1", "7"}).out, HasSubstr("1 page of 2097152 bytes (2.00 MiB) in a new expandable segment\n"));
}

TEST_F(ExplainCommandTest, OptionsOfALaterPyTorchAreNotedAndTheRestHolds) {
  snapshot_.settings.text = "key_of_tomorrow:1,max_split_size_mb:28";
  snapshot_.settings.max_split_size = 28 * kSignedMega;
  const Result result = explain({"2MiB", "0", "--json"});
  EXPECT_EQ(result.status, kExitSuccess);
  EXPECT_EQ(result.error_lines(), 1);
  EXPECT_THAT(result.err, HasSubstr("key_of_tomorrow"));
  EXPECT_THAT(result.out, HasSubstr("key_of_tomorrow"));
}

TEST_F(ExplainCommandTest, TheTextSaysWhatWouldHappen) {
  const std::string served = explain({"2MiB", "7"}).out;
  EXPECT_THAT(served, HasSubstr("request    2097152 bytes (2.00 MiB), stream 7, device 0, pool 0,0\n"));
  EXPECT_THAT(served, HasSubstr("served by  0x20000000, in the segment at 0x20000000: the best fit of 1 free block "));
  EXPECT_THAT(served, HasSubstr("split: 4194304 bytes (4.00 MiB) stay free behind it\n"));
  EXPECT_THAT(served, Not(HasSubstr("driver")));
  const std::string missed = explain({"4MiB", "0"}).out;
  EXPECT_THAT(missed, HasSubstr("served by  none: no free block of this stream's pool is large enough\n"));
  EXPECT_THAT(missed, HasSubstr("once the pending frees are done, a block of 8388608 bytes (8.00 MiB) can serve\n"));
  EXPECT_THAT(missed, HasSubstr("then       the driver is asked for a segment of 20971520 bytes (20.00 MiB)\n"));
  EXPECT_THAT(missed, HasSubstr("a flush gives back 6291456 bytes (6.00 MiB) of 1 segment,"));
  EXPECT_THAT(missed, HasSubstr("another stream"));
  snapshot_ = make_snapshot({});
  EXPECT_THAT(explain({"4MiB", "0"}).out, HasSubstr("no other free memory on the device\n"));
}

TEST_F(ExplainCommandTest, RequestsThatNoAllocatorTakesAreRefused) {
  expect_refused(explain({"0", "0"}), {"SIZE 0", "expected 1 to"});
  expect_refused(explain({"1152921504606846976", "0"}), {"SIZE 1152921504606846976", "expected 1 to"});
  EXPECT_EQ(explain({"1152921504606846975", "0"}).status, kExitSuccess);
  expect_refused(explain({"4MiB", "stream"}), {"STREAM", "'stream'", "handle"});
  expect_refused(explain({"4 MiB", "0"}), {"SIZE", "'4 MiB'"});
  expect_refused(explain({"4MiB"}), {"cistern explain", "STREAM"});
  expect_refused(explain({"4MiB", "0", "--device", "1"}), {"--device 1", "less than 1"});
  snapshot_.settings.roundup_power2_divisions[2] = 3;
  expect_refused(explain({"4MiB", "0"}), {"s.pickle", "roundup_power2_divisions", "3"});
}

}  // namespace
}  // namespace cistern
