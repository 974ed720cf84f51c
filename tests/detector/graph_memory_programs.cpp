// Memory that graphs allocate: at each launch from the turn of its allocation node to what frees it.

#include "tests/detector/graph_steps.h"
#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

constexpr auto kAutoFree = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

char* allocate(World& w, StreamHandle stream, std::size_t bytes = kBytes) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(w.api.mem_alloc_async(&pointer, bytes, stream), CUDA_SUCCESS);
  return reinterpret_cast<char*>(pointer);
}
CUresult release(World& w, char* pointer, StreamHandle stream) {
  return w.api.mem_free_async(reinterpret_cast<CUdeviceptr>(pointer), stream);
}
// A graph that allocates and leaves it to others to free.
CUgraphExec graph_that_allocates(World& w, char** data, unsigned long long flags = 0) {
  const StreamHandle stream = w.stream();
  begin(w, stream);
  *data = allocate(w, stream);
  return finish(w, stream, flags);
}

void branch_beside_the_allocation_node(World& w) {
  const StreamHandle origin = w.stream(), fork = w.stream();
  begin(w, origin);
  w.order(origin, fork);
  char* data = allocate(w, origin);
  if (w.is_mended) w.order(origin, fork);
  w.fill(data, kBytes, fork);
  w.order(fork, origin);
  launch(w, finish(w, origin), origin);
}

void freed_in_the_graph_beside_its_reader(World& w) {
  const StreamHandle origin = w.stream(), fork = w.stream();
  begin(w, origin);
  char* data = allocate(w, origin);
  w.fill(data, kBytes, origin);
  w.order(origin, fork);
  w.read(fork, data);
  if (w.is_mended) w.order(fork, origin);
  EXPECT_EQ(release(w, data, origin), CUDA_SUCCESS);
  if (!w.is_mended) w.order(fork, origin);
  launch(w, finish(w, origin), origin);
}

void node_behind_the_free_node(World& w) {
  const StreamHandle stream = w.stream();
  begin(w, stream);
  char* data = allocate(w, stream);
  if (w.is_mended) w.fill(data, kBytes, stream);
  EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
  if (!w.is_mended) w.fill(data, kBytes, stream);
  launch(w, finish(w, stream), stream);
}

// The second allocation has the first one's address.
void branch_on_the_former_memory_of_an_address(World& w) {
  const StreamHandle origin = w.stream(), fork = w.stream();
  begin(w, origin);
  char* first = allocate(w, origin);
  EXPECT_EQ(release(w, first, origin), CUDA_SUCCESS);
  w.order(origin, fork);
  char* second = allocate(w, origin);
  EXPECT_EQ(first, second);
  if (w.is_mended) w.order(origin, fork);
  w.fill(second, kBytes, fork);
  w.order(fork, origin);
  launch(w, finish(w, origin), origin);
}

void result_used_beside_the_launch(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = nullptr;
  launch(w, graph_that_allocates(w, &data), stream);
  if (w.is_mended) w.order(stream, other);
  w.fill(data, kBytes, other);
}

void result_freed_beside_its_reader(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = nullptr;
  launch(w, graph_that_allocates(w, &data), stream);
  w.order(stream, other);
  w.fill(data, kBytes, other);
  if (w.is_mended) w.order(other, stream);
  EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
}

void result_freed_on_a_stream_beside_the_launch(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = nullptr;
  launch(w, graph_that_allocates(w, &data), stream);
  if (w.is_mended) w.order(stream, other);
  EXPECT_EQ(release(w, data, other), CUDA_SUCCESS);
}

