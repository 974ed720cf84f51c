#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/byte_units.h"
#include "tests/options/refusal.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OptionKeys, UnknownKeyIsNamedWithTheKnownOnes) {
  EXPECT_THAT(refusal("max_split_mb:100"), AllOf(HasSubstr("'max_split_mb'"), HasSubstr("'100'"),
                                                 HasSubstr("expected a known key"), HasSubstr("max_split_size_mb")));
  EXPECT_THAT(refusal("Policy:classic"), HasSubstr("'Policy'"));
}

TEST(OptionKeys, IntegersAreWholeDecimalNumbers) {
  for (const char* value : {"-1", "+32", "100abc", "abc", "0x40", "32.0", "1e2", "18446744073709551616", "''"})
    EXPECT_THAT(refusal(std::string("max_split_size_mb:") + value),
                AllOf(HasSubstr("'max_split_size_mb'"), HasSubstr(value), HasSubstr("expected an integer of MiB")));
}

TEST(OptionKeys, MaxSplitSizeMustBeAbove20UnderTheOldRules) {
  EXPECT_THAT(refusal("max_split_size_mb:20,pytorch_rules:2.4"), HasSubstr("from 21"));
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:21,pytorch_rules:2.4").max_split_size_bytes, 21 * kMega);
}

TEST(OptionKeys, MaxSplitSizeMayBe20UnderTheCurrentRules) {
  EXPECT_THAT(refusal("max_split_size_mb:19"), HasSubstr("from 20"));
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:20").max_split_size_bytes, 20 * kMega);
}

TEST(OptionKeys, RulesHoldForTheWholeTextWhereverTheyStand) {
  for (const char* text : {"pytorch_rules:2.4,max_split_size_mb:20", "max_split_size_mb:20,pytorch_rules:2.4",
                           "pytorch_rules:current,max_split_size_mb:20,pytorch_rules:2.4"})
    EXPECT_NE(refusal(text), "") << text;
  EXPECT_EQ(refusal("pytorch_rules:2.4,max_split_size_mb:20,pytorch_rules:current"), "");
  AllocatorOptions base;
  base.pytorch_rules = PytorchRules::v2_4;
  EXPECT_NE(refusal("max_split_size_mb:20", base), "");
}

TEST(OptionKeys, RulesAreOneOfTwo) {
  EXPECT_THAT(refusal("pytorch_rules:2.5"), AllOf(HasSubstr("'2.5'"), HasSubstr("current or 2.4")));
}

TEST(OptionKeys, SizesInMebibytesNeverOverflowSignedBytes) {
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:8796093022207").max_split_size_bytes,
            std::size_t{8796093022207} << 20);
  EXPECT_THAT(refusal("max_split_size_mb:8796093022208"), HasSubstr("to 8796093022207"));
  EXPECT_NE(refusal("max_split_size_mb:17592186044416"), "");  // 2^64 bytes: 0 if it wrapped
  EXPECT_NE(refusal("max_split_size_mb:18446744073709551615"), "");
}

TEST(OptionKeys, NonSplitRoundingIsAtLeast20) {
  EXPECT_THAT(refusal("max_non_split_rounding_mb:19"), HasSubstr("from 20"));
  EXPECT_EQ(AllocatorOptions::parse("max_split_size_mb:100,max_non_split_rounding_mb:20").max_non_split_rounding_bytes,
            20 * kMega);
}

TEST(OptionKeys, GarbageCollectionThresholdLiesStrictlyBetween0And1) {
  EXPECT_EQ(AllocatorOptions::parse("garbage_collection_threshold:0.8").garbage_collection_threshold, 0.8);
  for (const char* value : {"0", "0.0", "1", "1.0", "-0.5", "1.5", "nan", "inf", "0.8x", "0x1p-1", "1e-999"})
    EXPECT_THAT(refusal(std::string("garbage_collection_threshold:") + value),
                AllOf(HasSubstr("garbage_collection_threshold"), HasSubstr("expected")))
        << value;
}

TEST(OptionKeys, DecayIsATimeOrOff) {
  EXPECT_EQ(AllocatorOptions::parse("policy:paged,decay_ms:250").decay_ms, 250U);
  EXPECT_EQ(AllocatorOptions::parse("decay_ms:off", AllocatorOptions::parse("decay_ms:250")).decay_ms, 0U);
  EXPECT_EQ(AllocatorOptions::parse("oom_dump:off", AllocatorOptions::parse("decay_ms:250")).decay_ms, 250U);
  for (const char* value : {"0", "-1", "1.5", "31622400001", "never", "[1:2]"})
    EXPECT_THAT(refusal(std::string("decay_ms:") + value), HasSubstr("of milliseconds (or off) from 1 to 31622400000"))
        << value;
}

TEST(OptionKeys, MemoryFractionLiesBetween0And1Inclusive) {
  for (const char* value : {"0", "0.0", "0.5", "1", "1.0"}) {
    const AllocatorOptions options = AllocatorOptions::parse(std::string("per_process_memory_fraction:") + value);
    EXPECT_EQ(options.per_process_memory_fraction, std::stod(value));
    EXPECT_TRUE(options.fraction_given);
  }
  for (const char* value : {"-0.1", "1.01", "nan", "inf", "half", "0.5f"})
    EXPECT_THAT(refusal(std::string("per_process_memory_fraction:") + value), HasSubstr("a number from 0 to 1"));
}

TEST(OptionKeys, BooleansAreExactlyTrueOrFalse) {
  EXPECT_TRUE(AllocatorOptions::parse("research_after_flush:True").research_after_flush);
  EXPECT_FALSE(AllocatorOptions::parse("research_after_flush:False").research_after_flush);
  for (const char* value : {"true", "TRUE", "1", "yes", "Tru", "Truee"})
    EXPECT_THAT(refusal(std::string("research_after_flush:") + value),
                AllOf(HasSubstr("research_after_flush"), HasSubstr(value), HasSubstr("True or False")));
}

