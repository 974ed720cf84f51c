// Memory that graphs allocate and free.

#include "tests/conformance/graph_case.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Graph Management, "

class GraphMemory : public GraphCase {
 protected:
  void SetUp() override {
    GraphCase::SetUp();
    int supported = 0;
    EXPECT_OK(api.device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device));
    if (!api.mem_alloc_async || !api.device_graph_mem_trim || supported == 0) {
      GTEST_SKIP() << "the device has no memory for graphs";
    }
  }

  CUdeviceptr allocate(CUstream stream, std::size_t bytes = 4096) {
    CUdeviceptr memory = 0;
    EXPECT_OK(api.mem_alloc_async(&memory, bytes, stream));
    return memory;
  }
  void free(CUdeviceptr memory, CUstream stream) { EXPECT_OK(api.mem_free_async(memory, stream)); }
  // A graph that allocates, and writes what it allocated.
  CUgraph graph_of(CUdeviceptr* memory, std::size_t bytes = 4096) {
    const CUstream stream = make_stream();
    begin(stream);
    *memory = allocate(stream, bytes);
    fill(*memory, 5, bytes, stream);
    return end(stream);
  }
  void launch(CUgraphExec exec, CUstream stream) { EXPECT_OK(api.graph_launch(exec, stream)); }
  cuuint64_t attribute(CUgraphMem_attribute which) {
    cuuint64_t value = 99;
    EXPECT_OK(api.device_get_graph_mem_attribute(device, which, &value));
    return value;
  }
};

STATEMENT(C234, GraphMemory, ACapturedAllocationIsANode, "Driver API, Stream Ordered Memory Allocator, cuMemAllocAsync",
          "During stream capture an allocation becomes an allocation node, and a free of it a free node.") {
  const CUstream stream = make_stream();
  begin(stream);
  free(allocate(stream), stream);
  EXPECT_EQ(types(end(stream)),
            (std::vector<CUgraphNodeType>{CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE}));
}

STATEMENT(C235, GraphMemory, TheAddressIsFixed, SECTION "cuGraphAddMemAllocNode",
          "An allocation's address stays the same across launches: nodes behind it find the memory there.") {
  const CUdeviceptr result = make_memory();
  const CUstream stream = make_stream();
  begin(stream);
  const CUdeviceptr memory = allocate(stream);
  ASSERT_NE(memory, 0u);
  fill(memory, 3, 4096, stream);
  copy(result, memory, 4096, stream);
  free(memory, stream);
  const CUgraphExec exec = instantiate(end(stream));
  for (int i = 0; i < 2; ++i) {
    fill(result, 0, 4096, stream);
    launch(exec, stream);
    finish(stream);
    EXPECT_TRUE(holds(result, 4096, 3));
  }
}

STATEMENT(C236, GraphMemory, ACapturedFreeIsOfAGraphsMemory,
          "Driver API, Stream Ordered Memory Allocator, cuMemFreeAsync",
          "During stream capture a free has to be given the address of a graph's allocation: memory of cuMemAlloc is "
          "`CUDA_ERROR_INVALID_VALUE`.") {
  const CUdeviceptr plain = make_memory();
  const CUstream stream = make_stream();
  begin(stream);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free_async(plain, stream));
  drop(stream);
}

STATEMENT(C237, GraphMemory, UnfreedMemoryIsTheStreams, SECTION "cuGraphAddMemAllocNode",
          "What the graph does not free may be used by stream work behind the launch, until cuMemFreeAsync frees it.") {
  const CUdeviceptr result = make_memory();
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  launch(instantiate(graph_of(&memory)), stream);
  copy(result, memory, 4096, stream);
  free(memory, stream);
  finish(stream);
  EXPECT_TRUE(holds(result, 4096, 5));
}

