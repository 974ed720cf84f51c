#include "tools/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

namespace cistern {
namespace {

// A terminal need not be written to more often.
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;
constexpr const char* kEraseLine = "\r\x1b[2K";

}  // namespace

Progress::Progress(std::ostream& err, bool enabled, std::chrono::milliseconds quiet)
    : err_(err), enabled_(enabled), quiet_(quiet) {}

Progress::~Progress() { clear(); }

void Progress::start(std::string_view label, std::size_t index, std::size_t count) {
  label_ = count > 1 ? fmt::format("[{}/{}] {}", index + 1, count, label) : std::string(label);
}

void Progress::update(std::string_view phase, double share) {
  if (!enabled_) return;
  const auto now = Clock::now();
  if (now - started_ < quiet_ || (drawn_ && now - last_drawn_ < kRedraw)) return;
  const int filled = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * kBarWidth));
  err_ << kEraseLine
       << fmt::format("{} [{:#<{}}{:.<{}}] {:3.0f}% {}", label_, "", filled, "", kBarWidth - filled,
                      100 * std::clamp(share, 0.0, 1.0), phase)
       << std::flush;
  drawn_ = true;
  last_drawn_ = now;
}

void Progress::clear() {
  if (!drawn_) return;
  drawn_ = false;
  err_ << kEraseLine << std::flush;
}

}  // namespace cistern
