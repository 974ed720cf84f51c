// What every door keeps to, under every policy. A process runs the cases of one policy: its heaps take theirs once.

#include <cistern/memory.h>
#include <cistern/simulated.h>

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <tuple>
#include <utility>

#include "tests/byte_units.h"
#include "tests/contract/door.h"

namespace cistern::contract {
namespace {

using namespace std::chrono_literals;

struct PolicyText {
  std::string name;
  std::string options;
  bool caches = true;

  friend void PrintTo(const PolicyText& policy, std::ostream* out) { *out << policy.name; }
};

class Contract : public ::testing::TestWithParam<std::tuple<DoorKind, PolicyText>> {
 protected:
  void SetUp() override {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB,races=collect", 1);
    setenv("CISTERN_ALLOC_CONF", (std::get<1>(GetParam()).options + "oom_dump:off").c_str(), 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    initialize();
    const AllocatorSettings settings = memory_snapshot().settings;
    ASSERT_EQ(settings.expandable_segments ? "expandable" : settings.policy, std::get<1>(GetParam()).name)
        << "the heaps of this process were another policy's already";
    // What the process's heaps did for cases before.
    empty_cache();
    reset_peak_memory_stats({0});
    reset_accumulated_memory_stats({0});
    door_ = kind().open();
    stream_ = Stream::create({0});
  }
  [[nodiscard]] const DoorKind& kind() const { return std::get<0>(GetParam()); }
  [[nodiscard]] bool caches() const { return std::get<1>(GetParam()).caches; }

  // Work that writes all of a block.
  static void write(void* pointer, std::size_t bytes, const Stream& stream) {
    simulated::launch(stream, {}, {{pointer, bytes}}, 1ms, [] {});
  }
  // That freeing `pointer` is refused, in the door's own way, and changes nothing.
  void expect_refused(void* pointer, std::size_t bytes) {
    const MemoryStats before = door_->stats();
    const Outcome outcome = door_->free(pointer, bytes, stream_);
    EXPECT_EQ(outcome.fault, Fault::invalid_argument) << outcome.words;
    EXPECT_NE(outcome.words, "");
    EXPECT_EQ(door_->stats(), before);
  }

  std::unique_ptr<Door> door_;
  Stream stream_;
};

// What some of the doors have.
class ProcessContract : public Contract {};      // they are over the process's heaps
class PointerContract : public Contract {};      // they free any pointer that they are given
class SizeContract : public Contract {};         // their frees have sizes
class HandleContract : public Contract {};       // and handles of streams
class ResultContract : public Contract {};       // requests write to a place of the caller's
class SynchronousContract : public Contract {};  // they have no streams

TEST_P(Contract, MemoryHoldsWhatIsWrittenToIt) {
  std::array<unsigned char, 3000> back{};
  void* const pointer = door_->allocate(back.size(), stream_);
  ASSERT_NE(pointer, nullptr);
  fill_async(pointer, 7, back.size(), stream_);
  copy_async(back.data(), pointer, back.size(), stream_);
  stream_.synchronize();
  EXPECT_EQ(std::count(back.begin(), back.end(), 7), 3000);
  EXPECT_EQ(door_->free(pointer, back.size(), stream_).words, "");
}

TEST_P(Contract, BlocksAreAlignedAndApart) {
  std::vector<std::pair<std::uintptr_t, std::size_t>> blocks;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{511}, std::size_t{513}, kMega + 1, 12 * kMega, 3 * kMega})
    blocks.emplace_back(reinterpret_cast<std::uintptr_t>(door_->allocate(bytes, stream_)), bytes);
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].first % 512, 0U);
    if (i == 0) continue;
    EXPECT_GE(blocks[i].first, blocks[i - 1].first + blocks[i - 1].second);
  }
  for (const auto& [address, bytes] : blocks)
    EXPECT_EQ(door_->free(reinterpret_cast<void*>(address), bytes, stream_).words, "");
  EXPECT_EQ(door_->stats().allocated_bytes.all.current, 0);
}

TEST_P(Contract, ZeroBytesAreNothing) {
  const MemoryStats before = door_->stats();
  EXPECT_EQ(door_->allocate(0, stream_), nullptr);
  EXPECT_EQ(door_->free(nullptr, 0, stream_).words, "");
  EXPECT_EQ(door_->stats(), before);
}

// The race detector judges: each reuse must be ordered behind the work of before.
TEST_P(Contract, MemoryIsReusedInStreamOrder) {
  const Stream other = Stream::create({0});
  void* const first = door_->allocate(2 * kMega, stream_);
  write(first, 2 * kMega, stream_);
  EXPECT_EQ(door_->free(first, 2 * kMega, stream_).words, "");
  void* const again = door_->allocate(2 * kMega, stream_);
  if (caches()) {
    EXPECT_EQ(again, first);
  }
  write(again, 2 * kMega, stream_);
  void* const elsewhere = door_->allocate(2 * kMega, other);
  write(elsewhere, 2 * kMega, other);
  if (!kind().waits) {
    EXPECT_NE(elsewhere, again);
  }
  EXPECT_EQ(door_->free(again, 2 * kMega, stream_).words, "");
  EXPECT_EQ(door_->free(elsewhere, 2 * kMega, other).words, "");
  simulated::driver().run_until_idle();
  for (const RaceReport& report : simulated::driver().race_reports()) ADD_FAILURE() << report.to_string();
}