void result_freed_at_once_while_in_use(World& w) {
  const StreamHandle stream = w.stream();
  char* data = nullptr;
  launch(w, graph_that_allocates(w, &data), stream);
  w.fill(data, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  EXPECT_EQ(w.free(data), CUDA_SUCCESS);
}

void result_freed_by_the_next_launch_beside_its_reader(World& w) {
  const StreamHandle first = w.stream(), reader = w.stream(), second = w.stream();
  char* data = nullptr;
  const CUgraphExec exec = graph_that_allocates(w, &data, kAutoFree);
  launch(w, exec, first);
  w.order(first, reader);
  w.fill(data, kBytes, reader);
  if (w.is_mended) w.order(reader, second);
  launch(w, exec, second);
}

// Launches of one executable graph follow each other, whichever streams they are in.
void graphs_own_work_on_it_when_the_next_launch_frees_it(World& w) {
  const StreamHandle stream = w.stream(), first = w.stream(), second = w.stream(), reader = w.stream();
  begin(w, stream);
  char* data = allocate(w, stream);
  w.fill(data, kBytes, stream);
  const CUgraphExec exec = finish(w, stream, kAutoFree);
  launch(w, exec, first);
  if (!w.is_mended) {
    w.order(first, reader);
    w.read(reader, data);
  }
  launch(w, exec, second);
}

void memory_of_a_graph_used_between_its_launches(World& w) {
  const StreamHandle stream = w.stream();
  begin(w, stream);
  char* data = allocate(w, stream);
  if (!w.is_mended) {
    EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
  }
  launch(w, finish(w, stream), stream);
  w.fill(data, kBytes, stream);
}

void memory_freed_by_its_graph_and_again(World& w) {
  const StreamHandle stream = w.stream();
  begin(w, stream);
  char* data = allocate(w, stream);
  if (!w.is_mended) {
    EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
  }
  launch(w, finish(w, stream), stream);
  EXPECT_EQ(release(w, data, stream), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// The second graph frees what the first one allocated.
void two_graphs_hand_memory_on_without_order(World& w) {
  const StreamHandle first = w.stream(), second = w.stream(), capturing = w.stream();
  char* data = nullptr;
  const CUgraphExec allocates = graph_that_allocates(w, &data);
  begin(w, capturing);
  EXPECT_EQ(release(w, data, capturing), CUDA_SUCCESS);
  const CUgraphExec frees = finish(w, capturing);
  for (int i = 0; i < 2; ++i) {
    launch(w, allocates, first);
    if (w.is_mended) w.order(first, second);
    launch(w, frees, second);
    if (w.is_mended) w.order(second, first);
  }
}

// Another stream of the capture reads the block, and the allocator was not told.
void block_reused_in_a_capture_beside_its_reader(World& w) {
  const StreamHandle origin = w.stream(), fork = w.stream();
  begin(w, origin);
  w.heap.begin_allocate_to_pool(0, {7, 0}, PoolFilter::stream(origin));
  char* block = w.block(origin);
  w.write(origin, block);
  w.order(origin, fork);
  w.read(fork, block);
  if (w.is_mended) w.heap.record_stream(block, fork);
  w.heap.deallocate(block);
  char* next = w.block(origin);
  EXPECT_EQ(next == block, !w.is_mended);
  w.write(origin, next);
  w.order(fork, origin);
  w.heap.end_allocate_to_pool(0, {7, 0});
  launch(w, finish(w, origin), origin);
}

// A block from before the capture, freed in it: its pool keeps the bytes for the graph, but what
// is nobody's pool gives them to the next request.
void block_from_before_freed_in_the_capture(World& w) {
  const StreamHandle stream = w.stream();
  const auto route = [&] { w.heap.begin_allocate_to_pool(0, {7, 0}, PoolFilter::stream(stream)); };
  if (w.is_mended) route();
  char* block = w.block(stream);
  w.write(stream, block);
  if (!w.is_mended) route();
  begin(w, stream);
  w.read(stream, block);
  w.heap.deallocate(block);
  const CUgraphExec exec = finish(w, stream);
  w.heap.end_allocate_to_pool(0, {7, 0});
  launch(w, exec, stream);
}

// The same pool, but the next request of no capture gets the bytes, and the graph runs again.
void block_freed_in_the_capture_and_taken_outside(World& w) {
  const StreamHandle stream = w.stream();
  w.heap.begin_allocate_to_pool(0, {7, 0}, PoolFilter::stream(stream));
  char* block = w.block(stream);
  begin(w, stream);
  w.write(stream, block);
  w.heap.deallocate(block);
  const CUgraphExec exec = finish(w, stream);
  if (w.is_mended) w.heap.end_allocate_to_pool(0, {7, 0});
  char* next = w.block(stream);
  EXPECT_EQ(next == block, !w.is_mended);
  if (!w.is_mended) w.heap.end_allocate_to_pool(0, {7, 0});
  launch(w, exec, stream);
}

}  // namespace

std::vector<Program> graph_memory_programs() {
  constexpr RaceKind dead = RaceKind::dead_memory;
  constexpr RaceKind in_use = RaceKind::free_in_use;
  return {
      {"BranchBesideTheAllocationNode", dead, branch_beside_the_allocation_node},
      {"FreedInTheGraphBesideItsReader", in_use, freed_in_the_graph_beside_its_reader},
      {"NodeBehindTheFreeNode", dead, node_behind_the_free_node},
      {"BranchOnTheFormerMemoryOfAnAddress", dead, branch_on_the_former_memory_of_an_address},
      {"ResultOfAGraphsOwnUsedBesideTheLaunch", dead, result_used_beside_the_launch},
      {"ResultOfAGraphsOwnFreedBesideItsReader", in_use, result_freed_beside_its_reader},
      {"ResultOfAGraphsOwnFreedBesideTheLaunch", in_use, result_freed_on_a_stream_beside_the_launch},
      {"ResultOfAGraphsOwnFreedAtOnceWhileInUse", in_use, result_freed_at_once_while_in_use},
      {"ResultFreedByTheNextLaunchBesideItsReader", in_use, result_freed_by_the_next_launch_beside_its_reader},
      {"ResultFreedByTheNextLaunchElsewhereBesideItsReader", in_use,
       graphs_own_work_on_it_when_the_next_launch_frees_it},
      {"MemoryOfAGraphUsedBetweenItsLaunches", dead, memory_of_a_graph_used_between_its_launches},
      {"MemoryFreedByItsGraphAndAgain", RaceKind::invalid_free, memory_freed_by_its_graph_and_again},
      {"TwoGraphsHandMemoryOnWithoutOrder", in_use, two_graphs_hand_memory_on_without_order},
      {"BlockReusedInACaptureBesideItsReader", RaceKind::data_race, block_reused_in_a_capture_beside_its_reader},
      {"BlockFromBeforeFreedInTheCapture", dead, block_from_before_freed_in_the_capture},
      {"BlockFreedInTheCaptureAndTakenOutside", dead, block_freed_in_the_capture_and_taken_outside},
  };
}

}  // namespace cistern::testing
