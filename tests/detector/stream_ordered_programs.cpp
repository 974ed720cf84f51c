// Memory of stream-ordered pools: its operations' from the turn of its allocation to that of its free.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

char* allocate(World& w, StreamHandle stream, std::size_t bytes = kBytes) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(w.api.mem_alloc_async(&pointer, bytes, stream), CUDA_SUCCESS);
  return reinterpret_cast<char*>(pointer);
}

CUresult release(World& w, char* pointer, StreamHandle stream) {
  return w.api.mem_free_async(reinterpret_cast<CUdeviceptr>(pointer), stream);
}

void used_on_a_stream_that_does_not_wait_for_the_allocation(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = allocate(w, stream);
  if (w.is_mended) w.order(stream, other);
  w.fill(data, kBytes, other);
}

// The wait is for an event that comes before the allocation.
void used_behind_an_event_from_before_the_allocation(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  const CUevent ready = w.event();
  w.record(ready, stream);
  char* data = allocate(w, stream);
  if (w.is_mended) w.record(ready, stream);
  w.wait(other, ready);
  w.fill(data, kBytes, other);
}

void read_by_the_host_before_the_allocation(World& w) {
  const StreamHandle stream = w.stream();
  char* data = allocate(w, stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_reads(data, kBytes);
}

void freed_while_another_stream_uses_it(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = allocate(w, stream);
  w.order(stream, other);
  w.fill(data, kBytes, other);
  if (w.is_mended) w.order(other, stream);
  EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
}

void freed_on_a_stream_that_does_not_wait_for_the_allocation(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = allocate(w, stream);
  if (w.is_mended) w.order(stream, other);
  EXPECT_EQ(release(w, data, other), CUDA_SUCCESS);
}

void used_after_its_free(World& w) {
  const StreamHandle stream = w.stream();
  char* data = allocate(w, stream);
  if (!w.is_mended) {
    EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(w.fill(data, kBytes, stream), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

void past_the_end_of_a_pools_allocation(World& w) {
  const StreamHandle stream = w.stream();
  char* data = allocate(w, stream, 1000);
  allocate(w, stream, 1000);
  EXPECT_EQ(w.fill(data, w.is_mended ? 1000 : 1001, stream), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

void freed_twice(World& w) {
  const StreamHandle stream = w.stream();
  char* data = allocate(w, stream);
  EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_EQ(release(w, data, stream), CUDA_ERROR_INVALID_VALUE);
  }
}

// cuMemFree of such an allocation waits for no work on it.
void freed_at_once_while_in_use(World& w) {
  const StreamHandle stream = w.stream();
  char* data = allocate(w, stream);
  w.fill(data, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  EXPECT_EQ(w.free(data), CUDA_SUCCESS);
}

// The allocation itself is no use of the memory: its free at once, before its turn, loses nothing.
void freed_at_once_with_work_before_its_turn(World& w) {
  const StreamHandle stream = w.stream();
  char* data = allocate(w, stream);
  if (!w.is_mended) w.fill(data, kBytes, stream);
  EXPECT_EQ(w.free(data), CUDA_SUCCESS);
}

// An allocator cuts blocks out of its memory. Its stream-ordered free is none of their uses.
void block_of_a_stream_ordered_segment_used_after_its_free(World& w) {
  const StreamHandle stream = w.stream();
  char* segment = allocate(w, stream, 2 * MiB);
  const auto block = reinterpret_cast<CUdeviceptr>(segment);
  w.api.note_allocate(block, kBytes, stream);
  if (w.is_mended) w.fill(segment, kBytes, stream);
  w.api.note_free(block, kBytes, stream);
  if (!w.is_mended) w.fill(segment, kBytes, stream);
  EXPECT_EQ(release(w, segment, stream), CUDA_SUCCESS);
}

void plain_memory_freed_behind_one_of_its_streams(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = w.allocate();
  w.fill(data, kBytes, other);
  if (w.is_mended) w.order(other, stream);
  EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
}

void plain_memory_used_after_its_ordered_free(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  if (!w.is_mended) {
    EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(w.fill(data, kBytes, stream), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// The pool gives the second stream the first one's bytes; the use of the former allocation is
// over by then, since its free is behind it.
void the_next_allocation_used_without_waiting_for_it(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* first = allocate(w, stream, 2 * MiB);
  w.fill(first, 2 * MiB, stream);
  EXPECT_EQ(release(w, first, stream), CUDA_SUCCESS);
  w.order(stream, other);
  char* second = allocate(w, other, 2 * MiB);
  EXPECT_EQ(second, first);
  w.fill(second, 2 * MiB, w.is_mended ? other : stream);
}

// The free has run, so the pool gives its memory to a stream that is ordered behind nothing of it:
// what the former allocation saw is over.
void memory_whose_free_has_run_used_without_waiting_for_its_new_allocation(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* first = allocate(w, stream, 2 * MiB);
  w.fill(first, 2 * MiB, stream);
  EXPECT_EQ(release(w, first, stream), CUDA_SUCCESS);
  w.driver.run_until_idle();
  char* second = allocate(w, other, 2 * MiB);
  EXPECT_EQ(second, first);
  w.fill(second, 2 * MiB, w.is_mended ? other : stream);
}

void captured_use_launched_after_the_free(World& w) {
  const StreamHandle stream = w.stream();
  char* data = allocate(w, stream);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(w.api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  w.fill(data, kBytes, stream);
  EXPECT_EQ(w.api.stream_end_capture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(w.api.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_EQ(release(w, data, stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(w.api.graph_launch(exec, stream), CUDA_SUCCESS);
}

}  // namespace

std::vector<Program> stream_ordered_programs() {
  constexpr auto early = used_on_a_stream_that_does_not_wait_for_the_allocation;
  constexpr auto in_use = freed_while_another_stream_uses_it;
  const SimulatedOptions free_drive{.drive = Drive::free};
  return {
      {"UsedOnAStreamThatDoesNotWaitForTheAllocation", RaceKind::dead_memory, early},
      {"UsedOnAStreamThatDoesNotWaitForTheAllocationOnTheFreeDrive", RaceKind::dead_memory, early, free_drive},
      {"UsedBehindAnEventFromBeforeTheAllocation", RaceKind::dead_memory,
       used_behind_an_event_from_before_the_allocation},
      {"ReadByTheHostBeforeTheAllocation", RaceKind::dead_memory, read_by_the_host_before_the_allocation},
      {"FreedWhileAnotherStreamUsesIt", RaceKind::free_in_use, in_use},
      {"FreedWhileAnotherStreamUsesItOnTheFreeDrive", RaceKind::free_in_use, in_use, free_drive},
      {"FreedOnAStreamThatDoesNotWaitForTheAllocation", RaceKind::free_in_use,
       freed_on_a_stream_that_does_not_wait_for_the_allocation},
      {"UsedAfterItsOrderedFree", RaceKind::dead_memory, used_after_its_free},
      {"PastTheEndOfAPoolsAllocation", RaceKind::out_of_bounds, past_the_end_of_a_pools_allocation},
      {"FreedTwiceInStreamOrder", RaceKind::invalid_free, freed_twice},
      {"PoolsAllocationFreedAtOnceWhileInUse", RaceKind::free_in_use, freed_at_once_while_in_use},
      {"FreedAtOnceWithWorkBeforeItsTurn", RaceKind::free_in_use, freed_at_once_with_work_before_its_turn},
      {"BlockOfAStreamOrderedSegmentUsedAfterItsFree", RaceKind::dead_memory,
       block_of_a_stream_ordered_segment_used_after_its_free},
      {"PlainMemoryFreedBehindOneOfItsStreams", RaceKind::free_in_use, plain_memory_freed_behind_one_of_its_streams},
      {"PlainMemoryUsedAfterItsOrderedFree", RaceKind::dead_memory, plain_memory_used_after_its_ordered_free},
      {"TheNextAllocationUsedWithoutWaitingForIt", RaceKind::dead_memory,
       the_next_allocation_used_without_waiting_for_it},
      {"MemoryWhoseFreeHasRunUsedWithoutWaitingForItsNewAllocation", RaceKind::dead_memory,
       memory_whose_free_has_run_used_without_waiting_for_its_new_allocation},
      {"CapturedUseLaunchedAfterTheFree", RaceKind::dead_memory, captured_use_launched_after_the_free},
  };
}

}  // namespace cistern::testing
