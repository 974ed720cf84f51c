// Streams and events: work that nothing orders.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

void missing_wait(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  w.write(producer, data);
  w.record(done, producer);
  if (w.is_mended) w.wait(consumer, done);
  w.read(consumer, data);
}

void wait_on_the_wrong_stream(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream(), other = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  w.write(producer, data);
  w.record(done, producer);
  w.wait(w.is_mended ? consumer : other, done);
  w.read(consumer, data);
}

void event_recorded_on_the_wrong_stream(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream(), other = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  w.write(producer, data);
  w.record(done, w.is_mended ? producer : other);
  w.wait(consumer, done);
  w.read(consumer, data);
}

void event_recorded_too_early(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  if (!w.is_mended) w.record(done, producer);
  w.write(producer, data);
  if (w.is_mended) w.record(done, producer);
  w.wait(consumer, done);
  w.read(consumer, data);
}

// The event still stands for what it recorded in the round before.
void stale_event(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  for (int round = 0; round < 2; ++round) {
    if (round == 1) w.order(consumer, producer);
    w.write(producer, data);
    if (round == 0 || w.is_mended) w.record(done, producer);
    w.wait(consumer, done);
    w.read(consumer, data);
  }
}

// A wait holds for what the event had recorded when it was queued, not for later records.
void wait_queued_before_the_record(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  w.record(done, producer);
  if (!w.is_mended) w.wait(consumer, done);
  w.write(producer, data);
  w.record(done, producer);
  if (w.is_mended) w.wait(consumer, done);
  w.read(consumer, data);
}

void event_recorded_again_before_the_wait(World& w) {
  const StreamHandle first = w.stream(), second = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  w.write(first, data);
  w.record(done, first);
  if (w.is_mended) w.wait(consumer, done);
  w.record(done, second);  // the event now means this alone
  w.wait(consumer, done);
  w.read(consumer, data);
}

void one_of_two_producers_forgotten(World& w) {
  const StreamHandle left = w.stream(), right = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  w.write(left, data, 2 * KiB);
  w.write(right, data + 2 * KiB, 2 * KiB);
  w.order(left, consumer);
  if (w.is_mended) w.order(right, consumer);
  w.read(consumer, data);
}

void overwritten_before_it_is_read(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  w.write(producer, data);
  w.order(producer, consumer);
  w.read(consumer, data);
  if (w.is_mended) w.order(consumer, producer);
  w.write(producer, data);  // the next item, into the same buffer
}

void two_writers(World& w) {
  const StreamHandle left = w.stream(), right = w.stream();
  char* data = w.allocate();
  w.write(left, data);
  if (w.is_mended) w.order(left, right);
  w.write(right, data);
}

void halves_that_overlap(World& w) {
  const StreamHandle left = w.stream(), right = w.stream();
  char* data = w.allocate();
  w.write(left, data, w.is_mended ? 2048 : 2049);
  w.write(right, data + 2048, 2048);
}

// Three streams in a row: the middle one's event was recorded before it waited.
void broken_chain(World& w) {
  const StreamHandle first = w.stream(), middle = w.stream(), last = w.stream();
  char* data = w.allocate();
  const CUevent relay = w.event();
  w.write(first, data);
  if (!w.is_mended) w.record(relay, middle);
  w.order(first, middle);
  if (w.is_mended) w.record(relay, middle);
  w.wait(last, relay);
  w.read(last, data);
}

void copy_back_before_the_kernel(World& w) {
  const StreamHandle compute = w.stream(), copies = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  w.write(compute, data);
  if (w.is_mended) w.order(compute, copies);
  w.copy(result.data(), data, result.size(), copies);
}

void kernel_before_the_copy_in(World& w) {
  const StreamHandle compute = w.stream(), copies = w.stream();
  char* source = w.allocate();
  char* data = w.allocate();
  w.copy(data, source, 4 * KiB, copies);
  if (w.is_mended) w.order(copies, compute);
  w.read(compute, data);
}

