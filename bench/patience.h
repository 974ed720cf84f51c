#pragma once

#include <thread>

namespace cistern {

// How a thread waits for another one: on its processor, which it gives up only when it takes long,
// for there may be too few.
class Patience {
 public:
  void spend() {
    if (++turns_ > kTurns) std::this_thread::yield();
  }
  void renew() { turns_ = 0; }

 private:
  static constexpr int kTurns = 20000;  // some tens of microseconds
  int turns_ = 0;
};

}  // namespace cistern
