#pragma once

// How far the training is: a line that is written over on a terminal, elsewhere a line for
// every tenth of the way.

#include <chrono>
#include <cstddef>

namespace cistern::demo {

class Progress {
 public:
  // Writes to standard output.
  explicit Progress(std::size_t steps);
  // Ends the line on a terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` steps are done, the last with this loss.
  void show(std::size_t done, double loss);
  [[nodiscard]] double seconds() const;

 private:
  std::size_t steps_;
  bool terminal_;
  bool line_open_ = false;
  double smoothed_ = 0.0;  // the loss of one batch jumps about
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace cistern::demo