void fill_after_the_kernel_by_luck(World& w) {
  const StreamHandle compute = w.stream(), fills = w.stream();
  char* data = w.allocate();
  w.write(compute, data);
  w.driver.run_until_idle();  // it is done, but nobody was told
  if (w.is_mended) w.synchronize(compute);
  w.fill(data, 4 * KiB, fills);
}

// The query failed, and the program went on all the same.
void query_that_said_not_ready(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  w.write(producer, data);
  if (w.is_mended) w.driver.run_until_idle();
  EXPECT_EQ(w.api.stream_query(producer), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
  w.read(consumer, data);
}

void synchronized_the_wrong_stream(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  w.write(producer, data);
  w.synchronize(w.is_mended ? producer : consumer);
  w.read(consumer, data);
}

void synchronized_the_wrong_event(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  const CUevent before = w.event(), after = w.event();
  w.record(before, producer);
  w.write(producer, data);
  w.record(after, producer);
  EXPECT_EQ(w.api.event_synchronize(w.is_mended ? after : before), CUDA_SUCCESS);
  w.read(consumer, data);
}

void wait_for_an_event_that_was_never_recorded(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  const CUevent done = w.event();
  if (w.is_mended) w.record(done, producer);
  w.wait(consumer, done);
}

// A handle is used again: the new stream is not the destroyed one.
void work_of_a_destroyed_stream(World& w) {
  const StreamHandle gone = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  w.write(gone, data);
  w.record(done, gone);
  w.driver.destroy_stream(gone);
  const StreamHandle successor = w.stream();
  EXPECT_EQ(successor, gone);
  if (w.is_mended) w.wait(successor, done);
  w.read(successor, data);
}

void synchronized_the_wrong_device(World& w) {
  const StreamHandle producer = w.stream(0), consumer = w.stream(0);
  char* data = w.allocate();
  w.write(producer, data);
  w.use(w.is_mended ? 0 : 1);
  EXPECT_EQ(w.api.ctx_synchronize(), CUDA_SUCCESS);
  w.use(0);
  w.read(consumer, data);
}

}  // namespace

std::vector<Program> ordering_programs() {
  return {
      {"MissingWait", kDataRace, missing_wait},
      {"WaitOnTheWrongStream", kDataRace, wait_on_the_wrong_stream},
      {"EventRecordedOnTheWrongStream", kDataRace, event_recorded_on_the_wrong_stream},
      {"EventRecordedTooEarly", kDataRace, event_recorded_too_early},
      {"StaleEvent", kDataRace, stale_event},
      {"WaitQueuedBeforeTheRecord", kDataRace, wait_queued_before_the_record},
      {"EventRecordedAgainBeforeTheWait", kDataRace, event_recorded_again_before_the_wait},
      {"OneOfTwoProducersForgotten", kDataRace, one_of_two_producers_forgotten},
      {"OverwrittenBeforeItIsRead", kDataRace, overwritten_before_it_is_read},
      {"TwoWriters", kDataRace, two_writers},
      {"HalvesThatOverlap", kDataRace, halves_that_overlap},
      {"BrokenChain", kDataRace, broken_chain},
      {"CopyBackBeforeTheKernel", kDataRace, copy_back_before_the_kernel},
      {"KernelBeforeTheCopyIn", kDataRace, kernel_before_the_copy_in},
      {"FillAfterTheKernelByLuck", kDataRace, fill_after_the_kernel_by_luck},
      {"QueryThatSaidNotReady", kDataRace, query_that_said_not_ready},
      {"SynchronizedTheWrongStream", kDataRace, synchronized_the_wrong_stream},
      {"SynchronizedTheWrongEvent", kDataRace, synchronized_the_wrong_event},
      {"WaitForAnEventThatWasNeverRecorded", RaceKind::idle_wait, wait_for_an_event_that_was_never_recorded},
      {"WorkOfADestroyedStream", kDataRace, work_of_a_destroyed_stream},
      {"SynchronizedTheWrongDevice", kDataRace, synchronized_the_wrong_device, {.devices = 2}},
  };
}

}  // namespace cistern::testing
