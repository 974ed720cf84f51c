// Page-locked host memory: a copy reads and writes it when its turn comes, not at the call.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

char* page_locked(World& w) {
  void* pointer = nullptr;
  EXPECT_EQ(w.api.mem_host_alloc(&pointer, kBytes, 0), CUDA_SUCCESS);
  return static_cast<char*>(pointer);
}

void source_rewritten_before_the_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* source = page_locked(w);
  char* data = w.allocate(kBytes);
  w.host_writes(source, kBytes);
  w.copy(data, source, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_writes(source, kBytes);
}

// The mended program relies on staging: pageable memory is read at the call.
void registered_source_taken_for_a_pageable_one(World& w) {
  const StreamHandle stream = w.stream();
  std::vector<char>& source = w.host(kBytes);
  if (!w.is_mended) {
    EXPECT_EQ(w.api.mem_host_register(source.data(), kBytes, 0), CUDA_SUCCESS);
  }
  char* data = w.allocate(kBytes);
  w.copy(data, source.data(), kBytes, stream);
  w.host_writes(source.data(), kBytes);
}

void result_read_before_the_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* result = page_locked(w);
  char* data = w.allocate(kBytes);
  w.copy(result, data, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_reads(result, kBytes);
}

void written_by_a_kernel_while_a_copy_reads_it(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* shared = page_locked(w);
  char* data = w.allocate(kBytes);
  w.copy(data, shared, kBytes, stream);
  if (w.is_mended) w.order(stream, other);
  EXPECT_TRUE(w.write(other, shared, kBytes));
}

void freed_under_a_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* source = page_locked(w);
  char* data = w.allocate(kBytes);
  w.copy(data, source, kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  EXPECT_EQ(w.api.mem_free_host(source), CUDA_SUCCESS);
}

void unregistered_under_a_copy(World& w) {
  const StreamHandle stream = w.stream();
  std::vector<char>& source = w.host(kBytes);
  EXPECT_EQ(w.api.mem_host_register(source.data(), kBytes, 0), CUDA_SUCCESS);
  char* data = w.allocate(kBytes);
  w.copy(data, source.data(), kBytes, stream);
  if (w.is_mended) w.synchronize(stream);
  EXPECT_EQ(w.api.mem_host_unregister(source.data()), CUDA_SUCCESS);
}

// The mended program's copy took the memory for pageable, and does still.
void unregistered_under_a_copy_out_of_the_device(World& w) {
  const StreamHandle stream = w.stream();
  std::vector<char>& result = w.host(kBytes);
  char* data = w.allocate(kBytes);
  if (w.is_mended) w.copy(result.data(), data, kBytes, stream);
  EXPECT_EQ(w.api.mem_host_register(result.data(), kBytes, 0), CUDA_SUCCESS);
  if (!w.is_mended) w.copy(result.data(), data, kBytes, stream);
  EXPECT_EQ(w.api.mem_host_unregister(result.data()), CUDA_SUCCESS);
  w.synchronize(stream);
}

void copied_from_after_its_free(World& w) {
  const StreamHandle stream = w.stream();
  char* source = page_locked(w);
  char* data = w.allocate(kBytes);
  if (w.is_mended) w.copy(data, source, kBytes, stream);
  w.synchronize(stream);
  EXPECT_EQ(w.api.mem_free_host(source), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_EQ(w.copy(data, source, kBytes, stream), CUDA_ERROR_INVALID_VALUE);
  }
}

void freed_twice(World& w) {
  char* pointer = page_locked(w);
  EXPECT_EQ(w.api.mem_free_host(pointer), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_EQ(w.api.mem_free_host(pointer), CUDA_ERROR_INVALID_VALUE);
  }
}

void read_by_the_host_after_its_free(World& w) {
  char* pointer = page_locked(w);
  if (w.is_mended) w.host_reads(pointer, kBytes);
  EXPECT_EQ(w.api.mem_free_host(pointer), CUDA_SUCCESS);
  if (!w.is_mended) w.host_reads(pointer, kBytes);
}

// --- Blocks of the heap of host memory --------------------------------------------------

char* host_block(World& w) { return static_cast<char*>(w.heap.allocate_host(kBytes)); }

void block_given_back_under_an_unrecorded_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* block = host_block(w);
  w.copy(w.allocate(kBytes), block, kBytes, stream);
  if (w.is_mended) {
    EXPECT_TRUE(w.heap.record_host_stream(block, stream));
  }
  w.heap.deallocate_host(block);
}

void block_given_back_before_its_last_copy(World& w) {
  const StreamHandle stream = w.stream();
  char* block = host_block(w);
  char* data = w.allocate(kBytes);
  EXPECT_TRUE(w.heap.record_host_stream(block, stream));
  if (w.is_mended) w.copy(data, block, kBytes, stream);
  w.heap.deallocate_host(block);
  if (!w.is_mended) w.copy(data, block, kBytes, stream);
}

