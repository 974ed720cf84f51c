// Steps of streams that pass the room below the peaks from one to another: each stream does what it did before, and
// what they do at once is another thing each time. Nobody can tell that they are followed, and they are.
#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/simulated.h>
#include <cistern/stats.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator/device_allocator.h"
#include "allocator/shared_counts.h"
#include "tests/allocator/heap_of_streams.h"
#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

// What one stream does in each round: it begins and ends with nothing.
struct StepsOfStream {
  enum class Kind : std::uint8_t { allocate, use, free };
  struct Step {
    Kind kind;
    std::size_t block;  // of those that it allocates in a round
    std::size_t bytes;
  };
  std::vector<Step> steps;
  std::size_t blocks = 0;

  StepsOfStream(std::uint64_t seed, std::size_t count, bool may_use) {
    std::mt19937_64 random(seed);
    const std::uint64_t sizes = 1 + random() % 40;
    const bool uses = random() % 3 == 0 && may_use;
    std::vector<std::size_t> live;
    const auto free = [&](std::size_t at) {
      steps.push_back({Kind::free, live[at], 0});
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    };
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t kind = random() % 8;
      if (live.size() < 2 || (kind < 4 && live.size() < 30)) {
        live.push_back(blocks);
        steps.push_back({Kind::allocate, blocks++, 500 * (1 + random() % sizes) << (random() % 3 * 4)});
      } else if (kind < 5 && uses) {
        steps.push_back({Kind::use, live[random() % live.size()], 0});
      } else {
        free(random() % live.size());
      }
    }
    while (!live.empty()) free(live.size() - 1);
  }
};

// An allocator over a driver of its own.
class SteppedHeap {
 public:
  static constexpr std::size_t kStreams = 3;

  SteppedHeap(const std::string& options, bool is_looked_at)
      : is_looked_at_(is_looked_at),
        allocator_({.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off," + options)}) {
    HistoryOptions history = HistoryOptions::always_on();
    history.max_entries = 4096;
    allocator_.record_history(history);
  }
  // `elsewhere`: a free is another thread's.
  std::int64_t step(std::size_t stream, const StepsOfStream::Step& step, bool elsewhere) {
    using Kind = StepsOfStream::Kind;
    if (is_looked_at_) static_cast<void>(allocator_.memory_stats());
    std::vector<char*>& blocks = blocks_[stream];
    if (blocks.size() <= step.block) blocks.resize(step.block + 1);
    char*& block = blocks[step.block];
    if (step.kind == Kind::use) {
      allocator_.record_stream(block, streams_[(stream + 1) % kStreams]);
    } else if (step.kind == Kind::free && elsewhere) {
      std::thread([&] { allocator_.deallocate(block); }).join();
    } else if (step.kind == Kind::free) {
      allocator_.deallocate(block);
    } else {
      block = static_cast<char*>(allocator_.allocate(step.bytes, streams_[stream]));
      if (first_ == nullptr) first_ = block;
      return block - first_;
    }
    return 0;
  }
  [[nodiscard]] CachingAllocator& allocator() { return allocator_; }

 private:
  bool is_looked_at_;
  SimulatedDriver driver_{{.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none}};
  const std::array<StreamHandle, kStreams> streams_ = {driver_.create_stream(), driver_.create_stream(),
                                                       driver_.create_stream()};
  CachingAllocator allocator_;
  std::array<std::vector<char*>, kStreams> blocks_;
  char* first_ = nullptr;
};

class StepsBesideStreamsTest : public ::testing::TestWithParam<const char*> {
 protected:
  // As often one after the other as at once.
  void round(const std::vector<StepsOfStream>& streams, std::mt19937_64& random) {
    std::vector<std::size_t> at(streams.size());
    const std::uint64_t together = 1 + random() % 200;
    for (std::size_t left = streams.size(); left != 0;) {
      const std::size_t stream = random() % streams.size();
      const std::vector<StepsOfStream::Step>& steps = streams[stream].steps;
      for (std::uint64_t i = random() % together + 1; i != 0 && at[stream] != steps.size(); --i) {
        const StepsOfStream::Step& step = steps[at[stream]];
        const bool elsewhere = frees_elsewhere_ && random() % 16 == 0;
        ASSERT_EQ(followed_.step(stream, step, elsewhere), plain_.step(stream, step, elsewhere));
        left -= ++at[stream] == steps.size() ? 1 : 0;
      }
    }
  }
  void compare() {
    MemoryStats followed = followed_.allocator().memory_stats();
    MemoryStats plain = plain_.allocator().memory_stats();
    // Until its stream goes on, or somebody looks, what another thread freed is none of its inactive splits
    // (docs/statistics.md).
    if (frees_elsewhere_) {
      EXPECT_EQ(followed.inactive_split_bytes.all.current, plain.inactive_split_bytes.all.current);
      followed.inactive_split = plain.inactive_split;
      followed.inactive_split_bytes = plain.inactive_split_bytes;
    }
    ASSERT_EQ(followed, plain);
    ASSERT_NO_THROW(followed_.allocator().check());
  }
  void run(long seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::vector<StepsOfStream> streams;
    for (std::size_t count = 2 + random() % (SteppedHeap::kStreams - 1); count != 0; --count)
      streams.emplace_back(random(), 8 + random() % 150, !frees_elsewhere_);
    const std::uint64_t rounds = 40 + random() % 60;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      round(streams, random);
      if (HasFatalFailure()) return;
      if (random() % 40 == 0) {
        for (SteppedHeap* heap : {&followed_, &plain_}) heap->allocator().reset_peak_memory_stats();
      } else if (random() % 20 == 0) {
        compare();
        if (HasFatalFailure()) return;
      }
    }
    compare();
  }

