#pragma once

// One driver on which random programs run, and what their accesses see.

#include "tests/detector/random_program.h"

#include <cistern/simulated.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/driver_api.h"

namespace cistern::testing {

class ProgramRun {
 public:
  explicit ProgramRun(RaceMode races);
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;

  // Makes the driver ready for a program: idle, its memory as at first.
  void begin(const RandomProgram& program);
  // Ends it: the streams and events are gone.
  void end();

  // The host's next step; Requires: there is one.
  void advance_host();
  [[nodiscard]] bool host_is_done() const { return next_ == program_->steps.size(); }
  // The device's next work of a stream. Requires: has_work(stream).
  void advance_stream(std::size_t stream) { driver_.step(streams_[stream]); }
  [[nodiscard]] bool has_work(std::size_t stream) const { return queued_[stream] != 0; }

  // What each step that touches memory saw: what it read and what it overwrote. 0: not run yet.
  [[nodiscard]] const std::vector<std::uint64_t>& observations() const { return observations_; }
  // Where the program stands: the host's place, what has run, what it saw, and the memory.
  [[nodiscard]] std::uint64_t state() const;
  [[nodiscard]] std::vector<RaceReport> reports() const { return driver_.race_reports(); }

 private:
  [[nodiscard]] CUstream make_stream(StreamKind kind);
  [[nodiscard]] std::vector<MemoryRange> ranges(const Cells& cells) const;
  [[nodiscard]] CUdeviceptr block_address(std::size_t block) const;
  void launch(std::size_t place);
  void reuse(const Step& step);
  // Reads, overwrites and remembers.
  void access(std::size_t place);

  SimulatedDriver driver_;
  const DriverApi& api_ = driver_.api();
  // A piece of memory for the plain cells, and one for the blocks.
  std::uint64_t* plain_ = nullptr;
  std::uint64_t* blocks_ = nullptr;

  const RandomProgram* program_ = nullptr;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::array<std::size_t, kBlocks> owners_{};
  std::vector<std::uint64_t> observations_;
  std::vector<std::size_t> queued_;  // work that has not run, by stream
  std::size_t next_ = 0;

  [[nodiscard]] std::uint64_t* cell(std::size_t index) const {
    return index < kPlainCells ? plain_ + index : blocks_ + (index - kPlainCells);
  }
};

}  // namespace cistern::testing
