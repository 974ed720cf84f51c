// Stream-ordered allocations and frees that are captured: memory that graphs own.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/simulated/capture_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::CaptureTest;
using cistern::testing::MiB;

constexpr auto kAutoFree = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
constexpr auto kUsed = CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
constexpr auto kMostUsed = CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
constexpr auto kReserved = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
constexpr auto kMostReserved = CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;

class GraphMemoryTest : public CaptureTest {
 protected:
  explicit GraphMemoryTest(SimulatedOptions options = {.capacity_bytes = 64 * MiB}) : CaptureTest(std::move(options)) {}

  CUdeviceptr allocate(std::size_t bytes, CUstream on) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(api.mem_alloc_async(&pointer, bytes, on), CUDA_SUCCESS);
    return pointer;
  }
  void release(CUdeviceptr pointer, CUstream on) { EXPECT_EQ(api.mem_free_async(pointer, on), CUDA_SUCCESS); }
  void fill(CUdeviceptr pointer, unsigned char value, std::size_t bytes, CUstream on) {
    EXPECT_EQ(api.memset_d8_async(pointer, value, bytes, on), CUDA_SUCCESS);
  }
  // A graph that allocates and writes so much, and frees it if asked to.
  CUgraph graph_of(std::size_t bytes, bool frees, CUdeviceptr* memory = nullptr) {
    return capture([&](CUstream on) {
      const CUdeviceptr made = allocate(bytes, on);
      fill(made, 7, bytes, on);
      if (frees) release(made, on);
      if (memory != nullptr) *memory = made;
    });
  }
  void launch(CUgraphExec exec, CUstream on) { EXPECT_EQ(api.graph_launch(exec, on), CUDA_SUCCESS); }
  void finish(CUstream on) { EXPECT_EQ(api.stream_synchronize(on), CUDA_SUCCESS); }
  std::uint64_t attribute(CUgraphMem_attribute which) {
    cuuint64_t value = 99;
    EXPECT_EQ(api.device_get_graph_mem_attribute(0, which, &value), CUDA_SUCCESS);
    return value;
  }
  unsigned char byte_at(CUdeviceptr pointer) {
    unsigned char value = 0;
    EXPECT_EQ(api.memcpy_async(reinterpret_cast<CUdeviceptr>(&value), pointer, 1, stream), CUDA_SUCCESS);
    finish(stream);
    return value;
  }
  void expect_gone(CUdeviceptr pointer) {
    EXPECT_EQ(api.mem_free_async(pointer, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(api.mem_free(pointer), CUDA_ERROR_INVALID_VALUE);
  }
};

TEST_F(GraphMemoryTest, AnAllocationAndAFreeBecomeNodes) {
  const CUgraph graph = graph_of(1000, true);
  EXPECT_EQ(types(graph), (std::vector<CUgraphNodeType>{CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEMSET,
                                                        CU_GRAPH_NODE_TYPE_MEM_FREE}));
  EXPECT_EQ(edges(graph), (Edges{{0, 1}, {1, 2}}));
  EXPECT_EQ(ready.driver.used_bytes(), 0U) << "nothing has been launched";
}

TEST_F(GraphMemoryTest, APoolGivesItsPropertiesAndNoMemory) {
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(api.device_get_default_mem_pool(&pool, 0), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  launch(instantiate(capture(
             [&](CUstream on) { EXPECT_EQ(api.mem_alloc_from_pool_async(&memory, 1000, pool, on), CUDA_SUCCESS); })),
         stream);
  finish(stream);
  cuuint64_t used = 99;
  EXPECT_EQ(api.mem_pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), CUDA_SUCCESS);
  EXPECT_EQ(used, 0U);
  CUmemoryPool owner = pool;
  EXPECT_EQ(api.pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory), CUDA_SUCCESS);
  EXPECT_EQ(owner, nullptr) << "the graph owns it";
  CUdeviceptr start = 0;
  EXPECT_EQ(api.pointer_get_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 999), CUDA_SUCCESS);
  EXPECT_EQ(start, memory);
}

TEST_F(GraphMemoryTest, MemoryIsThereBetweenTheTurnsOfItsNodes) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4096, true, &memory));
  for (int i = 0; i < 3; ++i) launch(exec, stream);
  finish(stream);
  fill(memory, 1, 4096, stream);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS) << "the graph has freed it";
}

