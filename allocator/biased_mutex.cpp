#include "allocator/biased_mutex.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace cistern {
namespace {

long membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }

bool can_pass_barriers() {
  const long offered = membarrier(MEMBARRIER_CMD_QUERY);
  if (offered < 0 || (offered & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return false;
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

void sleep_for(long nanoseconds) {
  const timespec time{0, nanoseconds};
  ::nanosleep(&time, nullptr);
}

}  // namespace

HostProcessors::Thread HostProcessors::nobody() noexcept {
  static const char mark = 0;
  return reinterpret_cast<Thread>(&mark);
}

bool HostProcessors::has_barrier() noexcept {
  static const bool has = can_pass_barriers();
  return has;
}

// Registered, the call can fail only where a filter of calls was put up since. Then all that a
// processor has stored is seen after a while that is longer than any buffer of stores takes.
void HostProcessors::pass_barrier() noexcept {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  if (membarrier(MEMBARRIER_CMD_GLOBAL) == 0) return;
  std::atomic<bool> own_stores_are_seen{false};
  static_cast<void>(own_stores_are_seen.exchange(true));
  sleep_for(10'000'000);
}

void HostProcessors::wait(unsigned round) noexcept {
  if (round < 64)
    ::sched_yield();
  else
    sleep_for(50'000);
}

}  // namespace cistern
