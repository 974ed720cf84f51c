// Blocks whose stream has no handle here any more: it was destroyed, or is another thread's.

#include "tests/detector/program.h"

#include <thread>

namespace cistern::testing {
namespace {

StreamHandle new_stream(World& w) {
  CUstream stream = nullptr;
  EXPECT_EQ(w.api.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  return stream;
}

// A block of `owner` that `reader` reads, with the allocator told of it or not.
char* block_with_a_reader(World& w, StreamHandle owner, StreamHandle reader) {
  char* block = w.block(owner);
  w.write(owner, block);
  w.order(owner, reader);
  w.read(reader, block);
  if (w.is_mended) w.heap.record_stream(block, reader);
  return block;
}

void block_of_a_destroyed_stream_used_after_its_free(World& w) {
  const StreamHandle owner = new_stream(w), reader = w.stream();
  char* block = w.block(owner);
  w.write(owner, block);
  w.order(owner, reader);
  EXPECT_EQ(w.api.stream_destroy(owner), CUDA_SUCCESS);
  if (w.is_mended) {
    w.read(reader, block);
    w.heap.record_stream(block, reader);
  }
  w.heap.deallocate(block);
  if (!w.is_mended) w.read(reader, block);
}

void block_of_a_destroyed_stream_freed_in_use(World& w) {
  const StreamHandle owner = new_stream(w), reader = w.stream();
  char* block = block_with_a_reader(w, owner, reader);
  EXPECT_EQ(w.api.stream_destroy(owner), CUDA_SUCCESS);
  w.heap.deallocate(block);
}

// The handle names another stream by now, which knows nothing of the block's.
void block_freed_after_its_streams_handle_was_reused(World& w) {
  const StreamHandle owner = new_stream(w), reader = w.stream();
  char* block = block_with_a_reader(w, owner, reader);
  EXPECT_EQ(w.api.stream_destroy(owner), CUDA_SUCCESS);
  EXPECT_EQ(new_stream(w), owner);
  w.heap.deallocate(block);
}

// The free is in order on the stream of the thread that allocated.
void block_of_a_per_thread_stream_freed_by_another_thread(World& w) {
  const StreamHandle reader = w.stream();
  char* block = block_with_a_reader(w, CU_STREAM_PER_THREAD, reader);
  std::thread([&] {
    w.use(0);
    w.heap.deallocate(block);
  }).join();
}

void block_of_a_thread_that_has_ended_freed_in_use(World& w) {
  const StreamHandle reader = w.stream();
  char* block = nullptr;
  std::thread([&] {
    w.use(0);
    block = block_with_a_reader(w, CU_STREAM_PER_THREAD, reader);
  }).join();
  w.heap.deallocate(block);
}

}  // namespace

std::vector<Program> ended_stream_programs() {
  return {
      {"BlockOfADestroyedStreamUsedAfterItsFree", RaceKind::dead_memory,
       block_of_a_destroyed_stream_used_after_its_free},
      {"BlockOfADestroyedStreamFreedInUse", RaceKind::free_in_use, block_of_a_destroyed_stream_freed_in_use},
      {"BlockFreedAfterItsStreamsHandleWasReused", RaceKind::free_in_use,
       block_freed_after_its_streams_handle_was_reused},
      {"BlockOfAPerThreadStreamFreedByAnotherThread", RaceKind::free_in_use,
       block_of_a_per_thread_stream_freed_by_another_thread},
      {"BlockOfAThreadThatHasEndedFreedInUse", RaceKind::free_in_use, block_of_a_thread_that_has_ended_freed_in_use},
  };
}

}  // namespace cistern::testing
