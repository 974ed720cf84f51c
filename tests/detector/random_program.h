#pragma once

// Random programs over streams, events, blocks, default streams and the host, which are
// right as they are made, and a way to run them with one of their orderings left out.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cistern::testing {

// Memory of the programs, in cells of 8 bytes: plain memory, then two blocks.
inline constexpr std::size_t kPlainCells = 4;
inline constexpr std::size_t kBlockCells = 2;
inline constexpr std::size_t kBlocks = 2;
inline constexpr std::size_t kCells = kPlainCells + kBlocks * kBlockCells;
inline constexpr std::size_t kEvents = 3;

enum class StreamKind : std::uint8_t { legacy, per_thread, blocking, non_blocking };

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
    host_access,  // the host reads and writes cells
    record,       // event on stream
    wait,         // stream for event
    stream_synchronize,
    event_synchronize,
    device_synchronize,
  };
  Kind kind = Kind::kernel;
  std::size_t stream = 0;
  std::size_t event = 0;
  std::size_t block = 0;
  Cells reads = {};
  Cells writes = {};

  [[nodiscard]] bool touches_memory() const { return kind <= Kind::host_access; }
  [[nodiscard]] bool is_on_host() const { return kind == Kind::host_access; }
  [[nodiscard]] bool conflicts_with(const Step& other) const {
    return writes.overlap(other.writes) || writes.overlap(other.reads) || reads.overlap(other.writes);
  }
};

struct RandomProgram {
  std::vector<StreamKind> streams;
  std::vector<Step> steps;
  [[nodiscard]] std::string to_string() const;
};

// Work that conflicts with earlier work is ordered behind it, sometimes more than once; between
// streams that order each other by the rules of the default streams, sometimes by them alone.
[[nodiscard]] RandomProgram make_random_program(std::uint64_t seed, std::size_t accesses);
// Without the step at this place.
[[nodiscard]] RandomProgram without(RandomProgram program, std::size_t place);

}  // namespace cistern::testing
