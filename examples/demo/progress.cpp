#include "progress.h"

#include <unistd.h>

#include <cstdio>

namespace cistern::demo {

Progress::Progress(std::size_t steps) : steps_(steps), terminal_(isatty(STDOUT_FILENO) == 1) {}

Progress::~Progress() {
  if (line_open_) std::fputs("\n", stdout);
}

void Progress::show(std::size_t done, double loss) {
  smoothed_ = done <= 1 ? loss : 0.9 * smoothed_ + 0.1 * loss;
  const bool tenth = done * 10 / steps_ != (done - 1) * 10 / steps_;
  if (!terminal_ && !tenth) return;
  std::printf("%s  step %zu of %zu: training loss %.3f nats a character, %.1f s%s", terminal_ ? "\r" : "", done, steps_,
              smoothed_, seconds(), terminal_ ? " " : "\n");
  std::fflush(stdout);
  line_open_ = terminal_;
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace cistern::demo
