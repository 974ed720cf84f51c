#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/byte_units.h"
#include "tests/options/refusal.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(OptionsGrammar, EmptyTextLeavesTheDefaults) {
  const AllocatorOptions options = AllocatorOptions::parse("");
  EXPECT_EQ(options.policy, Policy::paged);
  EXPECT_EQ(options.max_split_size_bytes, kUnlimited);
  EXPECT_EQ(options.max_non_split_rounding_bytes, 20 * kMega);
  EXPECT_EQ(options.garbage_collection_threshold, 0.0);
  EXPECT_EQ(options.per_process_memory_fraction, 1.0);
  EXPECT_FALSE(options.fraction_given);
  EXPECT_TRUE(options.without_effect.empty());
}

TEST(OptionsGrammar, TrailingCommaIsAccepted) {
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:32,").max_split_size_bytes, 32 * kMega);
}

TEST(OptionsGrammar, WhiteSpaceIsDroppedEvenInsideWords) {
  const AllocatorOptions options =
      AllocatorOptions::parse(" max_split _size_mb :\t3 2 ,\n roundup_power2_divisions : [ 1 : 4 , > : 8 ] ");
  EXPECT_EQ(options.max_split_size_bytes, 32 * kMega);
  EXPECT_EQ(options.roundup_power2_divisions[0], 4u);
  EXPECT_EQ(options.roundup_power2_divisions[1], 8u);
}

TEST(OptionsGrammar, OfADuplicateKeyTheLastWins) {
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:32,max_split_size_mb:64").max_split_size_bytes, 64 * kMega);
  EXPECT_EQ(AllocatorOptions::parse("policy:direct,policy:classic").policy, Policy::classic);
  EXPECT_EQ(AllocatorOptions::parse("policy:paged,policy:direct").policy, Policy::direct);
  EXPECT_TRUE(
      AllocatorOptions::parse("throw_on_cudamalloc_oom:True,throw_on_cudamalloc_oom:False").without_effect.empty());
}

TEST(OptionsGrammar, TheTextIsKeptAsItWasGiven) {
  EXPECT_EQ(AllocatorOptions::parse(" max_split_size_mb : 32,").text, " max_split_size_mb : 32,");
}

TEST(OptionsGrammar, WrongSeparatorsAreRefusedNamingWhatStandsThere) {
  EXPECT_THAT(refusal("max_split_size_mb=100"), AllOf(HasSubstr("max_split_size_mb=100"), HasSubstr("expected ':'")));
  EXPECT_THAT(refusal("max_split_size_mb,100"), AllOf(HasSubstr("'max_split_size_mb'"), HasSubstr("expected ':'")));
  EXPECT_THAT(refusal("max_split_size_mb:100:200"), AllOf(HasSubstr("':200'"), HasSubstr("expected ','")));
  EXPECT_THAT(refusal("max_split_size_mb:100;policy:direct"), HasSubstr("':direct'"));
}

TEST(OptionsGrammar, MissingPartsAreRefused) {
  EXPECT_THAT(refusal(","), HasSubstr("expected a key"));
  EXPECT_THAT(refusal("policy:classic,,max_split_size_mb:32"), HasSubstr("expected a key"));
  EXPECT_THAT(refusal(":classic"), HasSubstr("expected a key"));
  EXPECT_THAT(refusal("policy:"), AllOf(HasSubstr("'policy'"), HasSubstr("expected a value")));
  EXPECT_THAT(refusal("policy"), HasSubstr("the end of the text"));
}

TEST(OptionsGrammar, MalformedListsAreRefused) {
  for (const char* list : {"[", "[]", "[1]", "[1:", "[1:2", "[1:2,", "[1:2,]", "[:2]", "[1:2]]", "[[1:2]]", "]"})
    EXPECT_THAT(refusal(std::string("roundup_power2_divisions:") + list),
                AllOf(HasSubstr("roundup_power2_divisions"), HasSubstr("expected")))
        << list;
}

TEST(OptionsGrammar, ListWhereAWordBelongsIsRefused) {
  for (const char* key : {"max_split_size_mb", "policy", "garbage_collection_threshold", "research_after_flush",
                          "oom_dump", "pinned_num_register_threads"})
    EXPECT_THAT(refusal(std::string(key) + ":[1:2]"), AllOf(HasSubstr(key), HasSubstr("not a list")));
}

TEST(OptionsGrammar, ErrorsAreOneLineWhateverTheyQuote) {
  const std::string text = "policy:\x01\x7f\xff" + std::string(5000, 'x');
  EXPECT_THAT(refusal(text), AllOf(HasSubstr("\\x01\\x7f\\xff"), HasSubstr("...'"), Not(HasSubstr("\x01"))));
  EXPECT_LT(refusal(text).size(), 300u);
}

TEST(OptionsGrammar, TextResetsSomeOptionsAndKeepsTheOthers) {
  const AllocatorOptions base = AllocatorOptions::parse(
      "policy:direct,pytorch_rules:2.4,max_split_size_mb:32,roundup_power2_divisions:4,"
      "garbage_collection_threshold:0.5,per_process_memory_fraction:0.25,research_after_flush:True,oom_dump:off,"
      "summary_title:PyTorch,release_lock_on_cudamalloc:True");
  ASSERT_EQ(base.max_split_size_bytes, 32 * kMega);

  const AllocatorOptions options = AllocatorOptions::parse("", base);
  EXPECT_EQ(options.max_split_size_bytes, kUnlimited);
  EXPECT_EQ(options.roundup_power2_divisions, AllocatorOptions{}.roundup_power2_divisions);
  EXPECT_EQ(options.garbage_collection_threshold, 0.0);
  EXPECT_EQ(options.policy, Policy::direct);
  EXPECT_EQ(options.pytorch_rules, PytorchRules::v2_4);
  EXPECT_EQ(options.per_process_memory_fraction, 0.25);
  EXPECT_TRUE(options.research_after_flush);
  EXPECT_EQ(options.oom_dump, "off");
  EXPECT_EQ(options.summary_title, "PyTorch");
  EXPECT_FALSE(options.fraction_given);  // not by this text
  EXPECT_TRUE(options.without_effect.empty());
}

TEST(OptionsGrammar, TextResetsTheNonSplitRounding) {
  const AllocatorOptions base = AllocatorOptions::parse("max_split_size_mb:32,max_non_split_rounding_mb:40");
  ASSERT_EQ(base.max_non_split_rounding_bytes, 40 * kMega);
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:32", base).max_non_split_rounding_bytes, 20 * kMega);
}

}  // namespace
}  // namespace cistern