// Freed as last used on another stream: the block's own does not get it back before that work is done.
TEST_P(Contract, AFreeWaitsForTheStreamThatUsedTheBlockLast) {
  const Stream other = Stream::create({0});
  void* const pointer = door_->allocate(2 * kMega, stream_);
  other.wait_stream(stream_);
  write(pointer, 2 * kMega, other);
  EXPECT_EQ(door_->free(pointer, 2 * kMega, other).words, "");
  void* const again = door_->allocate(2 * kMega, stream_);
  write(again, 2 * kMega, stream_);
  simulated::driver().run_until_idle();
  for (const RaceReport& report : simulated::driver().race_reports()) ADD_FAILURE() << report.to_string();
  EXPECT_EQ(door_->free(again, 2 * kMega, stream_).words, "");
}

// By a door without streams: whatever is still under way on the memory is over when it is handed out.
TEST_P(SynchronousContract, SynchronousMemoryMayBeUsedOnEveryStreamAtOnce) {
  const Stream default_one = default_stream(0);
  void* const earlier = allocate(2 * kMega, default_one);
  write(earlier, 2 * kMega, default_one);
  deallocate(earlier);
  void* const pointer = door_->allocate(2 * kMega, stream_);
  if (caches()) {
    EXPECT_EQ(pointer, earlier);
  }
  write(pointer, 2 * kMega, stream_);
  EXPECT_EQ(door_->free(pointer, 2 * kMega, stream_).words, "");
  for (const RaceReport& report : simulated::driver().race_reports()) ADD_FAILURE() << report.to_string();
}

TEST_P(Contract, StatisticsCountOnce) {
  void* const pointer = door_->allocate(5000, stream_);
  MemoryStats stats = door_->stats();
  EXPECT_EQ(stats.allocation.all.allocated, 1);
  EXPECT_EQ(stats.allocation.all.current, 1);
  EXPECT_EQ(stats.requested_bytes.all.current, 5000);
  EXPECT_EQ(door_->free(pointer, 5000, stream_).words, "");
  stats = door_->stats();
  EXPECT_EQ(stats.allocation.all.freed, 1);
  EXPECT_EQ(stats.allocation.all.current, 0);
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_EQ(stats.num_ooms, 0);
}

TEST_P(Contract, OutOfMemoryHasAReportAndHarmsNothing) {
  void* const pointer = door_->allocate(3 * kMega, stream_);
  const MemoryStats before = door_->stats();
  const Outcome outcome = door_->refused(std::size_t{8} << 30, stream_);
  EXPECT_EQ(outcome.fault, Fault::out_of_memory) << outcome.words;
  EXPECT_NE(outcome.words.find("Tried to allocate 8.00 GiB"), std::string::npos) << outcome.words;
  EXPECT_EQ(outcome.reported_bytes, std::size_t{8} << 30);
  const MemoryStats after = door_->stats();
  EXPECT_EQ(after.num_ooms, before.num_ooms + 1);
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(after.allocation, before.allocation);
  EXPECT_EQ(door_->free(pointer, 3 * kMega, stream_).words, "");
  void* const later = door_->allocate(3 * kMega, stream_);
  EXPECT_NE(later, nullptr);
  EXPECT_EQ(door_->free(later, 3 * kMega, stream_).words, "");
}

TEST_P(ProcessContract, TwoDoorsShareOneHeap) {
  // The synchronous ones serve all streams from the default stream's memory.
  const Stream stream = kind().waits ? default_stream(0) : stream_;
  void* const by_function = allocate(6 * kMega, stream);
  deallocate(by_function);
  void* const by_door = door_->allocate(6 * kMega, stream);
  if (caches()) {
    EXPECT_EQ(by_door, by_function);
  }
  EXPECT_EQ(memory_stats(0).allocation.all.allocated, 2);
  EXPECT_EQ(memory_stats(0).allocation.all.current, 1);
  EXPECT_GT(memory_stats(0).num_device_alloc, 0);
  EXPECT_EQ(door_->free(by_door, 6 * kMega, stream).words, "");
  EXPECT_EQ(memory_allocated(0), 0U);
  void* const back = allocate(6 * kMega, stream);
  if (caches()) {
    EXPECT_EQ(back, by_function);
  }
  deallocate(back);
}

// Each from a thread of its own: what one frees serves the other, and each block counts once.
TEST_P(ProcessContract, TwoDoorsAtOnceShareOneHeap) {
  constexpr int kRounds = 200;
  const Stream stream = kind().waits ? default_stream(0) : stream_;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      void* const pointer = allocate(kMega, stream);
      std::this_thread::yield();
      deallocate(pointer);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    void* const pointer = door_->allocate(kMega, stream);
    std::this_thread::yield();
    EXPECT_EQ(door_->free(pointer, kMega, stream).words, "");
  }
  other.join();
  const MemoryStats stats = memory_stats(0);
  EXPECT_EQ(stats.allocation.all.allocated, 2 * kRounds);
  EXPECT_EQ(stats.allocation.all.freed, 2 * kRounds);
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_LE(stats.allocated_bytes.all.peak, std::int64_t{2 * kMega});
}

