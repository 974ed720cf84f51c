#pragma once

// A second process, for the statements on IPC: this program again, started anew (not forked), with
// two pipes to it.

#include <sys/types.h>

#include <cstddef>
#include <optional>

namespace cistern::conformance {

// Where the child finds the descriptor that it was given.
inline constexpr int kInheritedDescriptor = 10;

class ChildProcess {
 public:
  // `descriptor`, if there is one, is the child's kInheritedDescriptor. Throws std::system_error.
  explicit ChildProcess(std::optional<int> descriptor = std::nullopt);
  // Closes its pipes, which ends it, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // False if the child has gone.
  [[nodiscard]] bool send(const void* bytes, std::size_t count);
  [[nodiscard]] bool receive(void* bytes, std::size_t count);

 private:
  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
};

// Whole reads and writes; false at the end of the pipe.
[[nodiscard]] bool read_all(int descriptor, void* bytes, std::size_t count);
[[nodiscard]] bool write_all(int descriptor, const void* bytes, std::size_t count);

}  // namespace cistern::conformance
