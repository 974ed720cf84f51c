// Blocks of an allocator: given back, handed out again, and who still works on them.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

// An allocator of the program's own: one block, handed from stream to stream.
class OneBlock {
 public:
  explicit OneBlock(World& world) : api_(world.api), memory_(world.allocate()) {}
  char* take(StreamHandle stream) const {
    api_.note_allocate(reinterpret_cast<CUdeviceptr>(memory_), 4 * KiB, stream);
    return memory_;
  }
  void used(StreamHandle stream) const { api_.note_use(reinterpret_cast<CUdeviceptr>(memory_), 4 * KiB, stream); }
  void give_back(StreamHandle stream) const { api_.note_free(reinterpret_cast<CUdeviceptr>(memory_), 4 * KiB, stream); }

 private:
  const DriverApi& api_;
  char* memory_;
};

void free_without_record_stream(World& w) {
  const StreamHandle owner = w.stream(), reader = w.stream();
  char* block = w.block(owner);
  w.write(owner, block);
  w.order(owner, reader);
  w.read(reader, block);
  if (w.is_mended) w.heap.record_stream(block, reader);
  w.heap.deallocate(block);
}

void record_stream_on_the_wrong_stream(World& w) {
  const StreamHandle owner = w.stream(), reader = w.stream(), other = w.stream();
  char* block = w.block(owner);
  w.write(owner, block);
  w.order(owner, reader);
  w.read(reader, block);
  w.heap.record_stream(block, w.is_mended ? reader : other);
  w.heap.deallocate(block);
}

void record_stream_for_one_of_two_readers(World& w) {
  const StreamHandle owner = w.stream(), left = w.stream(), right = w.stream();
  char* block = w.block(owner);
  w.write(owner, block);
  w.order(owner, left);
  w.order(owner, right);
  w.read(left, block);
  w.read(right, block);
  w.heap.record_stream(block, left);
  if (w.is_mended) w.heap.record_stream(block, right);
  w.heap.deallocate(block);
}

// The stream is named for the wrong one of two blocks.
void record_stream_of_another_block(World& w) {
  const StreamHandle owner = w.stream(), reader = w.stream();
  char* used = w.block(owner);
  char* unused = w.block(owner);
  w.write(owner, used);
  w.order(owner, reader);
  w.read(reader, used);
  w.heap.record_stream(w.is_mended ? used : unused, reader);
  w.heap.deallocate(used);
  w.heap.deallocate(unused);
}

void freed_while_a_copy_reads_it(World& w) {
  const StreamHandle compute = w.stream(), copies = w.stream();
  char* block = w.block(compute);
  std::vector<char>& result = w.host();
  w.write(compute, block);
  w.order(compute, copies);
  w.copy(result.data(), block, result.size(), copies);
  if (w.is_mended) w.order(copies, compute);  // then the block's own stream is behind the copy
  w.heap.deallocate(block);
}

void deallocated_with_the_wrong_last_stream(World& w) {
  const StreamHandle owner = w.stream(), reader = w.stream(), other = w.stream();
  char* block = w.block(owner);
  w.write(owner, block);
  w.order(owner, reader);
  w.read(reader, block);
  w.heap.deallocate(block, w.is_mended ? reader : other);
}

void handed_to_another_stream_at_once(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  const OneBlock heap(w);
  w.write(first, heap.take(first));
  heap.give_back(first);
  w.write(w.is_mended ? first : second, heap.take(w.is_mended ? first : second));
}

