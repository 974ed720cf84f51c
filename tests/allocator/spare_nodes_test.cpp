// Nodes of trees that must not fail to take one.
#include "allocator/spare_nodes.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory_resource>
#include <set>
#include <vector>

namespace cistern {
namespace {

TEST(SpareNodes, WhatWasGivenBackServesAgain) {
  SpareNodes nodes;
  std::vector<void*> taken;
  for (int i = 0; i < 1000; ++i) {
    taken.push_back(nodes.allocate(48, 8));
    std::memset(taken.back(), i & 0xFF, 48);
  }
  const std::set<void*> first(taken.begin(), taken.end());
  EXPECT_EQ(first.size(), 1000U) << "none is given twice";
  for (void* place : taken) nodes.deallocate(place, 48, 8);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(first.contains(nodes.allocate(48, 8)));
}

TEST(SpareNodes, IsMemoryForATree) {
  SpareNodes nodes;
  nodes.provide_in_all(500);
  std::pmr::map<int, int> tree(&nodes);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 500; ++i) tree[i * 7 % 501] = i;
    ASSERT_EQ(tree.size(), 500U);
    tree.clear();
  }
}

}  // namespace
}  // namespace cistern
