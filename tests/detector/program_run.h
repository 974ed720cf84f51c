#pragma once

// One driver of two devices on which random programs run, and what their accesses see.

#include "tests/detector/random_program.h"

#include <cistern/simulated.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/driver_api.h"
#include "runtime/simulated/operation.h"

namespace cistern::simulated {
struct DriverState;
}

namespace cistern::testing {

class ProgramRun {
 public:
  explicit ProgramRun(RaceMode races);
  ~ProgramRun();
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;

  // Captures the program's graphs. It must live until the next is loaded.
  void load(const RandomProgram& program);
  // Makes the driver ready for the program that is loaded: idle, its memory as at first.
  void begin();
  // Ends it: the streams and events are gone.
  void end();

  // The host's next step; Requires: there is one.
  void advance_host();
  [[nodiscard]] bool host_is_done() const { return next_ == program_->steps.size(); }
  // What the device may complete next: of each stream that has work its next, of a launch each
  // node that waits for nothing.
  [[nodiscard]] simulated::Targets ready();
  // Completes one of these, and what it waits for.
  void advance(const simulated::Target& next);

  // What each step that touches memory saw, of a launch each node: what it read and what it
  // overwrote. 0: not run yet.
  [[nodiscard]] const std::vector<std::uint64_t>& observations() const { return observations_; }
  // Where the program stands: the host's place, what has run, what it saw, and the memory.
  [[nodiscard]] std::uint64_t state() const;
  [[nodiscard]] std::vector<RaceReport> reports() const { return driver_.race_reports(); }

 private:
  struct LoadedGraph {
    CUgraphExec exec = nullptr;
    std::vector<std::size_t> launches;  // of this run: the number of the first node's observation
    std::vector<std::size_t> runs;      // by node
  };

  void use(std::size_t device);
  [[nodiscard]] CUevent make_event(std::size_t device);
  [[nodiscard]] CUstream make_stream(const ProgramStream& stream);
  [[nodiscard]] std::vector<MemoryRange> ranges(const Cells& cells) const;
  [[nodiscard]] CUdeviceptr block_address(std::size_t block) const;
  [[nodiscard]] CUgraphExec capture(std::size_t graph);
  void unload();
  void queue(CUstream stream, const Step& step, std::function<void()> function);
  void launch(std::size_t place);
  void launch_graph(std::size_t place);
  void copy_between_peers(const Step& step);
  void reuse(const Step& step);
  void synchronize_device(std::size_t device);
  // Reads, overwrites and remembers as the observation of this number.
  void access(const Step& step, std::size_t number);
  // The same as a graph's node, whose launches run one after the other.
  void access_as_node(std::size_t graph, std::size_t node);

  SimulatedDriver driver_;
  const DriverApi& api_ = driver_.api();
  simulated::DriverState& state_;
  std::array<CUcontext, kDevices> contexts_{};
  // A piece of memory for the plain cells, one for the blocks, and one of the other device.
  std::uint64_t* plain_ = nullptr;
  std::uint64_t* blocks_ = nullptr;
  std::uint64_t* peer_ = nullptr;

  const RandomProgram* program_ = nullptr;
  std::vector<std::size_t> first_observations_;  // by step
  std::size_t observation_count_ = 0;
  std::vector<LoadedGraph> graphs_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::array<std::size_t, kBlocks> owners_{};
  std::vector<std::uint64_t> observations_;
  simulated::Targets copies_;
  std::size_t next_ = 0;

  [[nodiscard]] std::uint64_t* cell(std::size_t index) const {
    if (index >= kFirstPeerCell) return peer_ + (index - kFirstPeerCell);
    return index < kPlainCells ? plain_ + index : blocks_ + (index - kPlainCells);
  }
};

}  // namespace cistern::testing
