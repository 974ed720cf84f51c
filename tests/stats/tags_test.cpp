// Names of tags, each thread's stack of them, and the books by tag.

#include <cistern/error.h>
#include <cistern/scope.h>

#include "stats/recorder.h"
#include "stats/tags.h"
#include "tests/property.h"
#include "tests/stats/stat.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace cistern {
namespace {

[[maybe_unused]] const bool tags_configured = configure_properties("TagProperty", 2000, 200);

TEST(TagRegistry, TheSameTextIsTheSameNumber) {
  TagRegistry registry;
  const TagId first = registry.intern("weights");
  EXPECT_EQ(first, 1);
  EXPECT_EQ(registry.intern("gradients"), 2);
  EXPECT_EQ(registry.intern(std::string("weights")), first);
  EXPECT_EQ(registry.name(first), "weights");
  EXPECT_EQ(registry.name(kUntagged), "");
  EXPECT_EQ(registry.find("gradients"), 2);
  EXPECT_EQ(registry.find("nobody"), kUntagged);
  EXPECT_EQ(registry.size(), 2U);
}

TEST(TagRegistry, ANameMoreThanTheBoundIsRefusedAndTheOthersStay) {
  TagRegistry registry(3);
  for (const char* name : {"a", "b", "c"}) static_cast<void>(registry.intern(name));
  try {
    static_cast<void>(registry.intern("d"));
    FAIL() << "a fourth name was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "tag 'd': 3 names are in use already, as many as there can be");
  }
  EXPECT_EQ(registry.size(), 3U);
  EXPECT_EQ(registry.intern("b"), 2);
}

TEST(TagRegistry, AllNumbersOf16BitsCanBeNames) {
  TagRegistry registry;
  for (int i = 1; i <= 65535; ++i) ASSERT_EQ(registry.intern(std::to_string(i)), i);
  EXPECT_THROW(static_cast<void>(registry.intern("one more")), InvalidArgument);
  EXPECT_EQ(registry.name(65535), "65535");
}

TEST(TagRegistry, NamesThatAreNoLineOfTextAreRefused) {
  TagRegistry registry;
  for (const std::string& name : {std::string(), std::string(256, 'x'), std::string("two\nlines"), std::string("\x7F"),
                                  std::string("nul\0", 4), std::string("\xFF\xFE"), std::string("\xC3")})
    EXPECT_THROW(static_cast<void>(registry.intern(name)), InvalidArgument) << name.size();
  EXPECT_EQ(registry.size(), 0U);
  EXPECT_EQ(registry.intern(std::string(255, 'x')), 1);
  EXPECT_EQ(registry.intern("\xC3\xA9t\xC3\xA9"), 2);
}

TEST(TagRegistry, ThreadsThatNameTheSameAgree) {
  TagRegistry registry;
  std::vector<std::vector<TagId>> numbers(4);
  std::vector<std::thread> threads;
  for (auto& mine : numbers)
    threads.emplace_back([&registry, &mine] {
      for (int i = 0; i < 500; ++i) mine.push_back(registry.intern(std::to_string(i % 100)));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.size(), 100U);
  for (const auto& mine : numbers) EXPECT_EQ(mine, numbers[0]);
}

TEST(TagScope, TheInnermostIsCurrentUntilItEnds) {
  EXPECT_EQ(Tag::current(), Tag{});
  const TagScope model("model");
  EXPECT_EQ(Tag::current().name(), "model");
  {
    const TagScope optimizer("optimizer");
    EXPECT_EQ(Tag::current().name(), "optimizer");
    const TagScope none{Tag{}};
    EXPECT_EQ(Tag::current(), Tag{});
    EXPECT_EQ(Tag::current().name(), "");
  }
  EXPECT_EQ(Tag::current().name(), "model");
}

TEST(TagScope, EachThreadHasItsOwnStack) {
  const TagScope scope("here");
  std::thread([] {
    EXPECT_EQ(Tag::current(), Tag{});
    const TagScope there("there");
    EXPECT_EQ(Tag::current().name(), "there");
  }).join();
  EXPECT_EQ(Tag::current().name(), "here");
}

TEST(TagScope, ScopesMayEndInAnyOrder) {
  auto first = std::make_unique<TagScope>("first");
  auto second = std::make_unique<TagScope>("second");
  auto third = std::make_unique<TagScope>("third");
  second.reset();
  EXPECT_EQ(Tag::current().name(), "third");
  first.reset();
  EXPECT_EQ(Tag::current().name(), "third");
  third.reset();
  EXPECT_EQ(Tag::current(), Tag{});
}

TEST(TagScope, ANameThatIsRefusedLeavesTheStackAsItWas) {
  const TagScope scope("kept");
  EXPECT_THROW(TagScope(""), InvalidArgument);
  EXPECT_EQ(Tag::current().name(), "kept");
}

// Figures by tag of a recorder, whose blocks are of the small pool.
class TagFiguresTest : public ::testing::Test {
 protected:
  void allocate(TagId tag, std::int64_t bytes) {
    recorder_.reserve(tag);
    recorder_.block_allocated(PoolKind::small, bytes, bytes, {}, false, {tag, nullptr});
  }
  void free(TagId tag, std::int64_t bytes) {
    recorder_.free_requested(PoolKind::small, bytes, false, {tag, nullptr});
    recorder_.free_completed(PoolKind::small, bytes, bytes, {}, {tag, nullptr});
  }
  Recorder recorder_;
};

TEST_F(TagFiguresTest, WhatWasThereBeforeTheFirstTagIsUntagged) {
  allocate(kUntagged, 100);
  allocate(kUntagged, 50);
  free(kUntagged, 100);
  EXPECT_EQ(recorder_.tag_count(), 1U);
  allocate(3, 10);
  EXPECT_EQ(recorder_.tag_count(), 4U);
  EXPECT_EQ(recorder_.tag_figures(kUntagged).allocated_bytes, stat(50, 150, 150, 100));
  EXPECT_EQ(recorder_.tag_figures(kUntagged).allocation, stat(1, 2, 2, 1));
  EXPECT_EQ(recorder_.tag_figures(kUntagged).at_peak_bytes, 150);
  EXPECT_EQ(recorder_.tag_figures(3).at_peak_bytes, 0);
  EXPECT_EQ(recorder_.tag_figures(3).allocated_bytes, stat(10, 10, 10, 0));
  free(kUntagged, 50);
  EXPECT_EQ(recorder_.tag_figures(kUntagged).allocated_bytes.current, 0);
}

TEST_F(TagFiguresTest, WhoHeldWhatAtThePeakStaysSoAfterIt) {
  allocate(1, 100);
  allocate(2, 50);
  free(1, 100);
  allocate(2, 40);  // 90: below the peak of 150
  EXPECT_EQ(recorder_.tag_figures(1).at_peak_bytes, 100);
  EXPECT_EQ(recorder_.tag_figures(2).at_peak_bytes, 50);
  allocate(1, 60);  // 150 again: the first time counts
  EXPECT_EQ(recorder_.tag_figures(1).at_peak_bytes, 100);
  allocate(1, 1);
  EXPECT_EQ(recorder_.tag_figures(1).at_peak_bytes, 61);
  EXPECT_EQ(recorder_.tag_figures(2).at_peak_bytes, 90);
}

TEST_F(TagFiguresTest, ResetsTouchThePeaksAndTheSumsAsTheHeapsOwn) {
  allocate(1, 100);
  allocate(2, 50);
  free(1, 100);
  recorder_.reset_peaks();
  EXPECT_EQ(recorder_.tag_figures(1).allocated_bytes, stat(0, 0, 100, 100));
  EXPECT_EQ(recorder_.tag_figures(1).at_peak_bytes, 0);
  EXPECT_EQ(recorder_.tag_figures(2).at_peak_bytes, 50);
  recorder_.reset_accumulated();
  EXPECT_EQ(recorder_.tag_figures(2).allocated_bytes, stat(50, 50, 0, 0));
  EXPECT_EQ(recorder_.tag_figures(2).allocation, stat(1, 1, 0, 0));
}

// Every tag's bytes copied at each new peak.
RC_GTEST_PROP(TagProperty, HoldersAtThePeakEqualACopyTakenThere, ()) {
  Recorder recorder;
  constexpr TagId kTags = 6;
  std::vector<std::int64_t> bytes(kTags, 0), at_peak(kTags, 0), peaks(kTags, 0);
  std::int64_t peak = 0;
  const auto total = [&] { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); };
  std::vector<std::pair<TagId, std::int64_t>> live;
  for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1 << 20))) {
    if (choice % 37 == 0) {
      recorder.reset_peaks();
      peak = total();
      at_peak = peaks = bytes;
    } else if (choice % 2 == 0 || live.empty()) {
      const auto tag = static_cast<TagId>(choice / 2 % kTags);
      const std::int64_t size = 512 * (1 + choice % 64);
      recorder.reserve(tag);
      recorder.block_allocated(PoolKind::large, size, size, {}, false, {tag, nullptr});
      live.emplace_back(tag, size);
      bytes[tag] += size;
      peaks[tag] = std::max(peaks[tag], bytes[tag]);
      if (total() > peak) {
        peak = total();
        at_peak = bytes;
      }
    } else {
      const std::size_t pick = static_cast<std::size_t>(choice) / 2 % live.size();
      const auto [tag, size] = live[pick];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      recorder.free_requested(PoolKind::large, size, false, {tag, nullptr});
      recorder.free_completed(PoolKind::large, size, size, {}, {tag, nullptr});
      bytes[tag] -= size;
    }
    for (std::size_t tag = 0; tag < recorder.tag_count(); ++tag) {
      RC_ASSERT(recorder.tag_figures(tag).allocated_bytes.current == bytes[tag]);
      RC_ASSERT(recorder.tag_figures(tag).allocated_bytes.peak == peaks[tag]);
      RC_ASSERT(recorder.tag_figures(tag).at_peak_bytes == at_peak[tag]);
    }
  }
}

