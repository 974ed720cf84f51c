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
    const std::size_t devices = 1 + pick(kDevices);
    has_peer_ = devices > 1;
    program_.streams.push_back({pick(4) == 0 ? StreamKind::blocking : StreamKind::non_blocking});
    program_.streams.push_back({StreamKind::non_blocking, devices - 1});
    for (const StreamKind kind : {StreamKind::legacy, StreamKind::blocking, StreamKind::per_thread}) {
      if (program_.streams.size() == 4 || pick(3) != 0) continue;
      program_.streams.push_back({kind, kind == StreamKind::blocking ? pick(devices) : 0});
    }
    for (std::size_t graphs = pick(3); graphs > 0; --graphs) program_.graphs.push_back(make_graph(devices));
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

  Cells pick_of(std::size_t first, std::size_t size) {
    const std::size_t begin = pick(size);
    return {first + begin, first + begin + 1 + pick(size - begin)};
  }
  // In the plain memory of a device.
  Cells pick_plain_cells() {
    return has_peer_ && pick(3) == 0 ? pick_of(kFirstPeerCell, kPeerCells) : pick_of(0, kPlainCells);
  }
  // In plain memory or in one block.
  Cells pick_cells() {
    const std::size_t area = pick(kBlocks + 1);
    return area == 0 ? pick_plain_cells() : pick_of(kPlainCells + (area - 1) * kBlockCells, kBlockCells);
  }

  // Blocks that a capture does not know of may be another's by the launch: its graph names none.
  ProgramGraph make_graph(std::size_t devices) {
    ProgramGraph graph;
    graph.branches.push_back(0);
    for (std::size_t others = 1 + pick(2); others > 0; --others) graph.branches.push_back(pick(devices));
    std::size_t events = 0;
    for (std::size_t nodes = 2 + pick(3); nodes > 0; --nodes) {
      Step node;
      node.stream = pick(graph.branches.size());
      const std::size_t how = pick(3);
      if (how != 0) node.reads = pick_plain_cells();
      if (how != 1) node.writes = pick_plain_cells();
      for (std::size_t place = 0, before = graph.steps.size(); place < before; ++place) {
        const Step earlier = graph.steps[place];
        if (earlier.kind != Kind::kernel || earlier.stream == node.stream || !earlier.conflicts_with(node)) continue;
        graph.steps.push_back({.kind = Kind::record, .stream = earlier.stream, .event = events});
        graph.steps.push_back({.kind = Kind::wait, .stream = node.stream, .event = events++});
      }
      graph.steps.push_back(node);
    }
    return graph;
  }

  void add_access() {
    Step step;
    step.stream = pick(program_.streams.size());
    const std::size_t what = pick(14);
    if (what == 0 && program_.streams[step.stream].device == 0) {
      step.kind = Kind::reuse;
      step.block = pick(kBlocks);
      const std::size_t first = kPlainCells + step.block * kBlockCells;
      step.writes = {first, first + kBlockCells};
    } else if (what <= 2 && has_peer_) {
      step.kind = Kind::peer_copy;
      const std::size_t cells = 1 + pick(2);
      const Cells here = {pick(kPlainCells - cells + 1), 0};
      const Cells there = {kFirstPeerCell + pick(kPeerCells - cells + 1), 0};
      const bool leaves = pick(2) == 0;
      const std::size_t from = leaves ? here.begin : there.begin;
      const std::size_t to = leaves ? there.begin : here.begin;
      step.reads = {from, from + cells};
      step.writes = {to, to + cells};
    } else if (what <= 6 && !program_.graphs.empty()) {
      step.kind = Kind::launch;
      step.graph = pick(program_.graphs.size());
    } else {
      if (what >= 12) step.kind = Kind::host_access;
      const std::size_t how = pick(3);
      if (how != 0) step.reads = pick_cells();
      if (how != 1) step.writes = pick_cells();
    }
    const std::size_t before = program_.steps.size();
    for (std::size_t place = 0; place < before; ++place) {
      const Step earlier = program_.steps[place];
      if (earlier.touches_memory() && program_.conflict(earlier, step)) order(earlier, place, step);
    }
    program_.steps.push_back(step);
    // Nothing sees what a copy reads and overwrites but a kernel that takes it up and changes it.
    if (step.kind == Kind::peer_copy)
      program_.steps.push_back({.stream = step.stream, .reads = step.writes, .writes = step.writes});
    if (!step.is_on_host() && pick(3) == 0) record(step.stream, pick_event(step.stream));
  }

  void order(const Step& earlier, std::size_t place, const Step& later) {
    if (earlier.is_on_host() || (!later.is_on_host() && earlier.stream == later.stream)) return;
    if (are_ordered_by_rule(earlier, later) && pick(2) == 0) return;
    const std::size_t how = pick(later.is_on_host() ? 4 : 10);
    if (how == 0) {
      program_.steps.push_back({.kind = Kind::device_synchronize, .stream = earlier.stream});
    } else if (how == 1) {
      program_.steps.push_back({.kind = Kind::stream_synchronize, .stream = earlier.stream});
    } else {
      const std::size_t event = event_behind(earlier.stream, place);
      const bool by_host = later.is_on_host() || how == 2;
      program_.steps.push_back(by_host ? Step{.kind = Kind::event_synchronize, .event = event}
                                       : Step{.kind = Kind::wait, .stream = later.stream, .event = event});
    }
  }

  [[nodiscard]] bool are_ordered_by_rule(const Step& earlier, const Step& later) const {
    if (later.is_on_host()) return false;
    if (earlier.kind == Kind::launch && later.kind == Kind::launch && earlier.graph == later.graph) return true;
    return are_ordered_by_rule(program_.streams[earlier.stream], program_.streams[later.stream]);
  }
  static bool are_ordered_by_rule(const ProgramStream& a, const ProgramStream& b) {
    const auto is_blocking = [](const ProgramStream& stream) {
      return stream.kind == StreamKind::blocking || stream.kind == StreamKind::per_thread;
    };
    return a.device == b.device &&
           ((a.kind == StreamKind::legacy && is_blocking(b)) || (is_blocking(a) && b.kind == StreamKind::legacy));
  }

  // An event that stands behind the step: one that does already, or a new record.
  std::size_t event_behind(std::size_t stream, std::size_t place) {
    for (std::size_t event = 0; event < kEvents; ++event) {
      const auto& known = events_[event];
      if (known && known->stream == stream && known->place > place && pick(4) != 0) return event;
    }
    const std::size_t event = pick_event(stream);
    record(stream, event);
    return event;
  }

  // An event can be recorded on its device's streams alone.
  std::size_t pick_event(std::size_t stream) {
    return program_.streams[stream].device * kEventsOfDevice + pick(kEventsOfDevice);
  }

  void record(std::size_t stream, std::size_t event) {
    events_[event] = Record{stream, program_.steps.size()};
    program_.steps.push_back({.kind = Kind::record, .stream = stream, .event = event});
  }

  std::mt19937_64 random_;
  RandomProgram program_;
  bool has_peer_ = false;
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
    case Kind::peer_copy:
      return "peer copy" + stream + cells;
    case Kind::launch:
      return "launch" + stream + " graph " + std::to_string(step.graph);
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
      return "synchronize device of" + stream;
  }
  return "";
}

