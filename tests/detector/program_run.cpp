#include "tests/detector/program_run.h"

#include <gtest/gtest.h>

#include <chrono>

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
  options.capacity_bytes = std::size_t{8} << 20;
  options.races = races;
  return options;
}

}  // namespace

ProgramRun::ProgramRun(RaceMode races) : driver_(small_driver(races)) {
  CUcontext context = nullptr;
  EXPECT_EQ(api_.init(0), CUDA_SUCCESS);
  EXPECT_EQ(api_.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(api_.ctx_set_current(context), CUDA_SUCCESS);
  const auto allocate = [&](std::size_t cells) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(api_.mem_alloc(&memory, cells * kCellBytes), CUDA_SUCCESS);
    return reinterpret_cast<std::uint64_t*>(memory);
  };
  plain_ = allocate(kPlainCells);
  blocks_ = allocate(kBlocks * kBlockCells);
}

CUstream ProgramRun::make_stream(StreamKind kind) {
  if (kind == StreamKind::legacy) return nullptr;
  if (kind == StreamKind::per_thread) return CU_STREAM_PER_THREAD;
  CUstream stream = nullptr;
  const unsigned flags = kind == StreamKind::blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  EXPECT_EQ(api_.stream_create_with_priority(&stream, flags, 0), CUDA_SUCCESS);
  return stream;
}

CUdeviceptr ProgramRun::block_address(std::size_t block) const {
  return reinterpret_cast<CUdeviceptr>(blocks_ + block * kBlockCells);
}

void ProgramRun::begin(const RandomProgram& program) {
  program_ = &program;
  next_ = 0;
  for (std::size_t i = 0; i < kCells; ++i) *cell(i) = i + 1;
  for (const StreamKind kind : program.streams) streams_.push_back(make_stream(kind));
  for (std::size_t i = 0; i < kEvents; ++i) {
    events_.push_back(nullptr);
    EXPECT_EQ(api_.event_create(&events_.back(), CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  for (std::size_t block = 0; block < kBlocks; ++block) {
    owners_[block] = 0;
    api_.note_allocate(block_address(block), kBlockCells * kCellBytes, streams_[0]);
  }
  observations_.assign(program.steps.size(), 0);
  queued_.assign(program.streams.size(), 0);
}

void ProgramRun::end() {
  EXPECT_EQ(api_.ctx_synchronize(), CUDA_SUCCESS);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    api_.note_free(block_address(block), kBlockCells * kCellBytes, streams_[owners_[block]]);
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (program_->streams[i] >= StreamKind::blocking) driver_.destroy_stream(streams_[i]);
  }
  for (const CUevent event : events_) EXPECT_EQ(api_.event_destroy(event), CUDA_SUCCESS);
  streams_.clear();
  events_.clear();
  driver_.clear_race_reports();
}

std::vector<MemoryRange> ProgramRun::ranges(const Cells& cells) const {
  if (cells.begin == cells.end) return {};
  return {{cell(cells.begin), (cells.end - cells.begin) * kCellBytes}};
}

void ProgramRun::access(std::size_t place) {
  const Step& step = program_->steps[place];
  std::uint64_t seen = mix(place, 1);
  for (std::size_t i = step.reads.begin; i < step.reads.end; ++i) seen = mix(seen, *cell(i));
  const std::uint64_t written = mix(seen, place);
  for (std::size_t i = step.writes.begin; i < step.writes.end; ++i) {
    seen = mix(seen, *cell(i));
    *cell(i) = mix(written, i);
  }
  observations_[place] = seen;
  if (!step.is_on_host()) --queued_[step.stream];
}

void ProgramRun::launch(std::size_t place) {
  const Step& step = program_->steps[place];
  ++queued_[step.stream];
  driver_.launch(streams_[step.stream], ranges(step.reads), ranges(step.writes), std::chrono::nanoseconds(1),
                 [this, place] { access(place); });
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
    case Step::Kind::host_access:
      driver_.host_access(ranges(step.reads), ranges(step.writes));
      access(place);
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
      EXPECT_EQ(api_.ctx_synchronize(), CUDA_SUCCESS);
      break;
  }
}

std::uint64_t ProgramRun::state() const {
  std::uint64_t state = next_;
  for (const std::uint64_t seen : observations_) state = mix(state, seen);
  for (std::size_t i = 0; i < kCells; ++i) state = mix(state, *cell(i));
  return state;
}

}  // namespace cistern::testing
