// The allocator against its executable specification, after every operation of random
// programs over streams, pools, limits and pending frees that complete in random order.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "comparison.h"
#include "steps.h"
#include "tests/property.h"

namespace cistern {
namespace {

[[maybe_unused]] const bool model_configured = configure_properties("Model", 3000, 160);

RC_GTEST_PROP(Model, EqualWithRoomToSpare, ()) { run_random_program({"roomy", 4096 * kMega, ""}); }

// Streams serve themselves as long as nothing waits for events.
RC_GTEST_PROP(Model, EqualWhereNobodyLooksBetween, ()) {
  run_random_program({"seldom", 4096 * kMega, "", 0, false, true});
}

RC_GTEST_PROP(Model, EqualWhereNobodyLooksAndMemoryIsTight, ()) {
  run_random_program({"seldom and tight", 160 * kMega, "", 0, false, true});
}

RC_GTEST_PROP(Model, EqualWhereNobodyLooksAtTags, ()) {
  run_random_program({"seldom tagged", 4096 * kMega, "", 0, false, true, false, true});
}

RC_GTEST_PROP(Model, EqualWhereNobodyLooksAtTagsAndMemoryIsTight, ()) {
  run_random_program({"seldom tagged and tight", 160 * kMega, "expandable_segments:True", 0, false, true, false, true});
}

RC_GTEST_PROP(Model, EqualWhereNobodyLooksAndSegmentsExpand, ()) {
  run_random_program({"seldom expandable", 4096 * kMega, "expandable_segments:True", 0, false, true});
}

RC_GTEST_PROP(Model, EqualWhereNobodyLooksAndExpandableSegmentsAreTight, ()) {
  run_random_program({"seldom and tight expandable", 160 * kMega, "expandable_segments:True", 0, false, true});
}

RC_GTEST_PROP(Model, EqualWhereNobodyLooksWithASplitLimit, ()) {
  run_random_program({"seldom split", 400 * kMega, "max_split_size_mb:32", 0, false, true});
}

RC_GTEST_PROP(Model, EqualWhereNobodyLooksAndGarbageIsCollected, ()) {
  run_random_program({"seldom collecting", 512 * kMega,
                      "garbage_collection_threshold:0.4,per_process_memory_fraction:0.5", 0, false, true});
}

RC_GTEST_PROP(Model, EqualWhenMemoryIsTight, ()) { run_random_program({"tight", 160 * kMega, ""}); }

RC_GTEST_PROP(Model, EqualWithASplitLimit, ()) {
  run_random_program({"split", 240 * kMega, "max_split_size_mb:32,max_non_split_rounding_mb:24"});
}

RC_GTEST_PROP(Model, EqualWithDivisions, ()) {
  run_random_program({"divisions", 400 * kMega, "roundup_power2_divisions:[1:4,8:8,32:2,>:4]"});
}

RC_GTEST_PROP(Model, EqualWithGarbageCollection, ()) {
  run_random_program({"collecting", 512 * kMega, "garbage_collection_threshold:0.4,per_process_memory_fraction:0.5"});
}

RC_GTEST_PROP(Model, EqualWhenSearchingAgainAfterAFlush, ()) {
  run_random_program({"research", 160 * kMega, "research_after_flush:True"});
}

RC_GTEST_PROP(Model, EqualWithPrivatePools, ()) { run_random_program({"pools", 4096 * kMega, "", 1}); }

RC_GTEST_PROP(Model, EqualWithPrivatePoolsWhenMemoryIsTight, ()) {
  run_random_program({"tight pools", 160 * kMega, "", 1});
}

RC_GTEST_PROP(Model, EqualWithPrivatePoolsUnder24, ()) {
  run_random_program({"pools of 2.4", 160 * kMega, "pytorch_rules:2.4", 1});
}

RC_GTEST_PROP(Model, EqualWithPrivatePoolsAndGarbageCollection, ()) {
  run_random_program({"collecting pools", 400 * kMega,
                      "garbage_collection_threshold:0.4,per_process_memory_fraction:0.5,max_split_size_mb:40", 1});
}

RC_GTEST_PROP(Model, EqualWithExpandableSegments, ()) {
  run_random_program({"expandable", 4096 * kMega, "expandable_segments:True"});
}

RC_GTEST_PROP(Model, EqualWithExpandableSegmentsWhenMemoryIsTight, ()) {
  run_random_program({"tight expandable", 160 * kMega, "expandable_segments:True"});
}

RC_GTEST_PROP(Model, EqualWithExpandableSegmentsAndASplitLimit, ()) {
  run_random_program(
      {"split expandable", 240 * kMega, "expandable_segments:True,max_split_size_mb:32,max_non_split_rounding_mb:24"});
}

RC_GTEST_PROP(Model, EqualWithExpandableSegmentsAndAFraction, ()) {
  run_random_program({"limited expandable", 512 * kMega,
                      "expandable_segments:True,garbage_collection_threshold:0.4,per_process_memory_fraction:0.5"});
}

RC_GTEST_PROP(Model, EqualWithExpandableSegmentsInPrivatePools, ()) {
  run_random_program({"expandable pools", 400 * kMega, "expandable_segments:True", 1});
}

RC_GTEST_PROP(Model, EqualWithExpandableSegmentsUnder24, ()) {
  run_random_program({"expandable pools of 2.4", 240 * kMega, "expandable_segments:True,pytorch_rules:2.4", 1});
}

RC_GTEST_PROP(Model, EqualInPagedMemory, ()) {
  run_random_program({"paged", 4096 * kMega, "policy:paged,stream_hand_over:done", 0, false, false, true});
}

RC_GTEST_PROP(Model, EqualWhenExpandableSegmentsAreSwitched, ()) {
  run_random_program({"switched", 240 * kMega, "expandable_segments:True", 0, true});
}

RC_GTEST_PROP(Model, EqualWhenExpandableSegmentsAreSwitchedWithASplitLimit, ()) {
  run_random_program({"switched pools", 400 * kMega, "max_split_size_mb:32", 1, true});
}

}  // namespace
}  // namespace cistern
