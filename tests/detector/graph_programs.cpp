// Captures and graphs: what joins, and what outlives what.

#include "tests/detector/graph_steps.h"
#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

void lost_capture_join(World& w) {
  const StreamHandle origin = w.stream(), fork = w.stream();
  char* data = w.allocate();
  begin(w, origin);
  w.order(origin, fork);
  w.write(fork, data);
  if (w.is_mended) w.order(fork, origin);
  CUgraph graph = nullptr;
  EXPECT_EQ(w.api.stream_end_capture(origin, &graph), w.is_mended ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

// The two branches of the graph have no edge between them.
void branches_of_a_graph_write_the_same_bytes(World& w) {
  const StreamHandle origin = w.stream(), fork = w.stream();
  char* data = w.allocate();
  begin(w, origin);
  w.order(origin, fork);
  w.write(fork, data);
  if (w.is_mended) w.order(fork, origin);
  w.write(origin, data);
  if (!w.is_mended) w.order(fork, origin);
  launch(w, finish(w, origin), origin);
}

void graph_launched_beside_the_producer_of_its_input(World& w) {
  const StreamHandle producer = w.stream(), consumer = w.stream();
  char* data = w.allocate();
  begin(w, consumer);
  w.read(consumer, data);
  const CUgraphExec exec = finish(w, consumer);
  w.write(producer, data);
  if (w.is_mended) w.order(producer, consumer);
  launch(w, exec, consumer);
}

void result_of_a_graph_read_on_another_stream(World& w) {
  const StreamHandle stream = w.stream(), reader = w.stream();
  char* data = w.allocate();
  begin(w, stream);
  w.write(stream, data);
  launch(w, finish(w, stream), stream);
  if (w.is_mended) w.order(stream, reader);
  w.read(reader, data);
}

// Launches of one executable graph are ordered; those of two are not.
void two_graphs_on_two_streams(World& w) {
  const StreamHandle first = w.stream(), second = w.stream();
  char* data = w.allocate();
  begin(w, first);
  w.write(first, data);
  CUgraph graph = nullptr;
  EXPECT_EQ(w.api.stream_end_capture(first, &graph), CUDA_SUCCESS);
  CUgraphExec one = nullptr, two = nullptr;
  EXPECT_EQ(w.api.graph_instantiate(&one, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(w.api.graph_instantiate(&two, graph, 0), CUDA_SUCCESS);
  launch(w, one, first);
  launch(w, w.is_mended ? one : two, second);
}

void graph_launched_after_its_memory_was_freed(World& w) {
  const StreamHandle stream = w.stream();
  char* block = w.block(stream);
  begin(w, stream);
  w.write(stream, block);
  const CUgraphExec exec = finish(w, stream);
  if (w.is_mended) launch(w, exec, stream);
  w.heap.deallocate(block);
  if (!w.is_mended) launch(w, exec, stream);
}

void graph_launched_on_memory_that_is_somebody_elses_now(World& w) {
  const StreamHandle stream = w.stream();
  char* block = w.block(stream);
  begin(w, stream);
  w.write(stream, block);
  const CUgraphExec exec = finish(w, stream);
  if (!w.is_mended) w.heap.deallocate(block);
  char* other = w.block(stream);
  EXPECT_EQ(other == block, !w.is_mended);
  launch(w, exec, stream);
}

void captured_work_on_freed_memory(World& w) {
  const StreamHandle stream = w.stream();
  char* block = w.block(stream);
  if (!w.is_mended) w.heap.deallocate(block);
  begin(w, stream);
  w.write(stream, block);
  finish(w, stream);
}

void host_reads_the_result_of_a_graph_too_soon(World& w) {
  const StreamHandle stream = w.stream();
  char* data = w.allocate();
  std::vector<char>& result = w.host();
  begin(w, stream);
  w.copy(result.data(), data, result.size(), stream);
  launch(w, finish(w, stream), stream);
  if (w.is_mended) w.synchronize(stream);
  w.host_reads(result.data(), result.size());
}

void graph_waits_for_an_event_that_was_never_recorded(World& w) {
  const StreamHandle stream = w.stream(), other = w.stream();
  const CUevent ready = w.event();
  begin(w, stream);
  EXPECT_EQ(w.api.stream_wait_event(stream, ready, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
  const CUgraphExec exec = finish(w, stream);
  if (w.is_mended) w.record(ready, other);
  launch(w, exec, stream);
}

}  // namespace

std::vector<Program> graph_programs() {
  constexpr RaceKind race = RaceKind::data_race;
  return {
      {"LostCaptureJoin", RaceKind::lost_join, lost_capture_join},
      {"BranchesOfAGraphWriteTheSameBytes", race, branches_of_a_graph_write_the_same_bytes},
      {"GraphLaunchedBesideTheProducerOfItsInput", race, graph_launched_beside_the_producer_of_its_input},
      {"ResultOfAGraphReadOnAnotherStream", race, result_of_a_graph_read_on_another_stream},
      {"TwoGraphsOnTwoStreams", race, two_graphs_on_two_streams},
      {"GraphLaunchedAfterItsMemoryWasFreed", RaceKind::dead_memory, graph_launched_after_its_memory_was_freed},
      {"GraphLaunchedOnMemoryThatIsSomebodyElsesNow", RaceKind::dead_memory,
       graph_launched_on_memory_that_is_somebody_elses_now},
      {"CapturedWorkOnFreedMemory", RaceKind::dead_memory, captured_work_on_freed_memory},
      {"GraphWaitsForAnEventThatWasNeverRecorded", RaceKind::idle_wait,
       graph_waits_for_an_event_that_was_never_recorded},
      {"HostReadsTheResultOfAGraphTooSoon", RaceKind::host_race, host_reads_the_result_of_a_graph_too_soon},
  };
}

}  // namespace cistern::testing
