#pragma once

// What a random program is made of.

#include <rapidcheck.h>

#include <iosfwd>

#include "tests/byte_units.h"

namespace cistern {

constexpr int kStreams = 4;

enum class Action {
  allocate,
  free,
  free_used_on,
  record,
  occupy,
  finish,
  empty_cache,
  trim,
  reset,
  open_scope,
  close_scope,
  expand,  // in programs that switch, turns expandable segments on or off
  // Of private pools; programs without pools leave them out.
  begin,
  end,
  release_pool,
  make_mem_pool,
  drop_mem_pool,
  enter,
  leave,
  allocate_in,
  turn,
};

struct Step {
  Action action = Action::allocate;
  std::size_t bytes = 0;
  int stream = 0;
  std::size_t pick = 0;  // which of the live blocks
};

std::ostream& operator<<(std::ostream& out, const Step& step);

// Weights of 0 and 1 times `pools` for what concerns private pools.
[[nodiscard]] rc::Gen<Step> any_step(std::size_t pools);

}  // namespace cistern
