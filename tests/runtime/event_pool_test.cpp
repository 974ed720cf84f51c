// The pool of events that guard frees.

#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "runtime/context.h"
#include "runtime/event_pool.h"

namespace cistern {
namespace {

class EventPools : public ::testing::Test {
 protected:
  CUevent acquire(EventPool& pool) {
    CUevent event = nullptr;
    EXPECT_EQ(pool.acquire(&event), CUDA_SUCCESS);
    return event;
  }

  SimulatedDriver driver_;
  Contexts contexts_{driver_.api()};
  ContextGuard current_{driver_.api(), contexts_.primary(0)};
};

TEST_F(EventPools, HandOutAReturnedEventBeforeTheyMakeAnother) {
  EventPool pool(driver_.api());
  const CUevent first = acquire(pool);
  pool.release(first);
  EXPECT_EQ(acquire(pool), first);
  EXPECT_EQ(driver_.calls("cuEventCreate"), 1U);
  pool.release(first);
}

TEST_F(EventPools, NeverHandOutAnEventTwice) {
  EventPool pool(driver_.api());
  std::vector<CUevent> out;
  for (int i = 0; i < 100; ++i) out.push_back(acquire(pool));
  EXPECT_EQ(std::set<CUevent>(out.begin(), out.end()).size(), out.size());
  for (const CUevent event : out) pool.release(event);
}

TEST_F(EventPools, DestroyWhatWasGivenBackAndNothingElse) {
  CUevent kept = nullptr;
  {
    EventPool pool(driver_.api());
    std::vector<CUevent> out;
    for (int i = 0; i < 40; ++i) out.push_back(acquire(pool));
    kept = out.back();
    out.pop_back();
    for (const CUevent event : out) pool.release(event);
  }
  EXPECT_EQ(driver_.calls("cuEventDestroy"), 39U);
  EXPECT_EQ(driver_.api().event_query(kept), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().event_destroy(kept), CUDA_SUCCESS);
}

TEST_F(EventPools, PassOnARefusalAndWorkAfterwards) {
  EventPool pool(driver_.api());
  driver_.fail_call("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CUevent event = nullptr;
  EXPECT_EQ(pool.acquire(&event), CUDA_ERROR_OUT_OF_MEMORY);
  pool.release(acquire(pool));
}

TEST_F(EventPools, EventsHaveNoTiming) {
  EventPool pool(driver_.api());
  const CUevent start = acquire(pool);
  const CUevent end = acquire(pool);
  float milliseconds = 0;
  EXPECT_EQ(driver_.api().event_record(start, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().event_record(end, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(driver_.api().event_elapsed_time(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
  pool.release(start);
  pool.release(end);
}

TEST_F(EventPools, ServeManyThreads) {
  EventPool pool(driver_.api());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const ContextGuard current(driver_.api(), contexts_.primary(0));
      for (int i = 0; i < 200; ++i) {
        const CUevent one = acquire(pool);
        const CUevent two = acquire(pool);
        EXPECT_NE(one, two);
        pool.release(one);
        pool.release(two);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(driver_.calls("cuEventCreate"), 8U);
}

}  // namespace
}  // namespace cistern