TEST(OptionKeys, OomDumpTakesAWordOrAPath) {
  EXPECT_EQ(AllocatorOptions::parse("oom_dump:off").oom_dump, "off");
  EXPECT_EQ(AllocatorOptions::parse("oom_dump:stdout").oom_dump, "stdout");
  EXPECT_EQ(AllocatorOptions::parse("oom_dump:/var/log/oom.txt").oom_dump, "/var/log/oom.txt");
}

TEST(OptionKeys, SummaryTitleIsOneOfTwo) {
  EXPECT_EQ(AllocatorOptions::parse("summary_title:PyTorch").summary_title, "PyTorch");
  EXPECT_THAT(refusal("summary_title:pytorch"), HasSubstr("cistern or PyTorch"));
}

TEST(OptionKeys, OfTheHistoryAreThoseOfRecordHistory) {
  const AllocatorOptions options = AllocatorOptions::parse(
      "history:state,history_context:alloc,history_entries:1000,history_frames:20,history_stacks_mb:8");
  EXPECT_TRUE(options.history_given);
  EXPECT_EQ(options.history.enabled, HistoryEnabled::state);
  EXPECT_EQ(options.history.context, HistoryContext::alloc);
  EXPECT_EQ(options.history.max_entries, 1000U);
  EXPECT_EQ(options.history.max_frames, 20U);
  EXPECT_EQ(options.history.max_stack_bytes, 8 * kMega);
  const AllocatorOptions later = AllocatorOptions::parse("history_entries:unlimited", options);
  EXPECT_EQ(later.history.max_entries, kUnlimitedEntries);
  EXPECT_EQ(later.history.context, HistoryContext::alloc) << "what a text leaves out stays";
  EXPECT_FALSE(AllocatorOptions::parse("oom_dump:off", options).history_given);
}

TEST(OptionKeys, OfTheHistoryAreRefusedOutOfRange) {
  EXPECT_THAT(refusal("history:off"), AllOf(HasSubstr("'off'"), HasSubstr("none or state or all")));
  EXPECT_THAT(refusal("history_context:frees"), HasSubstr("none or state or alloc or all"));
  EXPECT_THAT(refusal("history_entries:0"), HasSubstr("expected an integer"));
  EXPECT_THAT(refusal("history_entries:[1:2]"), HasSubstr("expected an integer"));
  EXPECT_THAT(refusal("history_frames:129"), HasSubstr("from 1 to 128"));
  EXPECT_THAT(refusal("history_stacks_mb:0"), HasSubstr("expected an integer of MiB"));
}

TEST(OptionKeys, HandOversAreOneOfThree) {
  const AllocatorOptions done = AllocatorOptions::parse("stream_hand_over:done");
  EXPECT_EQ(done.stream_hand_over, StreamHandOver::done);
  EXPECT_THAT(done.describe(), HasSubstr("stream_hand_over: done\n"));
  EXPECT_EQ(AllocatorOptions::parse("oom_dump:off", done).stream_hand_over, StreamHandOver::done);
  EXPECT_EQ(AllocatorOptions::parse("stream_hand_over:never", done).stream_hand_over, StreamHandOver::never);
  EXPECT_EQ(AllocatorOptions{}.stream_hand_over, StreamHandOver::fair);
  EXPECT_EQ(AllocatorOptions::parse("stream_hand_over:wait").stream_hand_over, StreamHandOver::wait);
  EXPECT_THAT(refusal("stream_hand_over:no"), AllOf(HasSubstr("'no'"), HasSubstr("fair or wait or done or never")));
  EXPECT_THAT(AllocatorOptions::parse("policy:classic,stream_hand_over:done").without_effect,
              ::testing::ElementsAre("stream_hand_over: acts under policy paged alone"));
}

TEST(OptionKeys, DescriptionListsEveryOptionInForce) {
  EXPECT_EQ(AllocatorOptions::parse("policy:classic,max_split_size_mb:32,garbage_collection_threshold:0.8,oom_dump:off")
                .describe(),
            "policy: classic\n"
            "pytorch_rules: current\n"
            "max_split_size_mb: 32\n"
            "max_non_split_rounding_mb: 20\n"
            "roundup_power2_divisions: off\n"
            "garbage_collection_threshold: 0.8\n"
            "decay_ms: off\n"
            "stream_hand_over: fair\n"
            "per_process_memory_fraction: 1\n"
            "research_after_flush: False\n"
            "graph_capture_record_stream_reuse: False\n"
            "pinned_use_cuda_host_register: False\n"
            "pinned_num_register_threads: 1\n"
            "oom_dump: off\n"
            "summary_title: cistern\n"
            "history: all\n"
            "history_context: none\n"
            "history_entries: 16384\n"
            "history_frames: 64\n"
            "history_stacks_mb: 64\n"
            "without effect: garbage_collection_threshold: acts only while a memory fraction limits the heap: give "
            "per_process_memory_fraction, or set it by call\n");
}

TEST(OptionKeys, DescriptionShowsBytesThatAreNoMebibytes) {
  AllocatorOptions options;
  options.max_split_size_bytes = 32 * kMega + 512;
  EXPECT_THAT(options.describe(), HasSubstr("max_split_size_mb: 33554944 bytes\n"));
  EXPECT_THAT(AllocatorOptions{}.describe(), HasSubstr("max_split_size_mb: unlimited\n"));
}

}  // namespace
}  // namespace cistern
