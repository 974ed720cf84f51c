// The rules of the default streams: CUDA driver API, "Stream synchronization behavior".
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/simulated/driver_fixture.h"
#include "tests/simulated/gate.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::Gate;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

class DefaultStreams : public ::testing::Test {
 protected:
  void note(StreamHandle stream, int mark) { ready.note(stream, order, mark); }
  void run(StreamHandle stream) { ready.driver.run_until_idle(stream); }
  bool is_done(StreamHandle stream) {
    const CUresult result = ready.api.stream_query(stream);
    EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) << result;
    return result == CUDA_SUCCESS;
  }

  ReadyDriver ready{{.devices = 2, .capacity_bytes = 16 * MiB}};
  std::vector<int> order;
  const StreamHandle blocking = ready.create_blocking_stream();
  const StreamHandle other_blocking = ready.create_blocking_stream();
  const StreamHandle non_blocking = ready.driver.create_stream();
};

TEST_F(DefaultStreams, LegacyWorkComesAfterAllEarlierWorkOfBlockingStreams) {
  note(blocking, 1);
  note(other_blocking, 2);
  note(CU_STREAM_PER_THREAD, 3);
  note(CU_STREAM_LEGACY, 4);
  run(CU_STREAM_LEGACY);
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order.back(), 4);
}

TEST_F(DefaultStreams, LaterWorkOfBlockingStreamsComesAfterLegacyWork) {
  note(nullptr, 1);
  for (const StreamHandle stream : {blocking, other_blocking, StreamHandle(CU_STREAM_PER_THREAD)}) note(stream, 2);
  run(other_blocking);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  run(CU_STREAM_PER_THREAD);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 2}));
}

TEST_F(DefaultStreams, LegacyWorkIsABarrierBetweenTwoBlockingStreams) {
  note(blocking, 1);
  note(nullptr, 2);
  note(other_blocking, 3);
  run(other_blocking);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(DefaultStreams, BlockingStreamsAloneDoNotWaitForOneAnother) {
  note(blocking, 1);
  note(other_blocking, 2);
  note(CU_STREAM_PER_THREAD, 3);
  run(other_blocking);
  EXPECT_EQ(order, std::vector<int>{2});
  run(CU_STREAM_PER_THREAD);
  EXPECT_EQ(order, (std::vector<int>{2, 3}));
}

TEST_F(DefaultStreams, NonBlockingStreamsAndTheLegacyStreamLeaveEachOtherAlone) {
  note(nullptr, 1);
  note(non_blocking, 2);
  run(non_blocking);
  EXPECT_EQ(order, std::vector<int>{2});
  note(non_blocking, 3);
  run(nullptr);
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
  EXPECT_FALSE(is_done(non_blocking));
  EXPECT_TRUE(is_done(nullptr));
}

TEST_F(DefaultStreams, AStreamCreatedLaterWaitsForLegacyWorkThatIsQueued) {
  note(nullptr, 1);
  const StreamHandle later = ready.create_blocking_stream();
  note(later, 2);
  run(later);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(DefaultStreams, AWaitInTheLegacyStreamHoldsUpBlockingStreams) {
  const CUevent event = ready.create_event();
  note(non_blocking, 1);
  EXPECT_EQ(ready.api.event_record(event, non_blocking), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(nullptr, event, 0), CUDA_SUCCESS);
  note(blocking, 2);
  run(blocking);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(DefaultStreams, AnEventOfTheLegacyStreamCoversAllBlockingStreams) {
  const CUevent event = ready.create_event();
  note(blocking, 1);
  note(other_blocking, 2);
  EXPECT_EQ(ready.api.event_record(event, CU_STREAM_LEGACY), CUDA_SUCCESS);
  note(blocking, 3);
  EXPECT_EQ(ready.api.stream_wait_event(non_blocking, event, 0), CUDA_SUCCESS);
  note(non_blocking, 4);
  run(non_blocking);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 4}));
}

