#pragma once

// RaceOrder: which work comes before which, by what the API promises.
//
// Everything is settled when it is submitted: streams, events, waits, the rules of the
// default streams (CUDA Driver API, "Stream synchronization behavior") and the host's
// synchronisations. Work that happens to be finished is ordered by none of that, and stays
// unordered. The host is one component: what one thread has learnt counts as known to all,
// since the driver sees nothing of the program's own synchronisation of threads.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/operation.h"
#include "runtime/simulated/race_clock.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace cistern::simulated {

// When a piece of work happens: its own moment, and all that comes before it.
struct RaceMoment {
  RaceEpoch epoch;
  RaceClock clock;
  [[nodiscard]] bool is_before(const RaceMoment& other) const { return other.clock.covers(epoch); }
};

class RaceOrder {
 public:
  explicit RaceOrder(int devices);

  // --- Work ---
  // What work that is queued on the stream next would come after.
  [[nodiscard]] RaceClock next(const StreamQueue& queue);
  // The same for the stream of that number; of a destroyed one nobody knows more than what its
  // device's destroyed streams had queued.
  [[nodiscard]] RaceClock next(std::uint64_t stream_id, int device) const;
  // Work on the stream: its moment. It comes before all that is queued there later.
  RaceMoment submit(const StreamQueue& queue);
  // A moment of the host's: before all that is submitted later.
  RaceMoment touch_by_host();

  // --- Parts of a graph launch: between the branches there is only what its edges say ---
  // Where the launch begins: pass it to the nodes without predecessors.
  RaceClock begin_launch(const StreamQueue& queue);
  RaceMoment submit_node(const RaceClock& after);
  // What the launch ends with: all of its nodes.
  void end_launch(const StreamQueue& queue, const RaceClock& end);

  // --- Events ---
  void record(const Event* event, const StreamQueue& queue);
  void record(const Event* event, const RaceClock& clock) { events_[event] = clock; }
  // Joins what the event stands for. False if it was never recorded.
  bool join_record(const Event* event, RaceClock* clock) const;
  // False if the event was never recorded.
  bool wait(const StreamQueue& queue, const Event* event);
  void forget(const Event* event) { events_.erase(event); }

  // --- What the host learns ---
  void host_waited_for(const StreamQueue& queue);
  void host_waited_for(const Event* event);
  void host_waited_for_device(int device);
  void host_waited_for(const RaceMoment& moment) { host_.join(moment.clock); }
  [[nodiscard]] const RaceClock& host() const { return host_; }

  // The stream is destroyed: its work remains in the order of its device.
  void forget(const StreamQueue& queue);

 private:
  struct Stream {
    int device = 0;
    bool is_legacy = false;
    bool is_blocking = false;
    std::uint32_t component = 0;
    RaceClock clock;
  };
  struct Retired {  // what destroyed streams of a device had queued
    RaceClock blocking;
    RaceClock all;
  };

  Stream& stream(const StreamQueue& queue);
  [[nodiscard]] RaceClock next(const Stream& stream) const;
  // A component that a moment after `clock` may continue: a closed one of which it knows all,
  // or a new one.
  std::uint32_t open_component(const RaceClock& clock);
  RaceEpoch tick(std::uint32_t component) { return {component, ++latest_[component]}; }
  void join_blocking(RaceClock& clock, int device) const;

  RaceClock host_;
  std::map<std::uint64_t, Stream> streams_;  // by number: handles are used again
  std::vector<Retired> retired_;             // by device
  std::vector<Stream*> legacy_;              // by device; null before its first use
  std::map<const Event*, RaceClock> events_;
  std::vector<std::uint64_t> latest_{0};  // by component
  std::vector<std::uint32_t> closed_;
};

}  // namespace cistern::simulated
