#include "tests/detector/completion_orders.h"

namespace cistern::testing {

bool CompletionOrders::bytes_can_differ(const RandomProgram& program) {
  choices_.clear();
  states_.clear();
  seen_.clear();
  run_.load(program);
  do {
    if (!try_order()) return true;
  } while (next_order());
  return false;
}

bool CompletionOrders::agrees_with_before() {
  const std::vector<std::uint64_t>& now = run_.observations();
  seen_.resize(now.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == 0) continue;
    if (seen_[i] != 0 && seen_[i] != now[i]) return false;
    seen_[i] = now[i];
  }
  return true;
}

bool CompletionOrders::try_order() {
  ++orders_;
  run_.begin();
  bool agrees = true;
  for (std::size_t depth = 0; agrees; ++depth) {
    const simulated::Targets ready = run_.ready();
    const std::size_t choices = ready.size() + (run_.host_is_done() ? 0 : 1);
    if (choices == 0) break;
    if (depth == choices_.size()) {
      // What follows from a state does not depend on how it was reached.
      if (!states_.insert(run_.state()).second) break;
      choices_.push_back({0, choices});
    }
    const std::size_t taken = choices_[depth].taken;
    if (taken < ready.size()) {
      run_.advance(ready[taken]);
    } else {
      run_.advance_host();
    }
    agrees = agrees_with_before();
  }
  run_.end();
  return agrees;
}

bool CompletionOrders::next_order() {
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().choices) choices_.pop_back();
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

}  // namespace cistern::testing
