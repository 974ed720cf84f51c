// Default streams: who waits for whom, and who does not.

#include <thread>

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

void non_blocking_stream_taken_for_a_blocking_one(World& w) {
  const StreamHandle stream = w.is_mended ? w.blocking_stream() : w.stream();
  char* data = w.allocate();
  w.write(nullptr, data);
  w.read(stream, data);
}

void legacy_stream_does_not_wait_for_non_blocking(World& w) {
  const StreamHandle stream = w.is_mended ? w.blocking_stream() : w.stream();
  char* data = w.allocate();
  w.write(stream, data);
  w.read(nullptr, data);
}

void two_blocking_streams_without_legacy_work_between(World& w) {
  const StreamHandle first = w.blocking_stream(), second = w.blocking_stream();
  char* data = w.allocate();
  w.write(first, data);
  if (w.is_mended) w.driver.occupy(nullptr, {});  // a barrier to all blocking streams
  w.read(second, data);
}

void per_thread_streams_of_two_threads(World& w) {
  char* data = w.allocate();
  w.write(CU_STREAM_PER_THREAD, data);
  if (w.is_mended) w.synchronize(CU_STREAM_PER_THREAD);
  std::thread([&] {
    w.use(0);
    w.read(CU_STREAM_PER_THREAD, data);
  }).join();
}

// Per-thread default streams are blocking streams.
void per_thread_stream_and_a_non_blocking_one(World& w) {
  const StreamHandle other = w.stream();
  char* data = w.allocate();
  w.write(w.is_mended ? nullptr : other, data);
  w.read(CU_STREAM_PER_THREAD, data);
}

void synchronized_legacy_for_a_non_blocking_stream(World& w) {
  const StreamHandle stream = w.is_mended ? w.blocking_stream() : w.stream();
  const StreamHandle reader = w.stream();
  char* data = w.allocate();
  w.write(stream, data);
  w.synchronize(nullptr);
  w.read(reader, data);
}

// The record is in order on its own stream only, unless that is the legacy one.
void event_of_one_blocking_stream_for_all(World& w) {
  const StreamHandle first = w.blocking_stream(), second = w.blocking_stream(), reader = w.stream();
  char* data = w.allocate();
  const CUevent done = w.event();
  w.write(first, data);
  w.record(done, w.is_mended ? nullptr : second);
  w.wait(reader, done);
  w.read(reader, data);
}

void legacy_streams_of_two_devices(World& w) {
  char* data = w.allocate();
  const StreamHandle stream = w.blocking_stream();
  w.write(stream, data);
  w.use(w.is_mended ? 0 : 1);
  w.driver.occupy(nullptr, {});
  w.use(0);
  const StreamHandle reader = w.stream();
  const CUevent done = w.event();
  if (w.is_mended) {
    w.record(done, nullptr);
    w.wait(reader, done);
  }
  w.read(reader, data);
}

// Destroying a stream changes nothing about who waits for its work.
void legacy_stream_after_a_non_blocking_one_was_destroyed(World& w) {
  const StreamHandle stream = w.is_mended ? w.blocking_stream() : w.stream();
  char* data = w.allocate();
  w.write(stream, data);
  w.driver.destroy_stream(stream);
  w.read(nullptr, data);
}

}  // namespace

std::vector<Program> default_stream_programs() {
  return {
      {"NonBlockingStreamTakenForABlockingOne", kDataRace, non_blocking_stream_taken_for_a_blocking_one},
      {"LegacyStreamDoesNotWaitForNonBlocking", kDataRace, legacy_stream_does_not_wait_for_non_blocking},
      {"TwoBlockingStreamsWithoutLegacyWorkBetween", kDataRace, two_blocking_streams_without_legacy_work_between},
      {"PerThreadStreamsOfTwoThreads", kDataRace, per_thread_streams_of_two_threads},
      {"PerThreadStreamAndANonBlockingOne", kDataRace, per_thread_stream_and_a_non_blocking_one},
      {"SynchronizedLegacyForANonBlockingStream", kDataRace, synchronized_legacy_for_a_non_blocking_stream},
      {"EventOfOneBlockingStreamForAll", kDataRace, event_of_one_blocking_stream_for_all},
      {"LegacyStreamAfterANonBlockingOneWasDestroyed", kDataRace, legacy_stream_after_a_non_blocking_one_was_destroyed},
      {"LegacyStreamsOfTwoDevices", kDataRace, legacy_streams_of_two_devices, {.devices = 2}},
  };
}

}  // namespace cistern::testing