TEST_P(PointerContract, AForeignPointerIsRefused) {
  int on_the_stack = 0;
  expect_refused(&on_the_stack, sizeof on_the_stack);  // before anything was allocated here
  void* const pointer = door_->allocate(kMega, stream_);
  expect_refused(&on_the_stack, sizeof on_the_stack);
  expect_refused(reinterpret_cast<void*>(0x1000), 8);
  EXPECT_EQ(door_->free(pointer, kMega, stream_).words, "");
}

TEST_P(PointerContract, AnInteriorPointerIsRefused) {
  auto* const pointer = static_cast<std::byte*>(door_->allocate(kMega, stream_));
  expect_refused(pointer + 512, kMega - 512);
  expect_refused(pointer + 1, kMega);
  EXPECT_EQ(door_->free(pointer, kMega, stream_).words, "");
}

TEST_P(PointerContract, ASecondFreeIsRefused) {
  void* const kept = door_->allocate(kMega, stream_);
  void* const pointer = door_->allocate(kMega, stream_);
  EXPECT_EQ(door_->free(pointer, kMega, stream_).words, "");
  expect_refused(pointer, kMega);
  EXPECT_EQ(door_->free(kept, kMega, stream_).words, "");
}

TEST_P(SizeContract, AWrongSizeIsRefused) {
  void* const pointer = door_->allocate(1000, stream_);
  expect_refused(pointer, 999);
  expect_refused(pointer, 1024);  // that of the block, but not of the request
  expect_refused(pointer, 0);
  EXPECT_EQ(door_->free(pointer, 1000, stream_).words, "");
}

TEST_P(HandleContract, AStreamThatIsNoneIsRefused) {
  void* const pointer = door_->allocate(1000, stream_);
  const MemoryStats before = door_->stats();
  const Outcome outcome = door_->free_on_handle(pointer, 1000, reinterpret_cast<StreamHandle>(0x5550));
  EXPECT_NE(outcome.fault, Fault::none);
  EXPECT_NE(outcome.words, "");
  EXPECT_EQ(door_->stats(), before);
  EXPECT_EQ(door_->free(pointer, 1000, stream_).words, "");
}

TEST_P(Contract, ADeviceThatIsNotThereIsRefused) {
  const MemoryStats before = door_->stats();
  for (const int device : {2, 1000, -2}) {
    const Outcome outcome = door_->on_device(device);
    EXPECT_EQ(outcome.fault, Fault::invalid_argument) << device << ": " << outcome.words;
    EXPECT_NE(outcome.words.find(std::to_string(device)), std::string::npos) << outcome.words;
  }
  EXPECT_EQ(door_->stats(), before);
}

TEST_P(ResultContract, ARequestWithoutAPlaceForItsResultIsRefused) {
  const MemoryStats before = door_->stats();
  EXPECT_EQ(door_->without_result().fault, Fault::invalid_argument);
  EXPECT_EQ(door_->stats(), before);
}

std::vector<DoorKind> doors_where(bool DoorKind::*property) {
  std::vector<DoorKind> kinds;
  for (const DoorKind& kind : doors())
    if (kind.*property) kinds.push_back(kind);
  return kinds;
}

auto under_every_policy(const std::vector<DoorKind>& kinds) {
  return ::testing::Combine(
      ::testing::ValuesIn(kinds),
      ::testing::Values(PolicyText{"classic", "policy:classic,"}, PolicyText{"expandable", "expandable_segments:True,"},
                        PolicyText{"paged", "policy:paged,"}, PolicyText{"async", "policy:async,", false},
                        PolicyText{"direct", "policy:direct,", false}));
}
std::string name_of(const ::testing::TestParamInfo<std::tuple<DoorKind, PolicyText>>& test) {
  return std::get<0>(test.param).name + "_" + std::get<1>(test.param).name;
}

INSTANTIATE_TEST_SUITE_P(Doors, Contract, under_every_policy(doors()), name_of);
INSTANTIATE_TEST_SUITE_P(Doors, ProcessContract, under_every_policy(doors_where(&DoorKind::is_of_process)), name_of);
INSTANTIATE_TEST_SUITE_P(Doors, PointerContract, under_every_policy(doors_where(&DoorKind::frees_any_pointer)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Doors, SizeContract, under_every_policy(doors_where(&DoorKind::has_sizes)), name_of);
INSTANTIATE_TEST_SUITE_P(Doors, HandleContract, under_every_policy(doors_where(&DoorKind::takes_handles)), name_of);
INSTANTIATE_TEST_SUITE_P(Doors, ResultContract, under_every_policy(doors_where(&DoorKind::has_results)), name_of);
INSTANTIATE_TEST_SUITE_P(Doors, SynchronousContract, under_every_policy(doors_where(&DoorKind::waits)), name_of);
// A program may have none of these.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ResultContract);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SynchronousContract);

}  // namespace
}  // namespace cistern::contract