STATEMENT(C238, GraphMemory, APlainFreeFreesItToo, SECTION "cuGraphAddMemAllocNode",
          "What the graph does not free can be freed by cuMemFree.") {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(&memory));
  for (int i = 0; i < 2; ++i) {
    launch(exec, stream);
    finish(stream);
    EXPECT_OK(api.mem_free(memory));
  }
}

STATEMENT(C239, GraphMemory, ALaunchNeedsItsMemoryFreed, SECTION "cuGraphLaunch",
          "While an allocation of an earlier launch is unfreed the next launch is `CUDA_ERROR_INVALID_VALUE`.") {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(&memory));
  launch(exec, stream);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.graph_launch(exec, stream));
  free(memory, stream);
  launch(exec, stream);
  free(memory, stream);
  finish(stream);
}

STATEMENT(C240, GraphMemory, AutoFreeFreesBeforeALaunch, SECTION "cuGraphInstantiate",
          "A graph instantiated with CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH frees what an earlier launch left "
          "when it is launched again.") {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  CUgraphExec exec = nullptr;
  ASSERT_OK(api.graph_instantiate(&exec, graph_of(&memory), CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  for (int i = 0; i < 3; ++i) launch(exec, stream);
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 5));
  EXPECT_OK(api.mem_free(memory));
  EXPECT_OK(api.graph_exec_destroy(exec));
}

STATEMENT(C241, GraphMemory, OneExecutableExistsAtATime, SECTION "cuGraphInstantiate",
          "Of a graph that allocates there is one executable graph at a time: a second one is an error until the first "
          "is destroyed.") {
  CUdeviceptr memory = 0;
  const CUgraph graph = graph_of(&memory);
  CUgraphExec first = nullptr, second = nullptr;
  ASSERT_OK(api.graph_instantiate(&first, graph, 0));
  EXPECT_NE(api.graph_instantiate(&second, graph, 0), CUDA_SUCCESS);
  EXPECT_OK(api.graph_exec_destroy(first));
  EXPECT_OK(api.graph_instantiate(&second, graph, 0));
  EXPECT_OK(api.graph_exec_destroy(second));
}

STATEMENT(C242, GraphMemory, AnotherGraphMayFreeIt, SECTION "cuGraphAddMemAllocNode",
          "What a graph allocated can be freed by launching another graph with a free node for it.") {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  const CUgraphExec allocates = instantiate(graph_of(&memory));
  begin(stream);
  free(memory, stream);
  const CUgraphExec frees = instantiate(end(stream));
  for (int i = 0; i < 2; ++i) {
    launch(allocates, stream);
    launch(frees, stream);
  }
  finish(stream);
}

STATEMENT(C243, GraphMemory, WhatItsGraphFreesIsFreedNowhereElse, SECTION "cuGraphAddMemAllocNode",
          "An allocation that is freed in its graph cannot be freed outside of it.") {
  const CUstream stream = make_stream();
  begin(stream);
  const CUdeviceptr memory = allocate(stream);
  free(memory, stream);
  launch(instantiate(end(stream)), stream);
  finish(stream);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free_async(memory, stream));
}

STATEMENT(C244, GraphMemory, OneGraphFreesItOnce, SECTION "cuGraphAddMemFreeNode",
          "To free an allocation twice in one graph is `CUDA_ERROR_INVALID_VALUE`.") {
  const CUstream stream = make_stream();
  begin(stream);
  const CUdeviceptr memory = allocate(stream);
  free(memory, stream);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free_async(memory, stream));
  drop(stream);
}

STATEMENT(C245, GraphMemory, WhatAnotherGraphFreesItsOwnerCannot, SECTION "cuGraphAddMemAllocNode",
          "Once another graph has a free node for an allocation, its own graph cannot get one.") {
  const CUstream owner = make_stream(), other = make_stream();
  begin(owner);
  const CUdeviceptr memory = allocate(owner);
  begin(other);
  free(memory, other);
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_free_async(memory, owner));
  drop(owner);
  drop(other);
}

