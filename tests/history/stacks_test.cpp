// Which stacks are gathered, which an entry carries, and what they say.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "stats/snapshot_stacks.h"
#include "stats/stack_capture.h"
#include "stats/symbolizer.h"
#include "tests/byte_units.h"
#include "tests/history/trace_replay.h"
#include "tests/sanitizers.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;

int allocating_line = 0;

// Functions to be found in stacks. The empty statements behind the calls keep them from being jumps.
[[gnu::noinline]] void* first_request(CachingAllocator& allocator, std::size_t bytes) {
  allocating_line = __LINE__ + 1;
  void* block = allocator.allocate(bytes);
  asm volatile("");
  return block;
}
[[gnu::noinline]] void* second_request(CachingAllocator& allocator, std::size_t bytes) {
  void* block = allocator.allocate(bytes);
  asm volatile("");
  return block;
}
[[gnu::noinline]] void giving_back(CachingAllocator& allocator, void* block) {
  allocator.deallocate(block);
  asm volatile("");
}

struct Stacks : ::testing::Test {
  SimulatedDriver driver{SimulatedOptions{.capacity_bytes = 256 * kMega, .backing = Backing::none}};
  CachingAllocator allocator{{.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")}};

  void record(HistoryContext context) { allocator.record_history({.context = context, .clear_history = true}); }
  // The function of ours that a stack came from; "none" without a stack.
  static std::string origin(const Snapshot& snapshot, StackIndex stack) {
    if (stack == kNoStack) return "none";
    for (const FrameInfo& frame : snapshot.stacks.at(static_cast<std::size_t>(stack)))
      for (const char* name : {"first_request", "second_request", "giving_back"})
        if (frame.name.find(name) != std::string::npos) return name;
    return "unknown";
  }
  // "alloc by first_request", one an entry.
  [[nodiscard]] std::vector<std::string> trace() {
    const Snapshot snapshot = allocator.snapshot();
    std::vector<std::string> lines;
    for (const TraceEntry& entry : snapshot.device_traces.at(0))
      lines.push_back(std::string(to_string(entry.action)) + " by " + origin(snapshot, entry.stack));
    return lines;
  }
  void run_a_pair() { giving_back(allocator, first_request(allocator, 1000)); }
};

TEST_F(Stacks, NoneAreGatheredAtFirst) {
  run_a_pair();
  EXPECT_THAT(trace(), ::testing::ElementsAre("segment_alloc by none", "alloc by none", "free_requested by none",
                                              "free_completed by none"));
  EXPECT_EQ(allocator.history_info().by_frame_pointers + allocator.history_info().by_unwind_tables, 0U);
}

TEST_F(Stacks, OfStateAreThoseOfLiveBlocksAndSegmentsButNotOfEntries) {
  record(HistoryContext::state);
  run_a_pair();
  static_cast<void>(second_request(allocator, 1000));
  EXPECT_THAT(trace(), ::testing::Each(EndsWith("by none")));
  const Snapshot snapshot = allocator.snapshot();
  EXPECT_EQ(origin(snapshot, snapshot.segments.at(0).stack), "first_request");
  EXPECT_EQ(origin(snapshot, snapshot.segments[0].blocks.at(0).stack), "second_request");
  EXPECT_EQ(origin(snapshot, snapshot.segments[0].blocks.at(1).stack), "none") << "free";
}

TEST_F(Stacks, OfAllocAreCarriedByAllEntriesOfTheBlock) {
  record(HistoryContext::alloc);
  run_a_pair();
  EXPECT_THAT(trace(), ::testing::ElementsAre("segment_alloc by first_request", "alloc by first_request",
                                              "free_requested by first_request", "free_completed by first_request"));
}

TEST_F(Stacks, OfAllAreAlsoThoseOfFrees) {
  record(HistoryContext::all);
  run_a_pair();
  EXPECT_THAT(trace(), ::testing::ElementsAre("segment_alloc by first_request", "alloc by first_request",
                                              "free_requested by giving_back", "free_completed by giving_back"));
}

TEST_F(Stacks, AMallocsOwnStackIsCarriedByWhatItCompletesAndReleases) {
  record(HistoryContext::all);
  const StreamHandle other = driver.create_stream();
  void* block = first_request(allocator, 200 * kMega);
  driver.occupy(other, 1ms);
  allocator.record_stream(block, other);
  giving_back(allocator, block);
  driver.run_until_idle(other);
  static_cast<void>(second_request(allocator, 250 * kMega));
  EXPECT_THAT(trace(), ::testing::ElementsAre("segment_alloc by first_request", "alloc by first_request",
                                              "free_requested by giving_back", "free_completed by second_request",
                                              "segment_free by second_request", "segment_alloc by second_request",
                                              "alloc by second_request"));
}

TEST_F(Stacks, WithoutAStackOfItsOwnAReleaseCarriesThatOfTheSegment) {
  record(HistoryContext::alloc);
  run_a_pair();
  allocator.empty_cache();
  EXPECT_EQ(trace().back(), "segment_free by first_request");
}

TEST_F(Stacks, OfASegmentStaysWithItWhenItsFirstBlockIsGone) {
  record(HistoryContext::all);
  void* first = first_request(allocator, 1000);
  static_cast<void>(second_request(allocator, 1000));
  giving_back(allocator, first);
  const Snapshot snapshot = allocator.snapshot();
  EXPECT_EQ(origin(snapshot, snapshot.segments.at(0).stack), "first_request");
}

TEST_F(Stacks, AreGoneWhenHistoryIsTurnedOff) {
  record(HistoryContext::all);
  static_cast<void>(first_request(allocator, 1000));
  allocator.record_history({.enabled = HistoryEnabled::none});
  const Snapshot snapshot = allocator.snapshot();
  EXPECT_EQ(snapshot.segments.at(0).stack, kNoStack);
  EXPECT_EQ(snapshot.segments[0].blocks.at(0).stack, kNoStack);
  EXPECT_TRUE(snapshot.stacks.empty());
}

TEST_F(Stacks, NameFunctionFileAndLineAndBeginWithWhatTheUserCalled) {
  record(HistoryContext::all);
  static_cast<void>(first_request(allocator, 1000));
  const Snapshot snapshot = allocator.snapshot();
  const StackInfo& stack = snapshot.stacks.at(static_cast<std::size_t>(snapshot.segments.at(0).stack));
  ASSERT_GE(stack.size(), 3U);
  EXPECT_THAT(stack[0]->name, HasSubstr("cistern::CachingAllocator::allocate"));
  EXPECT_THAT(stack[1]->name, HasSubstr("first_request"));
  EXPECT_THAT(stack[1]->filename, EndsWith("tests/history/stacks_test.cpp"));
  EXPECT_EQ(stack[1]->line, allocating_line);
  EXPECT_THAT(stack[2]->name, HasSubstr("TestBody"));
  ASSERT_GE(stack[1]->module, 0);
  EXPECT_THAT(snapshot.modules.at(static_cast<std::size_t>(stack[1]->module)).path, EndsWith("history_test"));
}

TEST_F(Stacks, OfLiveBlocksAreOwnersInTheReport) {
  EXPECT_EQ(allocator.memory_report().find("Owners by stack"), std::string::npos);
  static_cast<void>(allocator.allocate(512));
  record(HistoryContext::state);
  for (int i = 0; i < 3; ++i) static_cast<void>(first_request(allocator, 2 * kMega));
  giving_back(allocator, second_request(allocator, 20 * kMega));
  static_cast<void>(second_request(allocator, kMega));
  const std::string report = allocator.memory_report();
  EXPECT_THAT(report, HasSubstr("Owners by stack, of 7.00 MiB in callers' blocks:\n"
                                "  cistern::first_request               6291456     6.00 MiB  85.7 %  "
                                "3 blocks, stacks_test.cpp:" +
                                std::to_string(allocating_line) + "\n    called from TestBody"));
  EXPECT_THAT(report, HasSubstr("\n  cistern::second_request              1048576  1024.00 KiB  14.3 %  1 block, "));
  EXPECT_THAT(report, HasSubstr("\n  (no stack)                               512    512 bytes   0.0 %  1 block\n"));
}

TEST(SnapshotStacks, CodeInNoFileIsCalledByItsAddress) {
  SnapshotStacks stacks;
  const std::uintptr_t frame = 0x1000;
  EXPECT_EQ(stacks.index_of({&frame, 1}), 0);
  Snapshot snapshot;
  stacks.describe(snapshot);
  ASSERT_EQ(snapshot.stacks.size(), 1U);
  EXPECT_EQ(snapshot.stacks[0].at(0)->name, "0x1000");
  EXPECT_EQ(snapshot.stacks[0][0]->module, -1);
}

TEST_F(Stacks, OfPythonAloneAreNoneHere) {
  allocator.record_history({.stacks = HistoryStacks::python});
  static_cast<void>(first_request(allocator, 1000));
  EXPECT_TRUE(allocator.snapshot().stacks.empty());
}

TEST_F(Stacks, AreListedOnceHoweverOftenTheyAreCarried) {
  record(HistoryContext::all);
  for (int i = 0; i < 100; ++i) run_a_pair();
  EXPECT_LE(allocator.snapshot().stacks.size(), 4U);
  EXPECT_LE(allocator.history_info().stacks, 4U);
}

TEST_F(Stacks, AreNotHeldByEntriesThatAreGone) {
  allocator.record_history({.max_entries = 1, .clear_history = true});
  run_a_pair();
  EXPECT_EQ(allocator.snapshot().stacks.size(), 2U) << "the segment's and the last entry's";
}

[[gnu::noinline]] void pair_below(int depth, CachingAllocator& allocator) {
  if (depth > 0)
    pair_below(depth - 1, allocator);
  else
    giving_back(allocator, first_request(allocator, 1000));
  asm volatile("");
}

TEST_F(Stacks, OfEntriesThatAreGoneMakeRoomForOthers) {
  HistoryOptions options;
  options.max_entries = 1;
  options.max_stack_bytes = 4000;
  allocator.record_history(options);
  for (int depth = 0; depth < 40; ++depth) pair_below(depth, allocator);
  EXPECT_EQ(allocator.history_info().stacks_lost, 0U);
  EXPECT_LE(allocator.history_info().stack_bytes, 4000U);
}

[[gnu::noinline]] void nested(int depth, std::size_t most, std::vector<std::uintptr_t>& frames, bool& by_tables) {
  if (depth > 0) {
    nested(depth - 1, most, frames, by_tables);
    asm volatile("");
    return;
  }
  // Twice: what is found at first is checked against the tables.
  for (int i = 0; i < 2; ++i) {
    frames.resize(kMaxStackFrames);
    const CapturedStack stack = capture_stack(frames.data(), most);
    frames.resize(stack.depth);
    by_tables = stack.by_tables;
  }
}

int frames_named(std::vector<std::uintptr_t> frames, const char* name) {
  int count = 0;
  std::vector<std::uintptr_t> distinct = frames;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const Symbols symbols = symbolize(distinct);
  for (const std::uintptr_t frame : frames)
    count += symbols.frames.count(frame) != 0 && symbols.frames.at(frame).name.find(name) != std::string::npos ? 1 : 0;
  return count;
}

TEST(StackCapture, FollowsFramePointersWhereEveryCallerKeepsOne) {
  std::vector<std::uintptr_t> frames;
  bool by_tables = true;
  std::thread([&] { nested(20, 128, frames, by_tables); }).join();
#if !CISTERN_THREAD_SANITIZER  // whose own frames, between a thread's first and ours, keep none
  EXPECT_FALSE(by_tables);
#endif
  EXPECT_EQ(frames_named(frames, "nested"), 21);
}

TEST(StackCapture, TakesTheInnermostFramesWhenThereAreMore) {
  std::vector<std::uintptr_t> frames;
  bool by_tables = true;
  std::thread([&] { nested(50, 10, frames, by_tables); }).join();
  EXPECT_EQ(frames.size(), 10U);
  EXPECT_EQ(frames_named(frames, "nested"), 10);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// Keeps no frame pointer and uses its register for something else, as optimised code does.
[[gnu::noinline, gnu::optimize("omit-frame-pointer")]] void without_frame_pointer(std::vector<std::uintptr_t>& frames,
                                                                                  bool& by_tables) {
  asm volatile("xor %%ebp, %%ebp" ::: "rbp");
  nested(3, 128, frames, by_tables);
  asm volatile("" ::: "rbp");
}

[[gnu::noinline]] void calls_one_without(std::vector<std::uintptr_t>& frames, bool& by_tables) {
  without_frame_pointer(frames, by_tables);
  asm volatile("");
}

std::vector<std::uintptr_t> frames_of_comparison;
bool comparison_by_tables = false;

[[gnu::noinline, gnu::optimize("omit-frame-pointer")]] int compare_without_frame_pointer(const void*, const void*) {
  asm volatile("xor %%ebp, %%ebp" ::: "rbp");
  nested(3, 128, frames_of_comparison, comparison_by_tables);
  asm volatile("" ::: "rbp");
  return 0;
}

TEST(StackCapture, UsesTheUnwindTablesWhereTheChainEndsInTheCLibraryFarFromItsBottom) {
  std::array<int, 2> numbers{2, 1};
  std::qsort(numbers.data(), numbers.size(), sizeof(int), compare_without_frame_pointer);
  EXPECT_TRUE(comparison_by_tables);
  EXPECT_EQ(frames_named(frames_of_comparison, "TestBody"), 1);
}

TEST(StackCapture, UsesTheUnwindTablesWhereTheChainIsBroken) {
  std::vector<std::uintptr_t> frames;
  bool by_tables = false;
  std::thread([&] { calls_one_without(frames, by_tables); }).join();
  EXPECT_TRUE(by_tables);
  EXPECT_EQ(frames_named(frames, "nested"), 4);
  EXPECT_EQ(frames_named(frames, "calls_one_without"), 1) << "who called the function without a frame pointer";
}

// The same with a number in the register that is no address, near either end of all addresses.
[[gnu::noinline, gnu::optimize("omit-frame-pointer")]] void with_number(std::intptr_t number,
                                                                        std::vector<std::uintptr_t>& frames,
                                                                        bool& by_tables) {
  asm volatile("mov %0, %%rbp" : : "r"(number) : "rbp");
  nested(3, 128, frames, by_tables);
  asm volatile("" ::: "rbp");
}

TEST(StackCapture, ReadsNoFrameWhereTheRegisterHoldsAnythingElse) {
  for (const std::intptr_t number : {-8, -16, -24, -4096, 1, 8, 4096}) {
    SCOPED_TRACE(number);
    std::vector<std::uintptr_t> frames;
    bool by_tables = false;
    std::thread([&] { with_number(number, frames, by_tables); }).join();
    EXPECT_TRUE(by_tables);
    EXPECT_EQ(frames_named(frames, "nested"), 4);
  }
}
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !CISTERN_ADDRESS_SANITIZER && \
    !CISTERN_THREAD_SANITIZER
// A fiber's memory with a hole above it, below the thread's stack.
struct Fiber {
  static constexpr std::size_t kBytes = 256 * 1024;
  char* memory = static_cast<char*>(
      mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ucontext_t context{};
  ucontext_t back{};
  std::vector<std::uintptr_t> frames;
  bool by_tables = false;

  Fiber() { mprotect(memory + kBytes, kBytes, PROT_NONE); }
  ~Fiber() { munmap(memory, 2 * kBytes); }
};
Fiber* fiber = nullptr;

// Keeps no frame pointer, and its register points into the hole.
[[gnu::noinline, gnu::optimize("omit-frame-pointer")]] void with_a_wild_frame_pointer() {
  asm volatile("mov %0, %%rbp" ::"r"(fiber->memory + Fiber::kBytes + 4096) : "rbp");
  nested(5, 128, fiber->frames, fiber->by_tables);
  asm volatile("" ::: "rbp");
}

TEST(StackCapture, ReadsNothingBeyondTheStackOfAFiber) {
  Fiber made;
  ASSERT_NE(made.memory, MAP_FAILED);
  fiber = &made;
  ASSERT_EQ(getcontext(&made.context), 0);
  made.context.uc_stack.ss_sp = made.memory;
  made.context.uc_stack.ss_size = Fiber::kBytes;
  made.context.uc_link = &made.back;
  makecontext(&made.context, with_a_wild_frame_pointer, 0);
  ASSERT_EQ(swapcontext(&made.back, &made.context), 0);
  EXPECT_TRUE(made.by_tables);
  EXPECT_EQ(frames_named(made.frames, "nested"), 6);
}
#endif

}  // namespace
}  // namespace cistern
