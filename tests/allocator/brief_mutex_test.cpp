#include "allocator/brief_mutex.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <thread>

#include "tests/property.h"

namespace cistern {
namespace {

// Held for long now and then, so that others sleep as well.
TEST(BriefMutex, OneAtATimeHasIt) {
  BriefMutex mutex;
  const long rounds = scaled(20000);
  long count = 0;
  std::array<std::thread, 3> threads;
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      for (long round = 0; round < rounds; ++round) {
        const std::lock_guard lock(mutex);
        const long before = count;
        if (round % 1000 == 0)
          for (int i = 0; i < 50; ++i) std::this_thread::yield();
        count = before + 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 3 * rounds);
}

}  // namespace
}  // namespace cistern
