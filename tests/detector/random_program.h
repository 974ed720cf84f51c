#pragma once

// Random programs over streams of two devices, events, blocks, default streams, graphs and the
// host, which are right as they are made, and a way to run them with one of their orderings left out.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cistern::testing {

// Memory of the programs, in cells of 8 bytes: plain memory and two blocks of device 0, then plain
// memory of device 1.
inline constexpr std::size_t kPlainCells = 4;
inline constexpr std::size_t kBlockCells = 2;
inline constexpr std::size_t kBlocks = 2;
inline constexpr std::size_t kPeerCells = 3;
inline constexpr std::size_t kFirstPeerCell = kPlainCells + kBlocks * kBlockCells;
inline constexpr std::size_t kCells = kFirstPeerCell + kPeerCells;
inline constexpr std::size_t kDevices = 2;
// Those of device 0, then those of device 1.
inline constexpr std::size_t kEventsOfDevice = 3;
inline constexpr std::size_t kEvents = kDevices * kEventsOfDevice;

enum class StreamKind : std::uint8_t { legacy, per_thread, blocking, non_blocking };
struct ProgramStream {
  StreamKind kind;
  std::size_t device = 0;
};

// Adjacent cells; none if begin == end.
struct Cells {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] bool overlap(const Cells& other) const {
    return begin < other.end && other.begin < end && begin < end && other.begin < other.end;
  }
};

struct Step {
  enum class Kind : std::uint8_t {
    kernel,       // reads and writes cells on a stream
    reuse,        // gives a block back and takes it for `stream`, whose first work writes it
    peer_copy,    // copies cells of one device to as many of the other, on a stream of either
    launch,       // a graph on a stream
    host_access,  // the host reads and writes cells
    record,       // event on stream
    wait,         // stream for event
    stream_synchronize,
    event_synchronize,
    device_synchronize,  // that of `stream`
  };
  Kind kind = Kind::kernel;
  std::size_t stream = 0;
  std::size_t event = 0;
  std::size_t block = 0;
  std::size_t graph = 0;
  Cells reads = {};
  Cells writes = {};

  [[nodiscard]] bool touches_memory() const { return kind <= Kind::host_access; }
  [[nodiscard]] bool is_on_host() const { return kind == Kind::host_access; }
  [[nodiscard]] bool conflicts_with(const Step& other) const {
    return writes.overlap(other.writes) || writes.overlap(other.reads) || reads.overlap(other.writes);
  }
};

// Captured before the program begins. The first branch forks into the others at once, and they
// join it at the end; in between there are kernels, and records and waits, each of its own event.
struct ProgramGraph {
  std::vector<std::size_t> branches;  // their devices
  std::vector<Step> steps;            // whose `stream` is a branch
};

struct RandomProgram {
  std::vector<ProgramStream> streams;
  std::vector<ProgramGraph> graphs;
  std::vector<Step> steps;
  [[nodiscard]] bool conflict(const Step& a, const Step& b) const;
  [[nodiscard]] std::string to_string() const;

 private:
  [[nodiscard]] std::vector<Step> accesses(const Step& step) const;
};

// Work that conflicts with earlier work is ordered behind it, sometimes more than once; where the
// rules of the default streams order it, or both are launches of one graph, sometimes by that alone.
[[nodiscard]] RandomProgram make_random_program(std::uint64_t seed, std::size_t accesses);
// Without the step at this place.
[[nodiscard]] RandomProgram without(RandomProgram program, std::size_t place);
// Without the step at this place of a graph.
[[nodiscard]] RandomProgram without(RandomProgram program, std::size_t graph, std::size_t place);

}  // namespace cistern::testing
