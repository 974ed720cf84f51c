#include "allocator/brief_mutex.h"
#include "allocator/biased_mutex.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <thread>

#include "tests/property.h"

namespace cistern {
namespace {

template <class Mutex>
class BriefMutexes : public ::testing::Test {};
using BothMutexes = ::testing::Types<BriefMutex, PatientProcessors::Mutex>;
TYPED_TEST_SUITE(BriefMutexes, BothMutexes);

// Held for long now and then, so that others sleep as well.
TYPED_TEST(BriefMutexes, OneAtATimeHasIt) {
  TypeParam mutex;
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
