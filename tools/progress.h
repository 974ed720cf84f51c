#pragma once

// A progress bar on one line of a terminal, for work that takes longer than a moment.
//
// Says nothing when it is off. Not thread-safe.

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>

namespace cistern {

class Progress {
 public:
  // `enabled`: `err` is a terminal. Work that ends within `quiet` shows nothing.
  Progress(std::ostream& err, bool enabled, std::chrono::milliseconds quiet = std::chrono::seconds(1));
  // Erases the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Starts a piece of work, e.g. one trace: number `index` of `count`.
  void start(std::string_view label, std::size_t index, std::size_t count);
  // What is being done now, and the share of the whole piece that is done (0..1).
  void update(std::string_view phase, double share);
  // Erases the bar, so that a result can be printed; the next update draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::ostream& err_;
  bool enabled_;
  std::chrono::milliseconds quiet_;
  bool drawn_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_drawn_{};
  std::string label_;
};

}  // namespace cistern
