#pragma once

// What a program can see, over every order in which the stepped drive may complete its work.

#include "tests/detector/program_run.h"

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace cistern::testing {

class CompletionOrders {
 public:
  // Whether some access sees other bytes in one legal order than in another.
  bool bytes_can_differ(const RandomProgram& program);
  // Orders that were tried, of all programs: those cut short where they met a known state count.
  [[nodiscard]] std::uint64_t orders() const { return orders_; }

 private:
  // A point at which there was a choice: which was taken, of how many.
  struct Choice {
    std::size_t taken;
    std::size_t choices;
  };
  // Follows the choices, then takes the first of each; false if an access sees other bytes
  // than it did before.
  bool try_order();
  // Moves on to the next order; false if there is none.
  bool next_order();
  bool agrees_with_before();

  ProgramRun run_{RaceMode::off};
  std::vector<Choice> choices_;
  std::unordered_set<std::uint64_t> states_;
  std::vector<std::uint64_t> seen_;
  std::uint64_t orders_ = 0;
};

}  // namespace cistern::testing
