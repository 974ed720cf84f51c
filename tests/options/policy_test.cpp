#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/options_keys.h"
#include "tests/options/refusal.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PolicyOption, PoliciesAreChosenByName) {
  EXPECT_EQ(AllocatorOptions::parse("policy:classic").policy, Policy::classic);
  EXPECT_EQ(AllocatorOptions::parse("policy:expandable").policy, Policy::expandable);
  EXPECT_EQ(AllocatorOptions::parse("policy:paged").policy, Policy::paged);
  EXPECT_EQ(AllocatorOptions::parse("policy:direct").policy, Policy::direct);
  EXPECT_EQ(AllocatorOptions::parse("policy:async").policy, Policy::async);
}

TEST(PolicyOption, UnknownPolicyIsAnInvalidArgument) {
  EXPECT_THAT(refusal("policy:fast"), AllOf(HasSubstr("'policy'"), HasSubstr("'fast'"),
                                            HasSubstr("classic or expandable or paged or async or direct")));
}

TEST(PolicyOption, PytorchsWaysToAskForAPolicyAreTheSame) {
  EXPECT_EQ(AllocatorOptions::parse("expandable_segments:True").policy, Policy::expandable);
  EXPECT_EQ(AllocatorOptions::parse("backend:cudaMallocAsync").policy, Policy::async);
  EXPECT_EQ(AllocatorOptions::parse("backend:native,expandable_segments:False").policy, Policy::paged)
      << "they say what is not wanted, and the default is neither";
  EXPECT_TRUE(AllocatorOptions::parse("backend:native,expandable_segments:False").without_effect.empty());
  EXPECT_THAT(refusal("backend:async"), HasSubstr("native or cudaMallocAsync"));
}

TEST(PolicyOption, ExpandableSegmentsStayOnUntilATextTurnsThemOff) {
  const AllocatorOptions on = AllocatorOptions::parse("expandable_segments:True");
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:64", on).policy, Policy::expandable);
  EXPECT_EQ(AllocatorOptions::parse("expandable_segments:False", on).policy, Policy::classic);
  const AllocatorOptions direct = AllocatorOptions::parse("policy:direct");
  EXPECT_EQ(AllocatorOptions::parse("expandable_segments:False", direct).policy, Policy::direct);
  const AllocatorOptions async = AllocatorOptions::parse("backend:cudaMallocAsync");
  EXPECT_EQ(AllocatorOptions::parse("expandable_segments:False", async).policy, Policy::async);
  EXPECT_EQ(AllocatorOptions::parse("backend:native", async).policy, Policy::classic);
}

TEST(PolicyOption, ContradictionsAreNamedFromBothSides) {
  EXPECT_THAT(refusal("policy:classic,expandable_segments:True"),
              AllOf(HasSubstr("'expandable_segments'"), HasSubstr("contradicts 'policy:classic'")));
  EXPECT_THAT(refusal("expandable_segments:True,policy:direct"), HasSubstr("contradicts 'policy:direct'"));
  EXPECT_THAT(refusal("policy:expandable,expandable_segments:False"), HasSubstr("contradicts 'policy:expandable'"));
  EXPECT_THAT(refusal("backend:cudaMallocAsync,policy:classic"), HasSubstr("contradicts 'policy:classic'"));
  EXPECT_THAT(refusal("backend:native,policy:async"), HasSubstr("contradicts 'policy:async'"));
  EXPECT_THAT(refusal("backend:cudaMallocAsync,expandable_segments:True"),
              HasSubstr("contradicts 'backend:cudaMallocAsync'"));
}

TEST(PolicyOption, AgreeingKeysAreNoContradiction) {
  EXPECT_EQ(AllocatorOptions::parse("policy:expandable,expandable_segments:True,backend:native").policy,
            Policy::expandable);
  EXPECT_EQ(AllocatorOptions::parse("policy:async,backend:cudaMallocAsync").policy, Policy::async);
  EXPECT_EQ(AllocatorOptions::parse("policy:direct,backend:native,expandable_segments:False").policy, Policy::direct);
}

TEST(PolicyOption, EveryPolicyHasAName) {
  EXPECT_STREQ(to_string(Policy::classic), "classic");
  EXPECT_STREQ(to_string(Policy::expandable), "expandable");
  EXPECT_STREQ(to_string(Policy::paged), "paged");
  EXPECT_STREQ(to_string(Policy::async), "async");
  EXPECT_STREQ(to_string(Policy::direct), "direct");
}

}  // namespace
}  // namespace cistern