// Streams that count by themselves where they have a part, as their walks do; what everybody has is looked at now and
// then.
struct SharingWorld {
  static constexpr std::size_t kStreams = 3;
  static constexpr TagId kTags = 12;  // more than a stream has parts of

  SharingWorld() {
    recorder.reserve_streams(kStreams);
    allocate(0, 1, 512);  // the first tag is for who has the heap's lock
  }
  void allocate(std::size_t of, TagId tag, std::int64_t size) {
    StreamLedger& stream = streams[of];
    TagShare::Part* part = recorder.keeps_tags() && stream.is_apart ? recorder.part_of(stream, tag) : nullptr;
    if (part != nullptr && part->has_room_for(size) && comes(stream, size)) {
      part->count_allocation(size);
      ++alone;
    } else {
      take_in();
      recorder.reserve(tag);
      recorder.block_allocated(PoolKind::large, size, size, {}, false, {tag, &stream});
    }
    live.push_back({of, tag, size});
    bytes[tag] += size;
    blocks[tag] += 1;
    peaks[tag] = std::max(peaks[tag], bytes[tag]);
    most_blocks[tag] = std::max(most_blocks[tag], blocks[tag]);
    if (total() <= peak) return;
    peak = total();
    at_peak = bytes;
  }
  void free(std::size_t place) {
    const auto [of, tag, size] = live[place];
    StreamLedger& stream = streams[of];
    TagShare::Part* part = stream.is_apart ? recorder.part_of(stream, tag) : nullptr;
    if (part != nullptr && stream.blocks.went(PoolKind::large, size, size, {})) {
      part->count_free(size);
    } else {
      if (part != nullptr) stream.blocks.take_back_free(PoolKind::large, size, size, {});
      take_in();
      recorder.freed(PoolKind::large, size, size, {}, false, {tag, &stream});
    }
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(place));
    bytes[tag] -= size;
    blocks[tag] -= 1;
  }
  void wake_or_sleep(std::size_t of) {
    take_in();
    streams[of].is_apart ? recorder.join(streams[of]) : recorder.part(streams[of]);
  }
  void reset_peaks() {
    take_in();
    recorder.reset_peaks();
    peak = total();
    at_peak = peaks = bytes;
    most_blocks = blocks;
  }
  void compare() {
    take_in();
    for (std::size_t tag = 0; tag < recorder.tag_count(); ++tag) {
      const TagFigures figures = recorder.tag_figures(tag);
      RC_ASSERT(figures.allocated_bytes.current == bytes[tag]);
      RC_ASSERT(figures.allocated_bytes.peak == peaks[tag]);
      RC_ASSERT(figures.allocation.current == blocks[tag]);
      RC_ASSERT(figures.allocation.peak == most_blocks[tag]);
      RC_ASSERT(figures.allocation.allocated - figures.allocation.freed == blocks[tag]);
      RC_ASSERT(figures.at_peak_bytes == at_peak[tag]);
    }
  }
  [[nodiscard]] std::int64_t total() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

  struct Live {
    std::size_t of;
    TagId tag;
    std::int64_t size;
  };
  Recorder recorder;
  std::array<StreamLedger, kStreams> streams;
  std::vector<Live> live;
  std::array<std::int64_t, kTags> bytes{}, blocks{}, peaks{}, most_blocks{}, at_peak{};
  std::int64_t peak = 0;
  std::int64_t alone = 0;

 private:
  static bool comes(StreamLedger& stream, std::int64_t size) {
    if (stream.blocks.came(PoolKind::large, size, size, {})) return true;
    stream.blocks.take_back(PoolKind::large, size, size, {});
    return false;
  }
  void take_in() {
    for (StreamLedger& stream : streams) recorder.take_in(stream);
  }
};

