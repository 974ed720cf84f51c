#include "tests/detector/random_program.h"

#include <array>
#include <optional>
#include <random>
#include <utility>

namespace cistern::testing {
namespace {

using Kind = Step::Kind;

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  RandomProgram make(std::size_t accesses) {
    program_.streams.push_back(pick(4) == 0 ? StreamKind::blocking : StreamKind::non_blocking);
    program_.streams.push_back(StreamKind::non_blocking);
    for (const StreamKind kind : {StreamKind::legacy, StreamKind::blocking, StreamKind::per_thread}) {
      if (program_.streams.size() < 4 && pick(3) == 0) program_.streams.push_back(kind);
    }
    for (std::size_t i = 0; i < accesses; ++i) add_access();
    return std::move(program_);
  }

 private:
  // Where an event stands: nothing before it was recorded.
  struct Record {
    std::size_t stream;
    std::size_t place;
  };

  std::size_t pick(std::size_t choices) { return static_cast<std::size_t>(random_() % choices); }

  // In the plain memory or in one block.
  Cells pick_cells() {
    const std::size_t area = pick(kBlocks + 1);
    const std::size_t first = area == 0 ? 0 : kPlainCells + (area - 1) * kBlockCells;
    const std::size_t size = area == 0 ? kPlainCells : kBlockCells;
    const std::size_t begin = pick(size);
    return {first + begin, first + begin + 1 + pick(size - begin)};
  }

  void add_access() {
    Step step;
    step.stream = pick(program_.streams.size());
    const std::size_t what = pick(10);
    if (what == 0) {
      step.kind = Kind::reuse;
      step.block = pick(kBlocks);
      const std::size_t first = kPlainCells + step.block * kBlockCells;
      step.writes = {first, first + kBlockCells};
    } else {
      if (what <= 2) step.kind = Kind::host_access;
      const std::size_t how = pick(3);
      if (how != 0) step.reads = pick_cells();
      if (how != 1) step.writes = pick_cells();
    }
    const std::size_t before = program_.steps.size();
    for (std::size_t place = 0; place < before; ++place) {
      const Step earlier = program_.steps[place];
      if (earlier.touches_memory() && earlier.conflicts_with(step)) order(earlier, place, step);
    }
    program_.steps.push_back(step);
    if (!step.is_on_host() && pick(3) == 0) record(step.stream, pick(kEvents));
  }

  void order(const Step& earlier, std::size_t place, const Step& later) {
    if (earlier.is_on_host() || (!later.is_on_host() && earlier.stream == later.stream)) return;
    if (!later.is_on_host() && are_ordered_by_rule(earlier.stream, later.stream) && pick(2) == 0) return;
    const std::size_t how = pick(later.is_on_host() ? 4 : 10);
    if (how == 0) {
      program_.steps.push_back({.kind = Kind::device_synchronize});
    } else if (how == 1) {
      program_.steps.push_back({.kind = Kind::stream_synchronize, .stream = earlier.stream});
    } else {
      const std::size_t event = event_behind(earlier.stream, place);
      const bool by_host = later.is_on_host() || how == 2;
      program_.steps.push_back(by_host ? Step{.kind = Kind::event_synchronize, .event = event}
                                       : Step{.kind = Kind::wait, .stream = later.stream, .event = event});
    }
  }

  [[nodiscard]] bool are_ordered_by_rule(std::size_t a, std::size_t b) const {
    const auto is_legacy = [&](std::size_t stream) { return program_.streams[stream] == StreamKind::legacy; };
    const auto is_blocking = [&](std::size_t stream) {
      return program_.streams[stream] == StreamKind::blocking || program_.streams[stream] == StreamKind::per_thread;
    };
    return (is_legacy(a) && is_blocking(b)) || (is_blocking(a) && is_legacy(b));
  }

  // An event that stands behind the step: one that does already, or a new record.
  std::size_t event_behind(std::size_t stream, std::size_t place) {
    for (std::size_t event = 0; event < kEvents; ++event) {
      const auto& known = events_[event];
      if (known && known->stream == stream && known->place > place && pick(4) != 0) return event;
    }
    const std::size_t event = pick(kEvents);
    record(stream, event);
    return event;
  }

  void record(std::size_t stream, std::size_t event) {
    events_[event] = Record{stream, program_.steps.size()};
    program_.steps.push_back({.kind = Kind::record, .stream = stream, .event = event});
  }

  std::mt19937_64 random_;
  RandomProgram program_;
  std::array<std::optional<Record>, kEvents> events_;
};

std::string text_of(const char* word, const Cells& cells) {
  if (cells.begin == cells.end) return "";
  return std::string(" ") + word + " " + std::to_string(cells.begin) + "-" + std::to_string(cells.end - 1);
}

std::string text_of(const Step& step) {
  const std::string stream = " s" + std::to_string(step.stream);
  const std::string event = " e" + std::to_string(step.event);
  const std::string cells = text_of("reads", step.reads) + text_of("writes", step.writes);
  switch (step.kind) {
    case Kind::kernel:
      return "kernel" + stream + cells;
    case Kind::reuse:
      return "reuse" + stream + " block " + std::to_string(step.block) + cells;
    case Kind::host_access:
      return "host" + cells;
    case Kind::record:
      return "record" + event + stream;
    case Kind::wait:
      return "wait" + stream + event;
    case Kind::stream_synchronize:
      return "synchronize" + stream;
    case Kind::event_synchronize:
      return "synchronize" + event;
    case Kind::device_synchronize:
      return "synchronize all";
  }
  return "";
}

}  // namespace

std::string RandomProgram::to_string() const {
  constexpr std::array names{"legacy", "per-thread", "blocking", "non-blocking"};
  std::string text;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    text += "s" + std::to_string(i) + ": " + names[static_cast<std::size_t>(streams[i])] + "\n";
  }
  for (std::size_t i = 0; i < steps.size(); ++i) text += std::to_string(i) + ": " + text_of(steps[i]) + "\n";
  return text;
}

RandomProgram make_random_program(std::uint64_t seed, std::size_t accesses) { return Maker(seed).make(accesses); }

RandomProgram without(RandomProgram program, std::size_t place) {
  program.steps.erase(program.steps.begin() + static_cast<std::ptrdiff_t>(place));
  return program;
}

}  // namespace cistern::testing