TEST_F(GraphMemoryTest, MemoryIsNotThereBeforeItsNode) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4096, false, &memory));
  launch(exec, stream);
  fill(memory, 1, 4096, other);  // comes before all of it: nothing orders it behind
  EXPECT_TRUE(ready.driver.step(other));
  EXPECT_EQ(api.stream_synchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(GraphMemoryTest, WhatAGraphDoesNotFreeIsFreedInStreamOrder) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4096, false, &memory));
  for (int round = 0; round < 2; ++round) {
    launch(exec, stream);
    EXPECT_EQ(byte_at(memory), 7);
    release(memory, stream);
    expect_gone(memory);
  }
  finish(stream);
}

TEST_F(GraphMemoryTest, WhatAGraphDoesNotFreeIsFreedAtOnce) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4096, false, &memory));
  expect_gone(memory);  // never launched
  launch(exec, stream);
  finish(stream);
  EXPECT_EQ(api.mem_free(memory), CUDA_SUCCESS);
  expect_gone(memory);
  fill(memory, 1, 4096, stream);
  EXPECT_EQ(api.stream_synchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(GraphMemoryTest, ALaunchFailsWhileItsMemoryIsUnfreed) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4096, false, &memory));
  launch(exec, stream);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.graph_launch(exec, other), CUDA_ERROR_INVALID_VALUE);
  finish(stream);
  EXPECT_EQ(api.stream_query(other), CUDA_SUCCESS) << "nothing was queued";
  EXPECT_EQ(byte_at(memory), 7);
  release(memory, stream);
  launch(exec, stream);
  finish(stream);
}

TEST_F(GraphMemoryTest, AutoFreeFreesWhatTheLaunchBeforeLeft) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4 * MiB, false, &memory), kAutoFree);
  for (int i = 0; i < 3; ++i) {
    launch(exec, stream);
    launch(exec, other);  // behind the launch before, and so is its free
  }
  finish(other);
  finish(stream);
  EXPECT_EQ(byte_at(memory), 7) << "the last launch's is live";
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  release(memory, stream);
  finish(stream);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0U) << "every allocation was freed once";
}

TEST_F(GraphMemoryTest, AutoFreeComesBehindTheLaunchBefore) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4096, false, &memory), kAutoFree);
  launch(exec, stream);
  launch(exec, other);
  EXPECT_TRUE(ready.driver.step(other));
  EXPECT_EQ(api.stream_query(stream), CUDA_SUCCESS) << "its first step, the free, needed all of that launch";
  finish(other);
}

TEST_F(GraphMemoryTest, WhatAGraphFreesItselfIsFreedNowhereElse) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(4096, true, &memory));
  launch(exec, stream);
  expect_gone(memory);
  begin(other);
  EXPECT_EQ(api.mem_free_async(memory, other), CUDA_ERROR_INVALID_VALUE);
  expect_valid(other);
  finish(stream);
}

TEST_F(GraphMemoryTest, AnotherGraphMayFreeIt) {
  CUdeviceptr memory = 0;
  const CUgraphExec makes = instantiate(graph_of(4096, false, &memory));
  const CUgraphExec frees = instantiate(capture([&](CUstream on) {
    fill(memory, 9, 4096, on);
    release(memory, on);
    EXPECT_EQ(api.mem_free_async(memory, on), CUDA_ERROR_INVALID_VALUE) << "twice in one graph";
  }));
  EXPECT_EQ(api.graph_launch(frees, stream), CUDA_ERROR_INVALID_VALUE) << "nothing is live";
  for (int i = 0; i < 2; ++i) {
    launch(makes, stream);
    launch(frees, stream);
    EXPECT_EQ(api.graph_launch(frees, stream), CUDA_ERROR_INVALID_VALUE) << "freed already";
  }
  finish(stream);
  expect_gone(memory);
}

TEST_F(GraphMemoryTest, WhatAnotherGraphFreesItsOwnerCannot) {
  begin(stream);
  const CUdeviceptr memory = allocate(4096, stream);
  begin(other);
  release(memory, other);
  expect_valid(other);
  EXPECT_EQ(api.mem_free_async(memory, stream), CUDA_ERROR_INVALID_VALUE);
  expect_valid(stream);
}

TEST_F(GraphMemoryTest, ACaptureFreesNothingButAGraphsMemory) {
  const CUdeviceptr plain = ready.allocate(4096);
  const CUdeviceptr pooled = allocate(4096, other);
  begin(stream);
  const CUdeviceptr own = allocate(4096, stream);
  for (const CUdeviceptr wrong : {plain, pooled, own + 512, CUdeviceptr{0}}) {
    EXPECT_EQ(api.mem_free_async(wrong, stream), CUDA_ERROR_INVALID_VALUE);
  }
  release(own, stream);
  EXPECT_EQ(api.mem_free_async(own, stream), CUDA_ERROR_INVALID_VALUE) << "twice";
  expect_valid(stream);
}

