// The nodes of free runs, trees of them, and the two indexes.

#include "allocator/run_nodes.h"
#include "allocator/run_tree.h"
#include "allocator/runs_by_address.h"
#include "allocator/runs_by_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/allocator/mapped_pages.h"

namespace cistern {
namespace {

RunNumber add_node(RunNodes& nodes, const FreeRun& run) {
  const RunNumber number = nodes.take();
  nodes[number].be({run});
  return number;
}

TEST(RunNodesTest, NumbersAreAloneUntilTheyAreGivenBack) {
  RunNodes nodes;
  EXPECT_FALSE(nodes.has_room_for(1));
  nodes.provide(1000);
  EXPECT_TRUE(nodes.has_room_for(1000));
  std::set<RunNumber> taken;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(taken.insert(add_node(nodes, {i, 1, 0})).second);
  nodes.provide(3000);  // what is taken stays as it is
  for (int i = 1000; i < 3000; ++i) EXPECT_TRUE(taken.insert(add_node(nodes, {i, 1, 0})).second);
  std::set<Sectors> addresses;
  for (const RunNumber number : taken) addresses.insert(nodes[number].address);
  EXPECT_EQ(addresses.size(), 3000U);
  nodes.give(7);
  EXPECT_EQ(nodes[7].found, IndexedRun::kAll) << "nothing is to be found of what is nobody's";
  EXPECT_EQ(nodes.take(), 7U);
}

// Most of the room that is kept is never used.
TEST(RunNodesTest, PagesComeAsFarAsRunsCame) {
  using testing_host::kMappedPage;
  constexpr std::size_t kRuns = 100'000;
  RunNodes nodes;
  nodes.provide(kRuns);
  const auto pages = [&] { return testing_host::resident_pages(&nodes[0], kRuns * sizeof(RunNode)); };
  EXPECT_EQ(pages(), 0U);
  for (int i = 0; i < 2000; ++i) add_node(nodes, {i, 1, 0});
  EXPECT_LE(pages(), (2000 + 256) * sizeof(RunNode) / kMappedPage + 1);
  for (RunNumber number = 0; number < 2000; ++number) nodes.give(number);
  for (int i = 0; i < 2000; ++i) EXPECT_LT(add_node(nodes, {i, 1, 0}), 2000U) << "what was there is used again";
  EXPECT_TRUE(nodes.has_room_for(kRuns));
}

using ByAddress =
    RunTree<&RunNode::by_address, [](const RunNode& a, const RunNode& b) noexcept { return a.address < b.address; }>;

std::vector<Sectors> addresses_of(const RunNodes& nodes, RunNumber root) {
  std::vector<Sectors> found;
  if (root == kNoRun) return found;
  for (RunNumber at = ByAddress::first(nodes, root); at != kNoRun; at = ByAddress::next(nodes, at))
    found.push_back(nodes[at].address);
  return found;
}

TEST(RunTreeTest, ProgramsAgreeWithAMapWhicheverWayTheyGrow) {
  for (const int kind : {0, 1, 2}) {
    std::mt19937_64 random(20261127 + static_cast<unsigned>(kind));
    RunNodes nodes;
    nodes.provide(3000);
    RunNumber root = kNoRun;
    std::map<Sectors, RunNumber> expected;
    for (int round = 0; round < 6000; ++round) {
      // It grows at its end, at its beginning, or anywhere, and shrinks at times.
      const Sectors key = kind == 0 ? round : kind == 1 ? 10'000 - round : static_cast<Sectors>(random() % 900);
      const auto at = expected.lower_bound(key);
      const auto is_before = [key](const RunNode& run) { return run.address < key; };
      const RunNumber first = ByAddress::first_behind(nodes, root, is_before);
      ASSERT_EQ(first, at == expected.end() ? kNoRun : at->second);
      const RunNumber last = ByAddress::last_before(nodes, root, is_before);
      ASSERT_EQ(last, at == expected.begin() ? kNoRun : std::prev(at)->second);
      if (round / 1000 % 3 == 2 && !expected.empty()) {
        const auto gone = at == expected.end() ? std::prev(at) : at;
        ByAddress::erase(nodes, root, gone->second);
        nodes.give(gone->second);
        expected.erase(gone);
      } else if (!expected.contains(key)) {
        expected[key] = add_node(nodes, {key, 1, 0});
        ByAddress::insert(nodes, root, expected[key]);
      }
      if (round % 16 != 0) continue;
      ASSERT_TRUE(ByAddress::is_sound(nodes, root)) << "round " << round;
      std::vector<Sectors> all;
      for (const auto& [address, number] : expected) all.push_back(address);
      ASSERT_EQ(addresses_of(nodes, root), all) << "round " << round;
      if (!all.empty()) {
        ASSERT_EQ(nodes[ByAddress::last(nodes, root)].address, all.back());
        ASSERT_EQ(ByAddress::is_alone(nodes[root]), all.size() == 1);
      }
    }
  }
}

// In whatever order they come.
TEST(RunTreeTest, ATreeOfRunsInOrderIsNotDeep) {
  constexpr RunNumber kRuns = 1 << 14;
  RunNodes nodes;
  nodes.provide(kRuns);
  RunNumber root = kNoRun;
  for (RunNumber i = 0; i < kRuns; ++i) ByAddress::insert(nodes, root, add_node(nodes, {Sectors{i}, 1, 0}));
  int deepest = 0;
  for (RunNumber at = ByAddress::first(nodes, root); at != kNoRun; at = ByAddress::next(nodes, at)) {
    int depth = 1;
    for (RunNumber above = nodes[at].by_address.parent; above != kNoRun; above = nodes[above].by_address.parent)
      ++depth;
    deepest = std::max(deepest, depth);
  }
  EXPECT_LT(deepest, 50);
}

// In one tree, or in bins.
class RunsBySizeTest : public ::testing::TestWithParam<bool> {
 protected:
  RunsBySizeTest() {
    nodes_.provide(64);
    for (const StreamNumber stream : {1, 2, 3, 70}) {
      runs_.add_stream(stream);
      if (GetParam()) have_bins(stream);
    }
  }
  // It had more than few once.
  void have_bins(StreamNumber stream) {
    std::vector<RunNumber> numbers;
    for (std::size_t i = 0; i <= RunsBySize::kFew; ++i) numbers.push_back(add({static_cast<Sectors>(i), 9, stream}));
    runs_.provide_bins(stream);
    for (const RunNumber number : numbers) {
      runs_.remove(number);
      nodes_.give(number);
    }
  }
  RunNumber add(const FreeRun& run) {
    const RunNumber number = add_node(nodes_, run);
    runs_.add(number);
    return number;
  }
  [[nodiscard]] std::vector<FreeRun> from(StreamNumber stream, Sectors sectors) const {
    std::vector<FreeRun> found;
    runs_.for_each_from(stream, sectors, [&](RunNumber /*number*/, const RunNode& run) {
      found.push_back(run.run());
      return true;
    });
    return found;
  }