void reuse_before_event(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  const OneBlock heap(w);
  const CUevent freed = w.event();
  w.write(first, heap.take(first));
  w.record(freed, first);
  heap.give_back(first);
  if (w.is_mended) w.driver.run_until_idle();
  EXPECT_EQ(w.api.event_query(freed), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
  w.write(second, heap.take(second));
}

void event_of_the_free_recorded_before_the_last_use(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  const OneBlock heap(w);
  const CUevent freed = w.event();
  char* block = heap.take(first);
  w.write(first, block);
  if (!w.is_mended) w.record(freed, first);
  w.read(first, block);
  if (w.is_mended) w.record(freed, first);
  heap.give_back(first);
  w.wait(second, freed);
  w.write(second, heap.take(second));
}

void hand_over_without_the_wait(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  const OneBlock heap(w);
  const CUevent freed = w.event();
  w.write(first, heap.take(first));
  w.record(freed, first);
  heap.give_back(first);
  if (w.is_mended) w.wait(second, freed);
  w.write(second, heap.take(second));
}

void hand_over_waits_on_the_old_stream(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  const OneBlock heap(w);
  const CUevent freed = w.event();
  w.write(first, heap.take(first));
  w.record(freed, first);
  heap.give_back(first);
  w.wait(w.is_mended ? second : first, freed);
  w.write(second, heap.take(second));
}

// The free is guarded for its own stream, and not for the reader that was recorded.
void hand_over_forgets_a_recorded_stream(World& w) {
  const StreamHandle first = w.stream(), reader = w.stream(), second = w.stream();
  const OneBlock heap(w);
  char* block = heap.take(first);
  w.write(first, block);
  w.order(first, reader);
  w.read(reader, block);
  heap.used(reader);
  heap.give_back(first);
  w.order(first, second);
  if (w.is_mended) w.order(reader, second);
  w.write(second, heap.take(second));
}

void reused_on_its_own_stream_while_a_reader_was_recorded(World& w) {
  const StreamHandle first = w.stream(), reader = w.stream();
  const OneBlock heap(w);
  char* block = heap.take(first);
  w.write(first, block);
  w.order(first, reader);
  w.read(reader, block);
  heap.used(reader);
  heap.give_back(first);
  if (w.is_mended) w.order(reader, first);
  w.write(first, heap.take(first));
}

// Nothing synchronises a non-blocking stream with the legacy one.
void handed_from_the_default_stream(World& w) {
  const StreamHandle second = w.is_mended ? w.blocking_stream() : w.stream();
  const OneBlock heap(w);
  w.write(nullptr, heap.take(nullptr));
  heap.give_back(nullptr);
  w.write(second, heap.take(second));
}

// What destroying a stream does to its work: nothing.
void reuse_after_the_stream_is_destroyed(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  const OneBlock heap(w);
  w.write(first, heap.take(first));
  heap.give_back(first);
  if (w.is_mended) w.synchronize(first);
  w.driver.destroy_stream(first);
  w.write(second, heap.take(second));
}

void work_after_the_free(World& w) {
  const StreamHandle owner = w.stream();
  char* block = w.block(owner);
  w.write(owner, block);
  if (w.is_mended) w.read(owner, block);
  w.heap.deallocate(block);
  if (!w.is_mended) w.read(owner, block);
}

void work_on_a_recorded_stream_after_the_free(World& w) {
  const StreamHandle owner = w.stream(), reader = w.stream();
  char* block = w.block(owner);
  w.write(owner, block);
  w.order(owner, reader);
  w.heap.record_stream(block, reader);
  if (w.is_mended) w.read(reader, block);
  w.heap.deallocate(block);
  if (!w.is_mended) w.read(reader, block);
}

}  // namespace

std::vector<Program> reuse_programs() {
  return {
      {"FreeWithoutRecordStream", RaceKind::free_in_use, free_without_record_stream},
      {"RecordStreamOnTheWrongStream", RaceKind::free_in_use, record_stream_on_the_wrong_stream},
      {"RecordStreamForOneOfTwoReaders", RaceKind::free_in_use, record_stream_for_one_of_two_readers},
      {"RecordStreamOfAnotherBlock", RaceKind::free_in_use, record_stream_of_another_block},
      {"FreedWhileACopyReadsIt", RaceKind::free_in_use, freed_while_a_copy_reads_it},
      {"DeallocatedWithTheWrongLastStream", RaceKind::free_in_use, deallocated_with_the_wrong_last_stream},
      {"HandedToAnotherStreamAtOnce", RaceKind::reuse, handed_to_another_stream_at_once},
      {"ReuseBeforeEvent", RaceKind::reuse, reuse_before_event},
      {"EventOfTheFreeRecordedBeforeTheLastUse", RaceKind::reuse, event_of_the_free_recorded_before_the_last_use},
      {"HandOverWithoutTheWait", RaceKind::reuse, hand_over_without_the_wait},
      {"HandOverWaitsOnTheOldStream", RaceKind::reuse, hand_over_waits_on_the_old_stream},
      {"HandOverForgetsARecordedStream", RaceKind::reuse, hand_over_forgets_a_recorded_stream},
      {"ReusedOnItsOwnStreamWhileAReaderWasRecorded", RaceKind::reuse,
       reused_on_its_own_stream_while_a_reader_was_recorded},
      {"HandedFromTheDefaultStream", RaceKind::reuse, handed_from_the_default_stream},
      {"ReuseAfterTheStreamIsDestroyed", RaceKind::reuse, reuse_after_the_stream_is_destroyed},
      {"WorkAfterTheFree", RaceKind::dead_memory, work_after_the_free},
      {"WorkOnARecordedStreamAfterTheFree", RaceKind::dead_memory, work_on_a_recorded_stream_after_the_free},
  };
}

}  // namespace cistern::testing