TEST_F(GraphMemoryTest, AnInvalidatedCaptureTakesNoMemoryNodes) {
  begin(stream);
  const CUdeviceptr memory = allocate(4096, stream);
  EXPECT_EQ(api.stream_query(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUdeviceptr none = 1;
  EXPECT_EQ(api.mem_alloc_async(&none, 4096, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(none, 1U);
  EXPECT_EQ(api.mem_free_async(memory, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  expect_invalidated(stream);
}

TEST_F(GraphMemoryTest, OneExecutableGraphExistsAtATime) {
  const CUgraph graph = graph_of(4096, true);
  const CUgraphExec first = instantiate(graph);
  CUgraphExec second = nullptr;
  EXPECT_EQ(api.graph_instantiate(&second, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(api.graph_exec_destroy(first), CUDA_SUCCESS);
  launch(instantiate(graph), stream);
  finish(stream);
}

TEST_F(GraphMemoryTest, AGraphWithMemoryIsNotCloned) {
  CUgraph clone = nullptr;
  EXPECT_EQ(api.graph_clone(&clone, graph_of(4096, true)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(clone, nullptr);
  EXPECT_EQ(api.graph_clone(&clone, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphMemoryTest, ACloneIsAGraphOfItsOwn) {
  const CUgraph original = capture([&](CUstream on) {
    note(on, 1);
    note(on, 2);
  });
  CUgraph clone = nullptr;
  ASSERT_EQ(api.graph_clone(&clone, original), CUDA_SUCCESS);
  EXPECT_EQ(types(clone), types(original));
  EXPECT_EQ(edges(clone), edges(original));
  EXPECT_NE(nodes(clone), nodes(original));
  EXPECT_EQ(api.graph_destroy(original), CUDA_SUCCESS);
  launch(instantiate(clone), stream);
  finish(stream);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(GraphMemoryTest, AGraphWithMemoryIsNoChild) {
  const CUgraphExec exec = instantiate(graph_of(4096, true));
  begin(stream);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(stream);
}

TEST_F(GraphMemoryTest, AGraphWithMemoryIsNotUpdated) {
  const CUgraphExec exec = instantiate(graph_of(4096, true));
  const CUgraph update = graph_of(4096, true);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(api.graph_exec_update(exec, update, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(info.errorNode, nodes(update).front());
}

// --- Addresses --------------------------------------------------------------------------

TEST_F(GraphMemoryTest, AnAllocationBehindAFreeOfItsGraphGetsTheAddressAgain) {
  capture([&](CUstream on) {
    const CUdeviceptr first = allocate(8192, on);
    release(first, on);
    const CUdeviceptr second = allocate(4096, on);
    EXPECT_EQ(second, first);
    EXPECT_EQ(allocate(4096, on), first + 4096) << "what the second left";
    EXPECT_NE(allocate(4096, on), first);
  });
}

TEST_F(GraphMemoryTest, AnAllocationBesideAFreeOfItsGraphGetsAnotherAddress) {
  begin(stream);
  const CUdeviceptr first = allocate(4096, stream);
  depend(other, stream);
  release(first, stream);
  const CUdeviceptr beside = allocate(4096, other);
  EXPECT_NE(beside, first);
  depend(other, stream);
  EXPECT_EQ(allocate(4096, other), first) << "now it comes behind";
  depend(stream, other);
  expect_valid(stream);
}

TEST_F(GraphMemoryTest, NeighbouringFreesServeOneLargerAllocation) {
  capture([&](CUstream on) {
    const CUdeviceptr first = allocate(4096, on);
    const CUdeviceptr second = allocate(4096, on);
    ASSERT_EQ(second, first + 4096);
    release(second, on);
    release(first, on);
    EXPECT_EQ(allocate(8192, on), first);
    fill(first, 1, 8192, on);
  });
}

TEST_F(GraphMemoryTest, TheAddressOutlivesTheGraphWithItsMemory) {
  const CUgraph graph = graph_of(4 * MiB, false);
  CUdeviceptr memory = 0;
  {
    const CUgraph doomed = graph_of(4 * MiB, false, &memory);
    const CUgraphExec exec = instantiate(doomed);
    launch(exec, stream);
    EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(api.graph_destroy(doomed), CUDA_SUCCESS);
  }
  EXPECT_EQ(byte_at(memory), 7);
  EXPECT_NE(ready.allocate(4 * MiB), memory);
  release(memory, stream);
  finish(stream);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB) << "the plain allocation's";
  EXPECT_EQ(ready.allocate(4 * MiB), memory) << "the lowest address that is free";
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
}

// --- The device's memory ----------------------------------------------------------------

TEST_F(GraphMemoryTest, ALaunchTakesMemoryAndATrimGivesItBack) {
  const CUgraphExec exec = instantiate(graph_of(4 * MiB, true));
  EXPECT_EQ(ready.driver.used_bytes(), 0U);
  launch(exec, stream);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB) << "it is about to run";
  finish(stream);
  EXPECT_EQ(attribute(kUsed), 4 * MiB);
  EXPECT_EQ(attribute(kReserved), 4 * MiB);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0U);
  EXPECT_EQ(attribute(kUsed), 0U);
  EXPECT_EQ(attribute(kReserved), 0U);
  EXPECT_EQ(attribute(kMostUsed), 4 * MiB);
  EXPECT_EQ(attribute(kMostReserved), 4 * MiB);
  launch(exec, stream);
  finish(stream);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
}

TEST_F(GraphMemoryTest, ATrimLeavesWhatIsUnfreed) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(capture([&](CUstream on) {
    memory = allocate(2 * MiB, on);
    release(allocate(4 * MiB, on), on);
  }));
  launch(exec, stream);
  finish(stream);
  EXPECT_EQ(ready.driver.used_bytes(), 6 * MiB);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 2 * MiB);
  EXPECT_EQ(api.mem_free(memory), CUDA_SUCCESS);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0U);
}

TEST_F(GraphMemoryTest, GraphsThatFollowEachOtherShareMemory) {
  const CUgraphExec one = instantiate(graph_of(8 * MiB, true));
  const CUgraphExec two = instantiate(graph_of(8 * MiB, true));
  launch(one, stream);
  launch(two, stream);
  EXPECT_EQ(attribute(kReserved), 8 * MiB);
  finish(stream);
  launch(one, stream);
  finish(stream);
  EXPECT_EQ(attribute(kReserved), 8 * MiB);
}

TEST_F(GraphMemoryTest, GraphsThatMayRunAtOnceShareNoMemory) {
  const CUgraphExec one = instantiate(graph_of(8 * MiB, true));
  const CUgraphExec two = instantiate(graph_of(8 * MiB, true));
  launch(one, stream);
  launch(two, other);
  EXPECT_EQ(attribute(kUsed), 16 * MiB);
  finish(stream);
  finish(other);
}

TEST_F(GraphMemoryTest, UnfreedMemoryIsNotShared) {
  const CUgraphExec keeps = instantiate(graph_of(8 * MiB, false));
  const CUgraphExec frees = instantiate(graph_of(8 * MiB, true));
  launch(keeps, stream);
  launch(frees, stream);
  finish(stream);
  EXPECT_EQ(attribute(kUsed), 16 * MiB);
}

TEST_F(GraphMemoryTest, ALaunchThatLacksMemoryIsRefusedAndChangesNothing) {
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(40 * MiB, false, &memory));
  const CUdeviceptr plain = ready.allocate(32 * MiB);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(api.graph_upload(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ready.driver.used_bytes(), 32 * MiB);
  expect_gone(memory);
  EXPECT_EQ(api.mem_free(plain), CUDA_SUCCESS);
  launch(exec, stream);
  EXPECT_EQ(byte_at(memory), 7);
}

TEST_F(GraphMemoryTest, AnUploadTakesTheMemoryBeforeTheLaunch) {
  const CUgraphExec exec = instantiate(graph_of(4 * MiB, true));
  EXPECT_EQ(api.graph_upload(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  EXPECT_EQ(attribute(kUsed), 4 * MiB);
}

TEST_F(GraphMemoryTest, ADestroyedGraphLeavesItsMemoryToOthers) {
  const CUgraph graph = graph_of(8 * MiB, true);
  const CUgraphExec exec = instantiate(graph);
  launch(exec, stream);
  finish(stream);
  EXPECT_EQ(api.graph_exec_destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(attribute(kUsed), 8 * MiB) << "the graph is there";
  EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(attribute(kUsed), 0U);
  EXPECT_EQ(attribute(kReserved), 8 * MiB);
  const CUgraphExec other_exec = instantiate(graph_of(8 * MiB, true));
  launch(other_exec, stream);
  EXPECT_EQ(attribute(kReserved), 8 * MiB);
  finish(stream);
}

TEST_F(GraphMemoryTest, SmallAllocationsOfOneGraphShareAGranule) {
  const CUgraphExec exec = instantiate(capture([&](CUstream on) {
    for (int i = 0; i < 100; ++i) static_cast<void>(allocate(1000, on));
  }));
  launch(exec, stream);
  EXPECT_EQ(attribute(kUsed), 2 * MiB);
  finish(stream);
}

TEST_F(GraphMemoryTest, HighWatermarksAreResetToZeroOnly) {
  launch(instantiate(graph_of(4 * MiB, true)), stream);
  finish(stream);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  cuuint64_t value = 1;
  EXPECT_EQ(api.device_set_graph_mem_attribute(0, kMostUsed, &value), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attribute(kMostUsed), 4 * MiB);
  value = 0;
  EXPECT_EQ(api.device_set_graph_mem_attribute(0, kMostUsed, &value), CUDA_SUCCESS);
  EXPECT_EQ(api.device_set_graph_mem_attribute(0, kMostReserved, &value), CUDA_SUCCESS);
  EXPECT_EQ(attribute(kMostUsed), 0U);
  EXPECT_EQ(attribute(kMostReserved), 0U);
  EXPECT_EQ(api.device_set_graph_mem_attribute(0, kUsed, &value), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.device_set_graph_mem_attribute(7, kMostUsed, &value), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(api.device_get_graph_mem_attribute(7, kUsed, &value), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(api.device_get_graph_mem_attribute(0, kUsed, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.device_graph_mem_trim(7), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(GraphMemoryTest, AllocationsAndFreesTakeNoVirtualTime) {
  const CUgraphExec exec = instantiate(capture([&](CUstream on) {
    const CUdeviceptr memory = allocate(4096, on);
    note(on, 1, 3ms);
    release(memory, on);
    note(on, 2, 4ms);
  }));
  launch(exec, stream);
  finish(stream);
  EXPECT_EQ(ready.driver.virtual_time(), 7ms);
}

class GraphMemoryOfTwoDevices : public GraphMemoryTest {
 protected:
  GraphMemoryOfTwoDevices() : GraphMemoryTest({.devices = 2, .capacity_bytes = 64 * MiB}) {}
};

TEST_F(GraphMemoryOfTwoDevices, ALaunchThatLacksOneDevicesMemoryLeavesTheOthersToBeTrimmed) {
  const CUstream second = ready.driver.create_stream(1);
  const CUgraphExec exec = instantiate(capture([&](CUstream on) {
    depend(second, on);
    release(allocate(4 * MiB, on), on);
    release(allocate(40 * MiB, second), second);
    ready.use(1);  // an event is its device's
    depend(on, second);
    ready.use(0);
  }));
  ready.use(1);
  const CUdeviceptr plain = ready.allocate(32 * MiB);
  ready.use(0);
  EXPECT_EQ(api.graph_launch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(attribute(kUsed), 0U);
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(0), 0U);
  EXPECT_EQ(api.mem_free(plain), CUDA_SUCCESS);
  launch(exec, stream);
  finish(stream);
  EXPECT_EQ(ready.driver.used_bytes(0), 4 * MiB);
  EXPECT_EQ(ready.driver.used_bytes(1), 40 * MiB);
}

class GraphMemoryOnTheFreeDrive : public GraphMemoryTest {
 protected:
  GraphMemoryOnTheFreeDrive() : GraphMemoryTest({.capacity_bytes = 64 * MiB, .drive = Drive::free}) {}
};

TEST_F(GraphMemoryOnTheFreeDrive, GraphsOfSeveralStreamsRunAtOnce) {
  constexpr std::size_t kGraphs = 4;
  std::vector<CUgraphExec> execs;
  std::vector<CUstream> streams;
  std::vector<CUdeviceptr> kept(kGraphs);
  for (std::size_t i = 0; i < kGraphs; ++i) {
    execs.push_back(instantiate(capture([&](CUstream on) {
                                  const CUdeviceptr passing = allocate(MiB, on);
                                  kept[i] = allocate(MiB, on);
                                  fill(passing, static_cast<unsigned char>(i), MiB, on);
                                  EXPECT_EQ(api.memcpy_async(kept[i], passing, MiB, on), CUDA_SUCCESS);
                                  release(passing, on);
                                }),
                                kAutoFree));
    streams.push_back(ready.driver.create_stream());
  }
  for (int round = 0; round < 50; ++round) {
    for (std::size_t i = 0; i < kGraphs; ++i)
      launch(execs[i], streams[(i + static_cast<std::size_t>(round)) % kGraphs]);
  }
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
  for (std::size_t i = 0; i < kGraphs; ++i) {
    EXPECT_EQ(byte_at(kept[i]), i);
    EXPECT_EQ(api.mem_free(kept[i]), CUDA_SUCCESS);
  }
  EXPECT_EQ(api.device_graph_mem_trim(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0U);
}

}  // namespace
}  // namespace cistern
