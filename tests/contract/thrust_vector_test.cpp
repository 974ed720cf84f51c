// Thrust's vectors over the allocator; algorithms run on the host, which reaches simulated memory.

#include <cistern/integrations/thrust.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <gtest/gtest.h>

namespace cistern {
namespace {

using Values = thrust::device_vector<int, ThrustAllocator<int>>;

TEST(ThrustVectors, LiveInTheHeapOfTheirStreamsDevice) {
  const Stream stream = Stream::create({0});
  {
    Values values(1000, 0, ThrustAllocator<int>(stream));
    EXPECT_EQ(memory_stats(0).requested_bytes.all.current, 4000);
    thrust::sequence(values.begin(), values.end());
    EXPECT_EQ(thrust::reduce(values.begin(), values.end()), 499500);
    values.resize(5000, 1);
    EXPECT_EQ(thrust::reduce(values.begin(), values.end()), 503500);
    Values copy = values;
    EXPECT_EQ(copy.size(), 5000U);
    EXPECT_EQ(memory_stats(0).allocation.all.current, 2);
  }
  EXPECT_EQ(memory_allocated(0), 0U);
}

TEST(ThrustVectors, AlgorithmsTakeTheirTemporaryMemoryFromIt) {
  const Stream stream = Stream::create({0});
  Values values(4096, ThrustAllocator<int>(stream));
  thrust::sequence(values.rbegin(), values.rend());
  ThrustAllocator<char> scratch(stream);
  const std::int64_t before = memory_stats(0).allocation.all.allocated;
  thrust::stable_sort(thrust::cpp::par(scratch), values.begin(), values.end());
  EXPECT_EQ(static_cast<int>(values[7]), 7);
  EXPECT_GT(memory_stats(0).allocation.all.allocated, before);
  EXPECT_EQ(memory_stats(0).allocation.all.current, 1);
}

}  // namespace
}  // namespace cistern
