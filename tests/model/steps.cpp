#include "steps.h"

#include <ostream>

namespace cistern {
namespace {

// Sizes at which the rules change, and any size between.
rc::Gen<std::size_t> request_size() {
  return rc::gen::oneOf(
      rc::gen::inRange<std::size_t>(1, 4096), rc::gen::inRange<std::size_t>(4096, 2 * kMega),
      rc::gen::inRange<std::size_t>(kMega, 12 * kMega), rc::gen::inRange<std::size_t>(10 * kMega, 70 * kMega),
      rc::gen::element<std::size_t>(1, 511, 512, 513, kMega - 1, kMega, kMega + 1, 2 * kMega, 10 * kMega - 512,
                                    10 * kMega - 1, 10 * kMega, 10 * kMega + 1, 20 * kMega, 32 * kMega, 64 * kMega));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Step& step) {
  static const char* const names[] = {
      "allocate",     "free",         "free used on", "record",      "occupy", "finish",      "empty cache",
      "trim to",      "reset",        "open scope",   "close scope", "expand", "begin",       "end",
      "release pool", "make MemPool", "drop",         "enter",       "leave",  "allocate in", "turn"};
  return out << names[static_cast<int>(step.action)] << " (bytes " << step.bytes << ", stream " << step.stream
             << ", pick " << step.pick << ")";
}

rc::Gen<Step> any_step(std::size_t pools) {
  const auto action = rc::gen::weightedElement<Action>({{40, Action::allocate},
                                                        {24, Action::free},
                                                        {6, Action::free_used_on},
                                                        {16, Action::record},
                                                        {10, Action::occupy},
                                                        {8, Action::finish},
                                                        {2, Action::empty_cache},
                                                        {2, Action::trim},
                                                        {1, Action::reset},
                                                        {3, Action::open_scope},
                                                        {3, Action::close_scope},
                                                        {2, Action::expand},
                                                        {4 * pools, Action::begin},
                                                        {5 * pools, Action::end},
                                                        {4 * pools, Action::release_pool},
                                                        {3 * pools, Action::make_mem_pool},
                                                        {3 * pools, Action::drop_mem_pool},
                                                        {3 * pools, Action::enter},
                                                        {3 * pools, Action::leave},
                                                        {6 * pools, Action::allocate_in},
                                                        {8, Action::turn}});
  return rc::gen::build<Step>(rc::gen::set(&Step::action, action), rc::gen::set(&Step::bytes, request_size()),
                              rc::gen::set(&Step::stream, rc::gen::inRange(0, kStreams)),
                              rc::gen::set(&Step::pick, rc::gen::arbitrary<std::size_t>()));
}

}  // namespace cistern
