#pragma once

// What the race detector of the simulated driver finds (see simulated.h and
// docs/race-detector.md), as values.

#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cistern {

// What becomes of a find.
enum class RaceMode {
  off,      // nothing is looked for, and nothing is paid
  collect,  // kept as values alone, for tests: nothing is printed, the exit status stays
  report,   // printed on standard error, and a process that would exit with 0 exits with 66
  abort,    // the first one is printed, then the process aborts
};
// The exit status of a process in which RaceMode::report found anything.
inline constexpr int kRaceExitStatus = 66;

enum class RaceKind {
  data_race,              // two operations touch the same bytes in no order, and one writes
  reuse,                  // memory handed out while earlier work on it is unordered with its new stream
  free_in_use,            // memory freed while work on it may run, and nobody was told of that work
  dead_memory,            // access to memory that is freed, unmapped, or not handed out to anybody
  out_of_bounds,          // access that begins in a block and runs past its end
  foreign_memory,         // access to memory of another device or driver, without leave
  host_race,              // the host reads or writes memory before the work on it is known to be done
  idle_wait,              // a wait that orders nothing: its event was never recorded
  callback_calls_driver,  // a host function or callback calls the driver
  invalid_free,           // a free of what is no live block or allocation: a second free, say
  lost_join,              // a capture ends with forked work that never joined it
};
// "data race", "reuse before earlier work is done", …
[[nodiscard]] CISTERN_EXPORT const char* to_string(RaceKind kind) noexcept;

// Where in the program: return addresses, innermost first. Symbols are looked up when asked.
struct CallStack {
  std::vector<const void*> frames;
  // One line a frame.
  [[nodiscard]] CISTERN_EXPORT std::string to_string() const;
};

// One of the two that conflict.
struct RaceSide {
  std::string operation;  // "kernel", "copy", "fill", "host access", "allocation", "free", …
  std::string name;       // as launch was told; else empty
  int device = -1;        // -1: the host
  StreamHandle stream = nullptr;
  std::uint64_t stream_id = 0;  // as cuStreamGetId has it for streams that were created; 0: the host
  bool writes = false;
  CallStack stack;
  CallStack captured;  // of work that a graph launched: where the capture took it
};

// The block, or allocation of the driver's, that holds the bytes.
struct RaceBlock {
  const void* address = nullptr;
  std::size_t bytes = 0;
  std::string origin;  // "block", "cuMemAlloc", …
  bool is_live = true;
  CallStack allocated;
  CallStack freed;  // empty while it is live
};

struct RaceReport {
  RaceKind kind = RaceKind::data_race;
  RaceSide earlier;               // in the order of submission
  std::optional<RaceSide> later;  // none where one call alone is the mistake
  const void* address = nullptr;  // the first of the bytes in conflict
  std::size_t bytes = 0;
  std::optional<RaceBlock> block;
  std::uint64_t repeats = 0;  // how often the same pair of places was found again
  // What is printed.
  [[nodiscard]] CISTERN_EXPORT std::string to_string() const;
};

}  // namespace cistern
