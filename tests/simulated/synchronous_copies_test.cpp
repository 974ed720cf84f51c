// What cuMemcpy, and copies between host memory, have waited for when they return. "CUDA Driver
// API", "API synchronization behavior".
#include <gtest/gtest.h>

#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using cistern::testing::address_of;
using cistern::testing::ReadyDriver;

// Device memory is host memory here, so that a test sees what has been copied so far.
class SynchronousCopies : public ::testing::Test {
 protected:
  int* page_locked(int value) {
    void* pointer = nullptr;
    EXPECT_EQ(api.mem_host_alloc(&pointer, sizeof value, 0), CUDA_SUCCESS);
    return &(*static_cast<int*>(pointer) = value);
  }
  int* on_device(int value) {
    auto* pointer = reinterpret_cast<int*>(ready.allocate(sizeof value));
    return &(*pointer = value);
  }
  CUresult copy(int* to, const int* from) { return api.memcpy(address_of(to), address_of(from), sizeof(int)); }
  CUresult copy(int* to, const int* from, CUstream stream) {
    return api.memcpy_async(address_of(to), address_of(from), sizeof(int), stream);
  }

  ReadyDriver ready;
  const DriverApi& api = ready.api;
  std::vector<int> ran;
};

TEST_F(SynchronousCopies, BetweenHostMemoryTheyAreOverWhenTheyReturn) {
  const StreamHandle stream = ready.driver.create_stream();
  int pageable = 1;
  int result = 0;
  ready.note(stream, ran, 1);
  EXPECT_EQ(copy(&result, &pageable, stream), CUDA_SUCCESS);
  EXPECT_EQ(ran, std::vector<int>{1});
  EXPECT_EQ(result, 1);
  int* locked = page_locked(2);
  EXPECT_EQ(copy(&result, locked, stream), CUDA_SUCCESS);
  EXPECT_EQ(result, 2);
  EXPECT_EQ(copy(locked, &pageable), CUDA_SUCCESS);
  EXPECT_EQ(*locked, 1);
}

TEST_F(SynchronousCopies, FromPageableMemoryTheyWaitBeforeTheyReadAndNotForTheCopysEnd) {
  int source = 1;
  int* data = on_device(0);
  ready.driver.launch(nullptr, {}, {}, {}, [&source] { source = 2; });
  EXPECT_EQ(copy(data, &source), CUDA_SUCCESS);
  EXPECT_EQ(source, 2);  // the work before it is over
  EXPECT_EQ(*data, 0);   // the copy itself is not
  source = 3;
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*data, 2);
}

TEST_F(SynchronousCopies, FromPageLockedMemoryTheyAreOverWhenTheyReturn) {
  int* data = on_device(0);
  EXPECT_EQ(copy(data, page_locked(5)), CUDA_SUCCESS);
  EXPECT_EQ(*data, 5);
}

TEST_F(SynchronousCopies, ToHostMemoryTheyAreOverWhenTheyReturn) {
  int result = 0;
  EXPECT_EQ(copy(&result, on_device(5)), CUDA_SUCCESS);
  EXPECT_EQ(result, 5);
  int* locked = page_locked(0);
  EXPECT_EQ(copy(locked, on_device(6)), CUDA_SUCCESS);
  EXPECT_EQ(*locked, 6);
}

TEST_F(SynchronousCopies, FromDeviceToDeviceNobodyWaits) {
  int* from = on_device(5);
  int* to = on_device(0);
  ready.note(nullptr, ran, 1);
  EXPECT_EQ(copy(to, from), CUDA_SUCCESS);
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(*to, 0);
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*to, 5);
}

TEST_F(SynchronousCopies, TheyWaitForBlockingStreamsAsTheLegacyStreamDoes) {
  int result = 0;
  const StreamHandle apart = ready.driver.create_stream();
  ready.note(apart, ran, 2);
  ready.note(ready.create_blocking_stream(), ran, 1);
  EXPECT_EQ(copy(&result, on_device(5)), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_query(apart), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(std::vector<int>(ran.begin(), ran.begin() + 1), std::vector<int>{1});
}

}  // namespace
}  // namespace cistern
