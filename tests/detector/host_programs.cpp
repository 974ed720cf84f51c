// The host and the device: who reads what the other writes.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

void host_read_before_synchronize(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  w.fill(data, result.size(), stream);
  w.copy(result.data(), data, result.size(), stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_reads(result.data(), result.size());
}

void host_read_after_synchronizing_another_stream(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  w.copy(result.data(), data, result.size(), stream);
  w.synchronize(w.is_mended ? stream : other);
  w.host_reads(result.data(), result.size());
}

void host_read_after_a_query_that_failed(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  const CUevent done = w.event();
  w.copy(result.data(), data, result.size(), stream);
  w.record(done, stream);
  if (w.is_mended) w.driver.run_until_idle();
  EXPECT_EQ(w.api.event_query(done), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
  w.host_reads(result.data(), result.size());
}

// A time between two events is told once both are done.
void host_read_after_a_time_that_was_not_ready(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  CUevent begin = nullptr;
  CUevent end = nullptr;
  for (CUevent* event : {&begin, &end}) EXPECT_EQ(w.api.event_create(event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  w.record(begin, stream);
  w.copy(result.data(), data, result.size(), stream);
  w.record(end, stream);
  if (w.is_mended) w.driver.run_until_idle();
  float milliseconds = 0;
  EXPECT_EQ(w.api.event_elapsed_time(&milliseconds, begin, end), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
  w.host_reads(result.data(), result.size());
}

void host_read_after_the_work_happened_to_be_done(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  w.copy(result.data(), data, result.size(), stream);
  w.driver.run_until_idle();
  if (w.is_mended) {
    EXPECT_EQ(w.api.ctx_synchronize(), CUDA_SUCCESS);
  }
  w.host_reads(result.data(), result.size());
}

void host_read_of_the_second_half_too_soon(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  const CUevent half = w.event();
  w.copy(result.data(), data, 2 * KiB, stream);
  w.record(half, stream);
  w.copy(result.data() + 2 * KiB, data, 2 * KiB, stream);
  EXPECT_EQ(w.api.event_synchronize(half), CUDA_SUCCESS);
  w.host_reads(result.data(), w.is_mended ? 2 * KiB : 4 * KiB);
}

void stale_event_of_a_result(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  const CUevent done = w.event();
  w.record(done, stream);
  w.copy(result.data(), data, result.size(), stream);
  if (w.is_mended) w.record(done, stream);
  EXPECT_EQ(w.api.event_synchronize(done), CUDA_SUCCESS);
  w.host_reads(result.data(), result.size());
}

void destination_written_by_the_host(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  w.copy(result.data(), data, result.size(), stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_writes(result.data(), 1);
}

// What a host function reads, it reads as work of its stream.
void host_function_on_another_stream(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  char* data = w.allocate();
  std::pair<SimulatedDriver*, std::vector<char>*> seen(&w.driver, &w.host());
  std::vector<char>& result = *seen.second;
  w.copy(result.data(), data, result.size(), stream);
  const auto reads = [](void* user) {
    const auto& [driver, memory] = *static_cast<std::pair<SimulatedDriver*, std::vector<char>*>*>(user);
    driver->host_access({{memory->data(), memory->size()}}, {});
  };
  EXPECT_EQ(w.api.launch_host_func(w.is_mended ? stream : other, reads, &seen), CUDA_SUCCESS);
  w.driver.run_until_idle();
}

}  // namespace

std::vector<Program> host_programs() {
  return {
      {"HostReadBeforeSynchronize", kHostRace, host_read_before_synchronize},
      {"HostReadAfterSynchronizingAnotherStream", kHostRace, host_read_after_synchronizing_another_stream},
      {"HostReadAfterAQueryThatFailed", kHostRace, host_read_after_a_query_that_failed},
      {"HostReadAfterATimeThatWasNotReady", kHostRace, host_read_after_a_time_that_was_not_ready},
      {"HostReadAfterTheWorkHappenedToBeDone", kHostRace, host_read_after_the_work_happened_to_be_done},
      {"HostReadOfTheSecondHalfTooSoon", kHostRace, host_read_of_the_second_half_too_soon},
      {"StaleEventOfAResult", kHostRace, stale_event_of_a_result},
      {"DestinationWrittenByTheHost", kHostRace, destination_written_by_the_host},
      {"HostFunctionOnAnotherStream", RaceKind::data_race, host_function_on_another_stream},
  };
}

}  // namespace cistern::testing
