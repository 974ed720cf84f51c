#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/options/refusal.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> idle(std::string_view text, const AllocatorOptions& base = {}) {
  return AllocatorOptions::parse(text, base).without_effect;
}

TEST(OptionsWithoutEffect, KnownKeysOfPytorchAreListedWithTheReason) {
  EXPECT_THAT(
      idle("release_lock_on_cudamalloc:True"),
      ElementsAre("release_lock_on_cudamalloc: cistern never holds a lock across a driver call that can block"));
  EXPECT_THAT(idle("pinned_num_register_threads:8,pinned_use_cuda_host_register:True"), IsEmpty());
  EXPECT_THAT(idle("pinned_num_register_threads:8"),
              ElementsAre("pinned_num_register_threads: acts only with pinned_use_cuda_host_register:True"));
}

TEST(OptionsWithoutEffect, MemoryDecaysUnderPolicyPagedAlone) {
  EXPECT_THAT(idle("policy:classic,decay_ms:250"), ElementsAre("decay_ms: acts under policy paged alone"));
  EXPECT_THAT(idle("decay_ms:250,policy:paged"), IsEmpty());
  EXPECT_THAT(idle("decay_ms:250", AllocatorOptions::parse("policy:paged")), IsEmpty());
}

TEST(OptionsWithoutEffect, EveryKeyOfPytorchIsKnown) {
  for (const char* pair :
       {"throw_on_cudamalloc_oom:True", "large_segment_size_mb:32", "expandable_segments_reserve:0.5",
        "expandable_segments_reserve:64G", "expandable_segments_reserve_by_class:[small:1]",
        "release_lock_on_hipmalloc:True", "pinned_use_background_threads:True", "pinned_reserve_segment_size_mb:64",
        "pinned_max_round_threshold_mb:16", "pinned_max_cached_size_mb:16", "pinned_free_catch_all:True"})
    EXPECT_EQ(idle(pair).size(), 1u) << pair;
}

TEST(OptionsWithoutEffect, ValuesThatAskForWhatHappensAnywayAreNotListed) {
  EXPECT_THAT(idle("release_lock_on_cudamalloc:False,pinned_num_register_threads:1,throw_on_cudamalloc_oom:False,"
                   "large_segment_size_mb:20"),
              IsEmpty());
}

TEST(OptionsWithoutEffect, TheirValuesAreCheckedAllTheSame) {
  for (const char* pair :
       {"release_lock_on_cudamalloc:yes", "graph_capture_record_stream_reuse:1", "throw_on_cudamalloc_oom:true",
        "large_segment_size_mb:10", "large_segment_size_mb:-1", "expandable_segments_reserve:lots",
        "expandable_segments_reserve:G", "expandable_segments_reserve:-1", "expandable_segments_reserve_by_class:8",
        "pinned_reserve_segment_size_mb:0", "pinned_max_cached_size_mb:8x", "pinned_free_catch_all:0"}) {
    const std::string text = pair;
    EXPECT_THAT(refusal(text), AllOf(HasSubstr(text.substr(0, text.find(':'))), HasSubstr("expected"))) << pair;
  }
}

TEST(OptionsWithoutEffect, RegisterThreadsHaveTwoDifferentErrors) {
  EXPECT_THAT(refusal("pinned_num_register_threads:12"), HasSubstr("expected a power of two"));
  EXPECT_THAT(refusal("pinned_num_register_threads:0"), HasSubstr("expected a power of two"));
  EXPECT_THAT(refusal("pinned_num_register_threads:256"), HasSubstr("expected at most 128"));
  EXPECT_EQ(idle("pinned_num_register_threads:128").size(), 1u);
}

TEST(OptionsWithoutEffect, ThresholdWithoutAFractionDoesNothing) {
  EXPECT_THAT(idle("garbage_collection_threshold:0.8"), ElementsAre(StartsWith("garbage_collection_threshold: ")));
  EXPECT_THAT(idle("garbage_collection_threshold:0.8,per_process_memory_fraction:0.5"), IsEmpty());
  AllocatorOptions base;
  base.per_process_memory_fraction = 0.5;  // kept, since the text does not name it
  EXPECT_THAT(idle("garbage_collection_threshold:0.8", base), IsEmpty());
}

TEST(OptionsWithoutEffect, FractionOfOneIsALimitUnderTheOldRulesOnly) {
  EXPECT_EQ(idle("garbage_collection_threshold:0.8,per_process_memory_fraction:1").size(), 1u);
  EXPECT_THAT(idle("garbage_collection_threshold:0.8,per_process_memory_fraction:1,pytorch_rules:2.4"), IsEmpty());
  EXPECT_EQ(idle("garbage_collection_threshold:0.8,pytorch_rules:2.4").size(), 1u);
}

TEST(OptionsWithoutEffect, NonSplitRoundingNeedsASplitLimitAndTheCurrentRules) {
  EXPECT_THAT(idle("policy:classic,max_non_split_rounding_mb:40"),
              ElementsAre(HasSubstr("acts only with max_split_size_mb")));
  EXPECT_THAT(idle("policy:classic,max_non_split_rounding_mb:40,max_split_size_mb:100"), IsEmpty());
  const AllocatorOptions old_rules =
      AllocatorOptions::parse("policy:classic,max_non_split_rounding_mb:40,max_split_size_mb:100,pytorch_rules:2.4");
  EXPECT_THAT(old_rules.without_effect, ElementsAre(HasSubstr("is 20 MiB under pytorch_rules:2.4")));
  EXPECT_EQ(old_rules.max_non_split_rounding_bytes, std::size_t{20} << 20);
}

TEST(OptionsWithoutEffect, ReuseWithinACaptureNeedsTheCurrentRules) {
  EXPECT_THAT(idle("graph_capture_record_stream_reuse:True"), IsEmpty());
  EXPECT_TRUE(AllocatorOptions::parse("graph_capture_record_stream_reuse:True").graph_capture_record_stream_reuse);
  const AllocatorOptions old_rules =
      AllocatorOptions::parse("graph_capture_record_stream_reuse:True,pytorch_rules:2.4");
  EXPECT_THAT(old_rules.without_effect, ElementsAre(StartsWith("graph_capture_record_stream_reuse: ")));
  EXPECT_FALSE(old_rules.graph_capture_record_stream_reuse);
  EXPECT_THAT(idle("graph_capture_record_stream_reuse:False,pytorch_rules:2.4"), IsEmpty());
}

TEST(OptionsWithoutEffect, DirectCachesNothing) {
  EXPECT_THAT(idle("policy:direct,max_split_size_mb:100,roundup_power2_divisions:4"),
              ElementsAre("max_split_size_mb: policy direct caches nothing",
                          "roundup_power2_divisions: policy direct caches nothing"));
}

}  // namespace
}  // namespace cistern