  RunNodes nodes_;
  RunsBySize runs_{nodes_};
};

TEST_P(RunsBySizeTest, RunsOfAStreamBySizeAndThenAddress) {
  constexpr Sectors kFar = (Sectors{1} << kAddressBits) - 1;
  constexpr Sectors kLong = (Sectors{1} << kArenaBits) - 1;
  const std::vector<FreeRun> all{{5, 1, 2}, {kFar, 1, 2}, {0, 2, 2}, {9, kLong - 1, 2}, {3, kLong, 2}};
  std::vector<RunNumber> numbers;
  for (const FreeRun& run : all)
    for (const StreamNumber stream : {1, 2, 3, 70}) numbers.push_back(add({run.address, run.sectors, stream}));
  EXPECT_EQ(from(2, 0), all);
  EXPECT_EQ(from(2, 2), std::vector<FreeRun>(all.begin() + 2, all.end()));
  EXPECT_EQ(from(2, kLong), std::vector<FreeRun>(all.begin() + 4, all.end()));
  EXPECT_EQ(from(4, 0), std::vector<FreeRun>());
  EXPECT_EQ(from(70, kLong), (std::vector<FreeRun>{{3, kLong, 70}}));
  for (const StreamNumber stream : {1, 2, 3, 70, 71}) EXPECT_EQ(from(stream, kLong + 1), std::vector<FreeRun>());
  EXPECT_TRUE(runs_.has_any_of(70));
  EXPECT_FALSE(runs_.has_any_of(4));
  EXPECT_FALSE(runs_.has_any_of(71));
  EXPECT_EQ(runs_.audit(), 20U);
  for (std::size_t i = 3; i < numbers.size(); i += 4) runs_.remove(numbers[i]);
  EXPECT_FALSE(runs_.has_any_of(70));
  EXPECT_EQ(from(2, 0), all);
  EXPECT_EQ(runs_.audit(), 15U);
}

TEST_P(RunsBySizeTest, ARunStaysWhereItIsAloneAmongItsSizes) {
  const RunNumber run = add({10'000, 1000, 1});
  EXPECT_TRUE(runs_.stays(nodes_[run], 1001));
  EXPECT_EQ(runs_.stays(nodes_[run], 2000), !GetParam()) << "in another bin";
  const RunNumber other = add({20'000, 1001, 1});
  EXPECT_FALSE(runs_.stays(nodes_[run], 1002)) << "it would come behind the other one";
  runs_.remove(other);
  EXPECT_TRUE(runs_.stays(nodes_[run], 1002));
}

INSTANTIATE_TEST_SUITE_P(Runs, RunsBySizeTest, ::testing::Bool());

// Whether they are parted into bins shows in where a run stays.
TEST(RunsBySizeParts, BinsAreProvidedForMoreThanFewRuns) {
  RunNodes nodes;
  nodes.provide(512);
  RunsBySize runs(nodes);
  runs.add_stream(5);
  std::mt19937_64 random(20261127);
  const auto is_parted = [&] {
    const RunNumber probe = add_node(nodes, {1'000'000, 5'000'000, 5});
    runs.add(probe);
    const bool is_alone = runs.stays(nodes[probe], 5'000'001);
    runs.remove(probe);
    nodes.give(probe);
    return is_alone;
  };
  for (std::size_t i = 0; i < 300; ++i) {
    runs.add(add_node(nodes, {static_cast<Sectors>(i), static_cast<Sectors>(1 + random() % 1000), 5}));
    if (i + 1 == RunsBySize::kFew) {
      runs.provide_bins(5);
      EXPECT_FALSE(is_parted());
    }
    if (i == RunsBySize::kFew) {
      EXPECT_FALSE(is_parted());
      runs.provide_bins(5);
      EXPECT_TRUE(is_parted());
    }
  }
  EXPECT_EQ(runs.audit(), 300U);
  Sectors last = 0;
  std::size_t found = 0;
  runs.for_each_from(5, 0, [&](RunNumber /*number*/, const RunNode& run) {
    EXPECT_LE(last, run.sectors);
    last = run.sectors;
    return ++found != 0;
  });
  EXPECT_EQ(found, 300U);
}

class RunsByAddressTest : public ::testing::Test {
 protected:
  RunsByAddressTest() { nodes_.provide(4096); }
  RunNumber add(Sectors address) {
    runs_.provide(address);
    const RunNumber number = add_node(nodes_, {address, 1, 0});
    runs_.add(number);
    return number;
  }
  // Where it begins; -1: there is none.
  [[nodiscard]] Sectors last_up_to(Sectors address) const {
    const RunNumber found = runs_.last_up_to(address);
    return found == kNoRun ? -1 : nodes_[found].address;
  }

  RunNodes nodes_;
  RunsByAddress runs_{nodes_};
};

TEST_F(RunsByAddressTest, TheRunBeforeIsFoundInItsRegionInOthersAndInOtherArenas) {
  constexpr Sectors kArena = Sectors{1} << kArenaBits;
  EXPECT_EQ(last_up_to(3 * kArena), -1);
  const std::vector<Sectors> all{kArena + 7, kArena + 4096, kArena + 4097, kArena + 9'000'000, 5 * kArena};
  std::vector<RunNumber> numbers;
  for (const Sectors address : all) numbers.push_back(add(address));
  EXPECT_EQ(runs_.audit(), all.size());
  EXPECT_EQ(last_up_to(0), -1);
  EXPECT_EQ(last_up_to(kArena + 6), -1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(last_up_to(all[i]), all[i]);
    EXPECT_EQ(last_up_to(all[i] + 1), i == 1 ? all[2] : all[i]);
    EXPECT_EQ(last_up_to(all[i] - 1), i == 0 ? -1 : all[i - 1]);
  }
  // Far beyond what was provided for, and in an arena between two.
  EXPECT_EQ(last_up_to(2 * kArena - 1), all[3]);
  EXPECT_EQ(last_up_to(3 * kArena), all[3]);
  EXPECT_EQ(last_up_to(900 * kArena), all[4]);
  runs_.remove(numbers[2]);
  EXPECT_EQ(last_up_to(all[2]), all[1]);
  runs_.remove(numbers[1]);
  EXPECT_EQ(last_up_to(all[2]), all[0]);
  EXPECT_EQ(runs_.audit(), 3U);
}

TEST_F(RunsByAddressTest, ARunStaysWhereItBeginsInTheSameRegion) {
  const RunNumber run = add(4096 + 10);
  EXPECT_TRUE(RunsByAddress::stays(nodes_[run], 4096));
  EXPECT_TRUE(RunsByAddress::stays(nodes_[run], 8191));
  EXPECT_FALSE(RunsByAddress::stays(nodes_[run], 4095));
  EXPECT_FALSE(RunsByAddress::stays(nodes_[run], 8192));
}

TEST_F(RunsByAddressTest, ManyRunsOfOneRegionAreFound) {
  for (Sectors address = 0; address < 4000; address += 2) add(address);
  for (Sectors address = 0; address < 4000; ++address) ASSERT_EQ(last_up_to(address), address / 2 * 2);
  EXPECT_EQ(last_up_to(100'000), 3998);
  EXPECT_EQ(runs_.audit(), 2000U);
}

}  // namespace
}  // namespace cistern