RC_GTEST_PROP(TagProperty, SharesOfStreamsCountAsOneCounter, ()) {
  SharingWorld world;
  for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1 << 20))) {
    const auto of = static_cast<std::size_t>(choice / 3 % 3);
    const int what = choice % 64;
    if (what == 0)
      world.reset_peaks();
    else if (what < 3)
      world.compare();
    else if (what < 6)
      world.wake_or_sleep(of);
    else if ((what % 2 == 0 && world.live.size() < 40) || world.live.empty())
      world.allocate(of, static_cast<TagId>(choice / 64 % SharingWorld::kTags), 512 * (1 + choice / 1024 % 8));
    else
      world.free(static_cast<std::size_t>(choice / 64) % world.live.size());
  }
  world.compare();
}

// A step that comes again needs nobody but its stream, once its tags came up to their peaks.
TEST(TagShares, AStepThatComesAgainIsCountedAlone) {
  for (int blocks = 1; blocks <= 5; ++blocks) {
    SharingWorld world;
    world.wake_or_sleep(0);
    const auto step = [&] {
      for (TagId tag = 1; tag <= TagShare::kMostTags; ++tag)
        for (int i = 0; i < blocks; ++i) world.allocate(0, tag, 512 * tag);
      while (world.live.size() > 1) world.free(1);
    };
    for (int i = 0; i < 5; ++i) step();
    const std::int64_t before = world.alone;
    step();
    EXPECT_EQ(world.alone - before, static_cast<std::int64_t>(TagShare::kMostTags) * blocks) << blocks;
  }
}

}  // namespace
}  // namespace cistern
