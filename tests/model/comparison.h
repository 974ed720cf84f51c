#pragma once

// The allocator beside its executable specification, step by step.

#include <cstddef>

namespace cistern {

struct SetUp {
  const char* name;
  std::size_t capacity;
  const char* options;
  std::size_t pools = 0;  // 1: private pools, too
  bool switches = false;  // turns expandable segments on and off
  bool seldom = false;    // what both have is compared now and then, and nothing has a tag unless tags_seldom
  // Paged memory: what is live and pending is that of expandable segments, which the model has in its place.
  bool paged = false;
  bool tags_seldom = false;  // some have tags although nobody looks
};

// Runs a random program on both, and compares after each step, or some of them.
void run_random_program(const SetUp& setup);

}  // namespace cistern
