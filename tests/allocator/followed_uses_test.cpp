// What others use of blocks that are handed out as steps that are followed.
#include "allocator/followed_uses.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cistern {
namespace {

StreamUses use_of(std::uint64_t stream) {
  StreamUses uses;
  uses.emplace_front();
  uses.front().stream.id = stream;
  return uses;
}

TEST(FollowedUses, AreFoundByTheirAddressesUntilTheyGo) {
  FollowedUses used;
  EXPECT_EQ(used.find(512), nullptr) << "before anything came";
  std::unordered_map<std::uint64_t, std::uint64_t> plain;
  std::mt19937_64 random(7);
  for (std::uint64_t i = 1; i < 20000; ++i) {
    const std::uint64_t address = 512 * (1 + random() % 700);
    FollowedUses::Used* const found = used.find(address);
    ASSERT_EQ(found != nullptr, plain.contains(address));
    if (found == nullptr) {
      used.make_room();
      used.add(address, 3 * address, use_of(i));
      plain[address] = i;
      continue;
    }
    EXPECT_EQ(found->address, address);
    EXPECT_EQ(found->bytes, 3 * address);
    EXPECT_EQ(found->uses.front().stream.id, plain[address]);
    used.erase(found);
    plain.erase(address);
  }
  ASSERT_EQ(used.size(), plain.size());
  for (const auto& [address, stream] : plain) ASSERT_NE(used.find(address), nullptr);
}

// Addresses whose homes are the same place, or follow each other around the end of the table.
TEST(FollowedUses, WhatLiesBehindOneThatGoesIsFound) {
  for (std::uint64_t gone = 1; gone <= 8; ++gone) {
    FollowedUses used;
    for (std::uint64_t i = 1; i <= 8; ++i) {
      used.make_room();
      used.add(512 * i, i, use_of(i));
    }
    used.erase(used.find(512 * gone));
    for (std::uint64_t i = 1; i <= 8; ++i) EXPECT_EQ(used.find(512 * i) != nullptr, i != gone) << i << " of " << gone;
  }
}

TEST(FollowedUses, AllAreTakenOnce) {
  FollowedUses used;
  std::vector<std::uint64_t> taken;
  const auto take_all = [&] {
    taken.clear();
    used.take_all([&](FollowedUses::Used& one) { taken.push_back(one.uses.front().stream.id); });
    return taken.size();
  };
  EXPECT_EQ(take_all(), 0U);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    used.make_room();
    used.add(4096 * i, 512, use_of(i));
  }
  EXPECT_EQ(take_all(), 100U);
  EXPECT_EQ(used.size(), 0U);
  EXPECT_EQ(take_all(), 0U);
  EXPECT_EQ(used.find(4096), nullptr);
}

}  // namespace
}  // namespace cistern