void block_given_back_while_another_stream_reads_it(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* block = host_block(w);
  char* data = w.allocate(2 * kBytes);
  w.copy(data, block, kBytes, stream);
  w.copy(data + kBytes, block, kBytes, other);
  if (w.is_mended) w.order(other, stream);  // so that the one that is recorded stands for both
  EXPECT_TRUE(w.heap.record_host_stream(block, stream));
  w.heap.deallocate_host(block);
}

void copy_past_the_end_of_a_block(World& w) {
  const StreamHandle stream = w.stream();
  char* block = host_block(w);
  static_cast<void>(host_block(w));
  w.copy(w.allocate(2 * kBytes), block, w.is_mended ? kBytes : kBytes + 1, stream);
  w.synchronize(stream);
}

// The mended one's graph has a share in the block, launches and all.
void block_of_a_graph_given_back(World& w) {
  const StreamHandle stream = w.stream();
  char* block = host_block(w);
  char* data = w.allocate(kBytes);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(w.api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  w.copy(data, block, kBytes, stream);
  if (w.is_mended) {
    EXPECT_TRUE(w.heap.record_host_stream(block, stream));
  }
  EXPECT_EQ(w.api.stream_end_capture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(w.api.graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(w.api.graph_launch(exec, stream), CUDA_SUCCESS);
  w.heap.deallocate_host(block);
  if (w.is_mended) {
    EXPECT_EQ(w.api.graph_launch(exec, stream), CUDA_SUCCESS);
  }
  w.synchronize(stream);
  EXPECT_EQ(w.api.graph_exec_destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(w.api.graph_destroy(graph), CUDA_SUCCESS);
  w.heap.deallocate_host(host_block(w));
}

void block_given_back_twice(World& w) {
  char* block = host_block(w);
  w.heap.deallocate_host(block);
  if (w.is_mended) return;
  ::testing::internal::CaptureStderr();
  w.heap.deallocate_host(block);
  EXPECT_NE(::testing::internal::GetCapturedStderr(), "");
}

// What was registered is the program's own again, and no block of anybody's.
void memory_that_was_a_block_is_touched(World& w) {
  const StreamHandle stream = w.stream();
  w.heap.set_options("pinned_use_cuda_host_register:True");
  char* block = host_block(w);
  w.heap.deallocate_host(block);
  if (w.is_mended) w.heap.empty_host_cache();
  w.host_writes(block, kBytes);
  w.synchronize(stream);
}

}  // namespace

std::vector<Program> page_locked_programs() {
  constexpr RaceKind race = RaceKind::host_race;
  const SimulatedOptions free_drive{.drive = Drive::free};
  return {
      {"PageLockedSourceRewrittenBeforeTheCopy", race, source_rewritten_before_the_copy},
      {"PageLockedSourceRewrittenBeforeTheCopyOnTheFreeDrive", race, source_rewritten_before_the_copy, free_drive},
      {"RegisteredSourceTakenForAPageableOne", race, registered_source_taken_for_a_pageable_one},
      {"PageLockedResultReadBeforeTheCopy", race, result_read_before_the_copy},
      {"PageLockedResultReadBeforeTheCopyOnTheFreeDrive", race, result_read_before_the_copy, free_drive},
      {"PageLockedWrittenByAKernelWhileACopyReadsIt", RaceKind::data_race, written_by_a_kernel_while_a_copy_reads_it},
      {"PageLockedFreedUnderACopy", RaceKind::free_in_use, freed_under_a_copy},
      {"PageLockedFreedUnderACopyOnTheFreeDrive", RaceKind::free_in_use, freed_under_a_copy, free_drive},
      {"RegisteredAndUnregisteredUnderACopy", RaceKind::free_in_use, unregistered_under_a_copy},
      {"RegisteredAndUnregisteredUnderACopyOnTheFreeDrive", RaceKind::free_in_use, unregistered_under_a_copy,
       free_drive},
      {"RegisteredAndUnregisteredUnderACopyOutOfTheDevice", RaceKind::free_in_use,
       unregistered_under_a_copy_out_of_the_device},
      {"PageLockedCopiedFromAfterItsFree", RaceKind::dead_memory, copied_from_after_its_free},
      {"PageLockedFreedTwice", RaceKind::invalid_free, freed_twice},
      {"PageLockedReadByTheHostAfterItsFree", RaceKind::dead_memory, read_by_the_host_after_its_free},
      {"HostBlockGivenBackUnderAnUnrecordedCopy", RaceKind::free_in_use, block_given_back_under_an_unrecorded_copy},
      {"HostBlockGivenBackBeforeItsLastCopy", RaceKind::dead_memory, block_given_back_before_its_last_copy},
      {"HostBlockGivenBackWhileAnotherStreamReadsIt", RaceKind::free_in_use,
       block_given_back_while_another_stream_reads_it},
      {"HostBlockCopiedPastItsEnd", RaceKind::out_of_bounds, copy_past_the_end_of_a_block},
      {"HostBlockOfAGraphGivenBack", RaceKind::free_in_use, block_of_a_graph_given_back},
      {"HostBlockGivenBackTwice", RaceKind::invalid_free, block_given_back_twice},
      {"HostBlockTouchedAfterItsFree", RaceKind::dead_memory, memory_that_was_a_block_is_touched},
  };
}

}  // namespace cistern::testing