  bool frees_elsewhere_ = false;
  SteppedHeap followed_{GetParam(), false};
  SteppedHeap plain_{GetParam(), true};
};

TEST_P(StepsBesideStreamsTest, FiguresAndAddressesAreThoseOfHeapsThatAreLookedAt) {
  for (long seed = 0; seed < scaled_programs(400, 8) && !HasFailure(); ++seed) run(seed);
}

TEST_P(StepsBesideStreamsTest, SoTheyAreWhereAnotherThreadFreesNowAndThen) {
  frees_elsewhere_ = true;
  for (long seed = 0; seed < scaled_programs(40, 4) && !HasFailure(); ++seed) run(seed);
}

INSTANTIATE_TEST_SUITE_P(Each, StepsBesideStreamsTest,
                         ::testing::Values("policy:classic", "policy:expandable",
                                           "policy:paged,stream_hand_over:never"),
                         [](const auto& options) {
                           const std::string policy = std::string(options.param).substr(std::strlen("policy:"));
                           return policy.substr(0, policy.find(','));
                         });

struct HeapWithGrants : DeviceAllocator {
  using DeviceAllocator::DeviceAllocator;
  [[nodiscard]] std::uint64_t grants() const { return recorder_.grants(); }
};

// What streams know of their steps.
class KnownStepsOfStreams : public HeapOfStreams<HeapWithGrants> {
 protected:
  KnownStepsOfStreams() : HeapOfStreams("oom_dump:off,policy:classic", HistoryOptions::always_on()) {}

  void up(std::size_t stream) {
    for (std::size_t i = 0; i < most_; ++i) blocks_[stream].push_back(take(512 * (1 + i % 7), streams_[stream]));
  }
  void down(std::size_t stream) {
    for (; !blocks_[stream].empty(); blocks_[stream].pop_back()) give(blocks_[stream].back());
  }
  // Each comes up to the peak alone.
  void round() {
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      up(stream);
      if (stream == 0) page_of_first_ = heap_.find_by_page(blocks_[0].front());
      if (stream == 1) page_of_second_ = heap_.find_by_page(blocks_[1].front());
      down(stream);
    }
  }
  void rounds(std::size_t count) {
    for (; count != 0; --count) round();
  }
  [[nodiscard]] bool are_followed() const {
    return page_of_first_->recurrence.is_followed() && page_of_second_->recurrence.is_followed();
  }

  std::size_t most_ = 300;
  const std::array<StreamIdentity, 2> streams_ = {make_stream(), make_stream()};
  std::array<std::vector<std::uint64_t>, 2> blocks_;
  StreamHeap* page_of_first_ = nullptr;
  StreamHeap* page_of_second_ = nullptr;
};