TEST_F(DefaultStreams, AnEventOfABlockingStreamCoversEarlierLegacyWork) {
  const CUevent event = ready.create_event();
  note(nullptr, 1);
  EXPECT_EQ(ready.api.event_record(event, blocking), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
}

TEST_F(DefaultStreams, TheLegacyStreamIsDoneWhenBlockingStreamsAre) {
  note(blocking, 1);
  EXPECT_FALSE(is_done(nullptr));
  EXPECT_FALSE(is_done(CU_STREAM_LEGACY));
  run(blocking);
  EXPECT_TRUE(is_done(nullptr));
  note(nullptr, 2);
  EXPECT_TRUE(is_done(blocking));  // nothing is queued in it
  EXPECT_EQ(ready.api.stream_synchronize(blocking), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
}

TEST_F(DefaultStreams, SynchronisingTheLegacyStreamWaitsForBlockingStreamsOnly) {
  note(blocking, 1);
  note(non_blocking, 2);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(DefaultStreams, EachContextHasALegacyStreamOfItsOwn) {
  note(nullptr, 0);
  ready.use(1);
  const StreamHandle there = ready.create_blocking_stream();
  note(there, 1);
  EXPECT_EQ(ready.api.stream_synchronize(there), CUDA_SUCCESS);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_TRUE(is_done(nullptr));
  ready.use(0);
  EXPECT_FALSE(is_done(nullptr));
}

TEST_F(DefaultStreams, PerThreadStreamsOfTwoThreadsWaitForLegacyWorkAndNotForEachOther) {
  note(CU_STREAM_PER_THREAD, 1);
  std::thread([&] {
    ready.use(0);
    note(CU_STREAM_PER_THREAD, 2);
    run(CU_STREAM_PER_THREAD);
    EXPECT_EQ(order, std::vector<int>{2});
    note(nullptr, 3);  // waits for this thread's and the other's
    note(CU_STREAM_PER_THREAD, 4);
    run(CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_EQ(order, (std::vector<int>{2, 1, 3, 4}));
}

TEST_F(DefaultStreams, EachLegacyOperationIsABarrierForBlockingStreams) {
  for (int i = 0; i < 3; ++i) {
    note(blocking, 10 * i);
    note(nullptr, 10 * i + 1);
    note(other_blocking, 10 * i + 2);
  }
  run(other_blocking);
  ASSERT_EQ(order.size(), 9u);
  // Marks ascend in the order of submission: all that came before a legacy one ran before it.
  for (const int legacy : {1, 11, 21}) {
    const auto place = std::find(order.begin(), order.end(), legacy);
    EXPECT_TRUE(std::all_of(order.begin(), place, [&](int mark) { return mark < legacy; })) << legacy;
    EXPECT_TRUE(std::all_of(place, order.end(), [&](int mark) { return mark >= legacy; })) << legacy;
  }
}

TEST(DefaultStreamsFreeDrive, ABlockedBlockingStreamHoldsUpTheLegacyStreamAndNoNonBlockingOne) {
  Gate gate;
  ReadyDriver ready({.capacity_bytes = 16 * MiB, .drive = Drive::free});
  const StreamHandle blocking = ready.create_blocking_stream();
  const StreamHandle other_blocking = ready.create_blocking_stream();
  const StreamHandle non_blocking = ready.driver.create_stream();
  std::mutex mutex;
  std::vector<int> order;
  const auto note = [&](StreamHandle stream, int mark) {
    ready.driver.launch(stream, {}, {}, 0ns, [&order, &mutex, mark] {
      const std::lock_guard lock(mutex);
      order.push_back(mark);
    });
  };
  EXPECT_EQ(ready.api.launch_host_func(blocking, Gate::pass, &gate), CUDA_SUCCESS);
  note(nullptr, 2);
  note(other_blocking, 3);
  note(non_blocking, 1);
  EXPECT_EQ(ready.api.stream_synchronize(non_blocking), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.stream_query(other_blocking), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

}  // namespace
}  // namespace cistern
