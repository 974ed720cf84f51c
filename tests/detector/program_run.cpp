#include "tests/detector/program_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "runtime/simulated/driver_state.h"

namespace cistern::testing {
namespace {

constexpr std::size_t kCellBytes = sizeof(std::uint64_t);

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x632be59bd9b4e019U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

SimulatedOptions small_driver(RaceMode races) {
  SimulatedOptions options;
  options.devices = static_cast<int>(kDevices);
  options.capacity_bytes = std::size_t{8} << 20;
  options.races = races;
  options.race_frames = 0;  // only what is found counts
  return options;
}

}  // namespace

ProgramRun::ProgramRun(RaceMode races)
    : driver_(small_driver(races)), state_(*simulated::find_driver_state(driver_.api())) {
  EXPECT_EQ(api_.init(0), CUDA_SUCCESS);
  for (std::size_t device = 0; device < kDevices; ++device) {
    EXPECT_EQ(api_.primary_ctx_retain(&contexts_[device], static_cast<int>(device)), CUDA_SUCCESS);
  }
  for (std::size_t device = 0; device < kDevices; ++device) {
    use(device);
    for (const CUcontext other : contexts_) {
      if (other == contexts_[device]) continue;
      EXPECT_EQ(api_.ctx_enable_peer_access(other, 0), CUDA_SUCCESS);
    }
  }
  const auto allocate = [&](std::size_t cells) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(api_.mem_alloc(&memory, cells * kCellBytes), CUDA_SUCCESS);
    return reinterpret_cast<std::uint64_t*>(memory);
  };
  use(1);
  peer_ = allocate(kPeerCells);
  use(0);
  plain_ = allocate(kPlainCells);
  blocks_ = allocate(kBlocks * kBlockCells);
}

ProgramRun::~ProgramRun() { unload(); }

void ProgramRun::use(std::size_t device) { EXPECT_EQ(api_.ctx_set_current(contexts_[device]), CUDA_SUCCESS); }

CUstream ProgramRun::make_stream(const ProgramStream& stream) {
  if (stream.kind == StreamKind::legacy) return nullptr;
  if (stream.kind == StreamKind::per_thread) return CU_STREAM_PER_THREAD;
  CUstream handle = nullptr;
  const unsigned flags = stream.kind == StreamKind::blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  use(stream.device);
  EXPECT_EQ(api_.stream_create_with_priority(&handle, flags, 0), CUDA_SUCCESS);
  use(0);
  return handle;
}