TEST_F(KnownStepsOfStreams, GoOnWhileTheRoomGoesFromOneToTheOther) {
  rounds(60);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(are_followed()) << "round " << i;
    round();
  }
  EXPECT_EQ(heap_.usage().stats.allocation.all.peak, static_cast<std::int64_t>(most_));
}

TEST_F(KnownStepsOfStreams, AreNoLessKnownWhereRoomIsLentAfresh) {
  rounds(20);
  heap_.reset_peak_stats();
  rounds(60);
  EXPECT_TRUE(are_followed());
}

// A few blocks a turn: streams come to share a ledger, part after a while, and share again.
TEST_F(KnownStepsOfStreams, GoOnWhileTheyShareALedgerAndWhenTheyPart) {
  most_ = 3;
  const std::size_t turns_of_a_stay = SharedCounts::kFirstStay / (2 * most_);
  rounds(2 * turns_of_a_stay);
  std::size_t followed = 0;
  bool have_shared = false;
  bool have_parted = false;
  for (std::size_t i = 0; i < 8 * turns_of_a_stay; ++i) {
    round();
    followed += are_followed() ? 1 : 0;
    have_shared = have_shared || page_of_first_->ledger.shares;
    have_parted = have_parted || (have_shared && !page_of_first_->ledger.shares);
  }
  EXPECT_TRUE(have_shared && have_parted);
  EXPECT_EQ(followed, 8 * turns_of_a_stay);
  EXPECT_EQ(heap_.usage().stats.allocation.all.peak, 3);
}

TEST_F(KnownStepsOfStreams, StreamsThatGrowDoNotShare) {
  for (int i = 0; i < 300; ++i)
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      blocks_[stream].push_back(take(kKibi, streams_[stream]));
      ASSERT_FALSE(heap_.find_by_page(blocks_[stream].back())->ledger.shares) << i;
    }
  EXPECT_EQ(heap_.usage().stats.allocation.all.peak, 600);
  for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) down(stream);
}

// A request of another thread takes its stream out, and asks for room no more often than it needs.
TEST_F(KnownStepsOfStreams, AnotherThreadsRequestEndsThatItsStreamShares) {
  most_ = 3;
  rounds(500);
  ASSERT_TRUE(page_of_first_->ledger.shares && page_of_second_->ledger.shares);
  std::thread([&] {
    const std::uint64_t grants = heap_.grants();
    up(0);
    EXPECT_FALSE(page_of_first_->ledger.shares);
    EXPECT_LE(heap_.grants(), grants + 8);
    down(0);
  }).join();
  EXPECT_TRUE(page_of_second_->ledger.shares);
  EXPECT_EQ(heap_.usage().stats.allocation.all.current, 0);
}

// Each does what it did before, at another time: together they come to a peak that was never there.
TEST_F(KnownStepsOfStreams, APeakThatTheyReachTogetherIsSeen) {
  for (const std::size_t most : {std::size_t{300}, std::size_t{3}}) {
    most_ = most;
    heap_.reset_peak_stats();
    rounds(4000 / most + 60);
    EXPECT_TRUE(are_followed());
    up(0);
    up(1);
    down(0);
    down(1);
    EXPECT_EQ(heap_.usage().stats.allocation.all.peak, static_cast<std::int64_t>(2 * most_));
    EXPECT_NO_THROW(heap_.check());
  }
}

}  // namespace
}  // namespace cistern