std::string text_of(const std::vector<Step>& steps) {
  std::string text;
  for (std::size_t i = 0; i < steps.size(); ++i) text += std::to_string(i) + ": " + text_of(steps[i]) + "\n";
  return text;
}

}  // namespace

std::vector<Step> RandomProgram::accesses(const Step& step) const {
  return step.kind == Kind::launch ? graphs[step.graph].steps : std::vector<Step>{step};
}

bool RandomProgram::conflict(const Step& a, const Step& b) const {
  for (const Step& one : accesses(a)) {
    for (const Step& other : accesses(b)) {
      if (one.conflicts_with(other)) return true;
    }
  }
  return false;
}

std::string RandomProgram::to_string() const {
  constexpr std::array names{"legacy", "per-thread", "blocking", "non-blocking"};
  std::string text;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    text += "s" + std::to_string(i) + ": " + names[static_cast<std::size_t>(streams[i].kind)] + " on device " +
            std::to_string(streams[i].device) + "\n";
  }
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    text += "graph " + std::to_string(i) + ", its branches on devices";
    for (const std::size_t device : graphs[i].branches) text += " " + std::to_string(device);
    text += "\n" + text_of(graphs[i].steps);
  }
  return text + "program\n" + text_of(steps);
}

RandomProgram make_random_program(std::uint64_t seed, std::size_t accesses) { return Maker(seed).make(accesses); }

RandomProgram without(RandomProgram program, std::size_t place) {
  program.steps.erase(program.steps.begin() + static_cast<std::ptrdiff_t>(place));
  return program;
}

RandomProgram without(RandomProgram program, std::size_t graph, std::size_t place) {
  std::vector<Step>& steps = program.graphs[graph].steps;
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(place));
  return program;
}

}  // namespace cistern::testing