CUevent ProgramRun::make_event(std::size_t device) {
  CUevent event = nullptr;
  use(device);
  EXPECT_EQ(api_.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  use(0);
  return event;
}

CUdeviceptr ProgramRun::block_address(std::size_t block) const {
  return reinterpret_cast<CUdeviceptr>(blocks_ + block * kBlockCells);
}

// --- A program's life -------------------------------------------------------------------

void ProgramRun::load(const RandomProgram& program) {
  unload();
  program_ = &program;
  first_observations_.clear();
  observation_count_ = 0;
  for (const Step& step : program.steps) {
    first_observations_.push_back(observation_count_);
    observation_count_ += step.kind == Step::Kind::launch ? program.graphs[step.graph].steps.size() : 1;
  }
  for (std::size_t graph = 0; graph < program.graphs.size(); ++graph) graphs_.push_back({capture(graph), {}, {}});
}

void ProgramRun::unload() {
  for (const LoadedGraph& graph : graphs_) EXPECT_EQ(api_.graph_exec_destroy(graph.exec), CUDA_SUCCESS);
  graphs_.clear();
}

CUgraphExec ProgramRun::capture(std::size_t graph) {
  const ProgramGraph& plan = program_->graphs[graph];
  std::vector<CUstream> branches;
  std::vector<CUevent> events;
  for (const std::size_t device : plan.branches) {
    branches.push_back(make_stream({StreamKind::non_blocking, device}));
  }
  const auto record = [&](std::size_t branch) {
    events.push_back(make_event(plan.branches[branch]));
    EXPECT_EQ(api_.event_record(events.back(), branches[branch]), CUDA_SUCCESS);
    return events.back();
  };
  const auto wait = [&](std::size_t branch, CUevent event) {
    EXPECT_EQ(api_.stream_wait_event(branches[branch], event, 0), CUDA_SUCCESS);
  };
  EXPECT_EQ(api_.stream_begin_capture(branches[0], CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const CUevent fork = record(0);
  for (std::size_t branch = 1; branch < branches.size(); ++branch) wait(branch, fork);
  std::vector<CUevent> recorded;  // by the plan's numbers
  for (std::size_t node = 0; node < plan.steps.size(); ++node) {
    const Step& step = plan.steps[node];
    if (step.kind == Step::Kind::kernel)
      queue(branches[step.stream], step, [this, graph, node] { access_as_node(graph, node); });
    if (step.kind == Step::Kind::record) recorded.push_back(record(step.stream));
    if (step.kind == Step::Kind::wait) wait(step.stream, recorded[step.event]);
  }
  for (std::size_t branch = 1; branch < branches.size(); ++branch) wait(0, record(branch));
  CUgraph captured = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(api_.stream_end_capture(branches[0], &captured), CUDA_SUCCESS);
  EXPECT_EQ(api_.graph_instantiate(&exec, captured, 0), CUDA_SUCCESS);
  EXPECT_EQ(api_.graph_destroy(captured), CUDA_SUCCESS);
  for (const CUstream branch : branches) driver_.destroy_stream(branch);
  for (const CUevent event : events) EXPECT_EQ(api_.event_destroy(event), CUDA_SUCCESS);
  return exec;
}

void ProgramRun::begin() {
  next_ = 0;
  for (std::size_t i = 0; i < kCells; ++i) *cell(i) = i + 1;
  for (const ProgramStream& stream : program_->streams) streams_.push_back(make_stream(stream));
  for (std::size_t i = 0; i < kEvents; ++i) events_.push_back(make_event(i / kEventsOfDevice));
  for (std::size_t block = 0; block < kBlocks; ++block) {
    owners_[block] = 0;
    api_.note_allocate(block_address(block), kBlockCells * kCellBytes, streams_[0]);
  }
  for (std::size_t i = 0; i < graphs_.size(); ++i) {
    graphs_[i].launches.clear();
    graphs_[i].runs.assign(program_->graphs[i].steps.size(), 0);
  }
  observations_.assign(observation_count_, 0);
  copies_.clear();
}

void ProgramRun::end() {
  for (std::size_t device = 0; device < kDevices; ++device) synchronize_device(device);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    api_.note_free(block_address(block), kBlockCells * kCellBytes, streams_[owners_[block]]);
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (program_->streams[i].kind >= StreamKind::blocking) driver_.destroy_stream(streams_[i]);
  }
  for (const CUevent event : events_) EXPECT_EQ(api_.event_destroy(event), CUDA_SUCCESS);
  streams_.clear();
  events_.clear();
  driver_.clear_race_reports();
}

// --- Accesses ---------------------------------------------------------------------------

std::vector<MemoryRange> ProgramRun::ranges(const Cells& cells) const {
  if (cells.begin == cells.end) return {};
  return {{cell(cells.begin), (cells.end - cells.begin) * kCellBytes}};
}

void ProgramRun::access(const Step& step, std::size_t number) {
  std::uint64_t seen = mix(number, 1);
  for (std::size_t i = step.reads.begin; i < step.reads.end; ++i) seen = mix(seen, *cell(i));
  const std::uint64_t written = mix(seen, number);
  for (std::size_t i = step.writes.begin; i < step.writes.end; ++i) {
    seen = mix(seen, *cell(i));
    *cell(i) = mix(written, i);
  }
  observations_[number] = seen;
}

void ProgramRun::access_as_node(std::size_t graph, std::size_t node) {
  LoadedGraph& loaded = graphs_[graph];
  const std::size_t launch = loaded.runs[node]++;
  access(program_->graphs[graph].steps[node], loaded.launches[launch] + node);
}

void ProgramRun::queue(CUstream stream, const Step& step, std::function<void()> function) {
  driver_.launch(stream, ranges(step.reads), ranges(step.writes), std::chrono::nanoseconds(1), std::move(function));
}

void ProgramRun::launch(std::size_t place) {
  const Step& step = program_->steps[place];
  const std::size_t number = first_observations_[place];
  queue(streams_[step.stream], step, [this, &step, number] { access(step, number); });
}

void ProgramRun::launch_graph(std::size_t place) {
  const Step& step = program_->steps[place];
  graphs_[step.graph].launches.push_back(first_observations_[place]);
  EXPECT_EQ(api_.graph_launch(graphs_[step.graph].exec, streams_[step.stream]), CUDA_SUCCESS);
}

void ProgramRun::copy_between_peers(const Step& step) {
  const auto address = [&](const Cells& cells) { return reinterpret_cast<CUdeviceptr>(cell(cells.begin)); };
  const auto context = [&](const Cells& cells) { return contexts_[cells.begin >= kFirstPeerCell ? 1 : 0]; };
  const CUstream stream = streams_[step.stream];
  EXPECT_EQ(api_.memcpy_peer_async(address(step.writes), context(step.writes), address(step.reads), context(step.reads),
                                   (step.reads.end - step.reads.begin) * kCellBytes, stream),
            CUDA_SUCCESS);
  const std::lock_guard lock(state_.mutex);
  const simulated::Operation* copy = state_.streams.find(stream, 0)->last;
  copies_.push_back({copy, copy->id});
}

// All streams that may have used it are recorded, so that only the reuse is judged.
void ProgramRun::reuse(const Step& step) {
  const CUdeviceptr address = block_address(step.block);
  constexpr std::size_t bytes = kBlockCells * kCellBytes;
  for (const CUstream stream : streams_) api_.note_use(address, bytes, stream);
  api_.note_free(address, bytes, streams_[owners_[step.block]]);
  owners_[step.block] = step.stream;
  api_.note_allocate(address, bytes, streams_[step.stream]);
}

void ProgramRun::synchronize_device(std::size_t device) {
  use(device);
  EXPECT_EQ(api_.ctx_synchronize(), CUDA_SUCCESS);
  use(0);
}

// --- Progress ---------------------------------------------------------------------------

void ProgramRun::advance_host() {
  const std::size_t place = next_++;
  const Step& step = program_->steps[place];
  switch (step.kind) {
    case Step::Kind::reuse:
      reuse(step);
      launch(place);
      break;
    case Step::Kind::kernel:
      launch(place);
      break;
    case Step::Kind::peer_copy:
      copy_between_peers(step);
      break;
    case Step::Kind::launch:
      launch_graph(place);
      break;
    case Step::Kind::host_access:
      driver_.host_access(ranges(step.reads), ranges(step.writes));
      access(step, first_observations_[place]);
      break;
    case Step::Kind::record:
      EXPECT_EQ(api_.event_record(events_[step.event], streams_[step.stream]), CUDA_SUCCESS);
      break;
    case Step::Kind::wait:
      EXPECT_EQ(api_.stream_wait_event(streams_[step.stream], events_[step.event], 0), CUDA_SUCCESS);
      break;
    case Step::Kind::stream_synchronize:
      EXPECT_EQ(api_.stream_synchronize(streams_[step.stream]), CUDA_SUCCESS);
      break;
    case Step::Kind::event_synchronize:
      EXPECT_EQ(api_.event_synchronize(events_[step.event]), CUDA_SUCCESS);
      break;
    case Step::Kind::device_synchronize:
      synchronize_device(program_->streams[step.stream].device);
      break;
  }
}

simulated::Targets ProgramRun::ready() {
  simulated::Targets ready;
  const std::lock_guard lock(state_.mutex);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const simulated::Operation* first = state_.streams.find(streams_[i], 0)->first;
    if (first == nullptr) continue;
    const std::size_t before = ready.size();
    if (first->work.label.kind == simulated::OperationKind::graph_end) {
      for (const simulated::Target& node : first->predecessors) {
        const simulated::Operation& operation = *node.operation;
        if (operation.id == node.id && !operation.in_stream && operation.open_predecessors == 0) ready.push_back(node);
      }
    }
    if (ready.size() == before) ready.push_back({first, first->id});
  }
  return ready;
}

void ProgramRun::advance(const simulated::Target& next) {
  simulated::DriverState::Lock lock(state_.mutex);
  state_.executor.finish(lock, {next});
}

std::uint64_t ProgramRun::state() const {
  std::uint64_t state = next_;
  for (const std::uint64_t seen : observations_) state = mix(state, seen);
  for (std::size_t i = 0; i < kCells; ++i) state = mix(state, *cell(i));
  for (const simulated::Target& copy : copies_) state = mix(state, copy.operation->id == copy.id ? 1 : 0);
  return state;
}

}  // namespace cistern::testing