STATEMENT(C246, GraphMemory, ItIsNotCloned, SECTION "cuGraphClone",
          "A graph that allocates or frees cannot be cloned; others can.") {
  CUdeviceptr memory = 0;
  CUgraph clone = nullptr;
  EXPECT_NE(api.graph_clone(&clone, graph_of(&memory)), CUDA_SUCCESS);
  const CUdeviceptr plain = make_memory();
  const CUstream stream = make_stream();
  begin(stream);
  fill(plain, 1, 4096, stream);
  const CUgraph original = end(stream);
  ASSERT_OK(api.graph_clone(&clone, original));
  EXPECT_EQ(types(clone), types(original));
  EXPECT_OK(api.graph_destroy(clone));
}

STATEMENT(C247, GraphMemory, ItIsNoChild, SECTION "cuGraphAddMemAllocNode",
          "A graph that allocates is no child of another unless it is moved there: a capture refuses its launch.") {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  const CUgraphExec exec = instantiate(graph_of(&memory));
  begin(stream);
  EXPECT_NE(api.graph_launch(exec, stream), CUDA_SUCCESS);
  drop(stream);
}

STATEMENT(C248, GraphMemory, ItOutlivesItsGraph, "Programming Guide, Graph Memory Nodes",
          "Destroying a graph does not free its live memory: that is freed by cuMemFreeAsync or cuMemFree.") {
  const CUstream stream = make_stream();
  begin(stream);
  const CUdeviceptr memory = allocate(stream);
  fill(memory, 6, 4096, stream);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_OK(api.stream_end_capture(stream, &graph));
  ASSERT_OK(api.graph_instantiate(&exec, graph, 0));
  launch(exec, stream);
  EXPECT_OK(api.graph_exec_destroy(exec));
  EXPECT_OK(api.graph_destroy(graph));
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 6));
  free(memory, stream);
  finish(stream);
}

STATEMENT(C249, GraphMemory, ATrimGivesIdleMemoryBack, SECTION "cuDeviceGraphMemTrim",
          "What no graph uses that runs or is to run goes back to the system; the graph works after that, too.") {
  const CUstream stream = make_stream();
  begin(stream);
  const CUdeviceptr memory = allocate(stream, 8 * kMiB);
  free(memory, stream);
  const CUgraphExec exec = instantiate(end(stream));
  launch(exec, stream);
  finish(stream);
  EXPECT_GE(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 8 * kMiB);
  EXPECT_OK(api.device_graph_mem_trim(device));
  EXPECT_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0u);
  launch(exec, stream);
  finish(stream);
  EXPECT_OK(api.device_graph_mem_trim(device));
}

STATEMENT(C250, GraphMemory, HighWatermarksAreReset, SECTION "cuDeviceSetGraphMemAttribute",
          "The high watermarks of graphs' memory can be reset by setting 0.") {
  const CUstream stream = make_stream();
  begin(stream);
  free(allocate(stream, 8 * kMiB), stream);
  launch(instantiate(end(stream)), stream);
  finish(stream);
  EXPECT_OK(api.device_graph_mem_trim(device));
  EXPECT_GE(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 8 * kMiB);
  EXPECT_GE(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 8 * kMiB);
  cuuint64_t value = 0;
  EXPECT_OK(api.device_set_graph_mem_attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &value));
  EXPECT_OK(api.device_set_graph_mem_attribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value));
  EXPECT_LT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 8 * kMiB);
  EXPECT_LT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 8 * kMiB);
}

STATEMENT(C251, GraphMemory, AnUpdateIsRefused, SECTION "cuGraphExecUpdate",
          "Allocation and free nodes cannot be updated: not supported, with the node.") {
  CUdeviceptr memory = 0, of_update = 0;
  const CUgraphExec exec = instantiate(graph_of(&memory));
  const CUgraph update = graph_of(&of_update);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, api.graph_exec_update(exec, update, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(info.errorNode, nodes(update).front());
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
