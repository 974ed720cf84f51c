#pragma once

// Executor: runs what the streams have queued, in any order that their rules allow.
//
// An operation waits for what precedes it: its stream's earlier work, the events that its
// stream waits for, and by the rules of the default streams (CUDA driver API, "Stream
// synchronization behavior") the legacy stream's or all blocking streams'. Marks (records and
// waits of events, ends of graphs) take no step: they are done with the last that they wait for.
//
// Two drives. Stepped: an operation runs when somebody waits for it or steps, on that thread,
// one at a time. Free-running: workers run what is ready at once, as many at a time as are
// ready, of each stream one (of a graph, as many as its edges allow).
//
// Time is virtual. An operation starts at the latest end of what it waits for, and no earlier
// than the clock stood when it was queued. Stepped, the clock is the latest end of anything that
// has run; free-running, of what the host has waited for or found done: so that times depend
// on the program and not on how fast the workers are.
//
// Thread safety: members that take a lock need it held, let go of it while an operation's
// function runs and while they wait for another thread's, and return with it held. The
// other members need it held too, except stop, which needs it free.

#include <cistern/simulated.h>

#include "runtime/simulated/foreign_records.h"
#include "runtime/simulated/inside_operation.h"
#include "runtime/simulated/operation.h"
#include "runtime/simulated/workers.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

namespace cistern::simulated {

// One node of a graph that is launched: work, or the record of or wait for an event.
struct GraphOperation {
  Work work = {};
  std::vector<std::size_t> after = {};  // the nodes that it comes after: earlier ones, by place
  int device = -1;                      // where it runs; -1: on the device of the stream
  std::optional<int> priority = {};     // if not the stream's
  Event* records = nullptr;             // the event that it records; work.function is empty then
  const Event* waits_for = nullptr;     // waits for the latest record made before the launch
};

class Executor {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // `mutex` is the driver's lock. Throws std::system_error if a free-running drive gets no thread.
  Executor(int devices, const void* driver, Drive drive, std::mutex& mutex);
  // Takes no further work, and waits for the functions that run.
  void stop();

  [[nodiscard]] DeviceQueues& device(int index) { return devices_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const DeviceQueues& device(int index) const { return devices_[static_cast<std::size_t>(index)]; }

  // Behind what precedes it in the stream, and behind the targets that are not done.
  Target queue_work(StreamQueue& stream, Work work, const Targets& behind = {});
  // The operations that work queued on the stream now comes after, by their ids.
  [[nodiscard]] std::unordered_set<std::uint64_t> preceding(const StreamQueue& stream) const;
  void record(Event& event, StreamQueue& stream);
  void wait_event(StreamQueue& stream, const Event& event);
  // Queues the nodes of a graph's launch as operations of the stream. They run in any order
  // that their edges allow, branches at the same virtual time; all wait for what precedes them in the
  // stream and for `behind` (an earlier launch of the same executable graph, say), and later
  // work of the stream waits for all of them. An event is recorded, as seen by queries and
  // waits, from the moment of the launch. Returns the mark that is done when all nodes are, for a
  // later launch's `behind`: targets that are done already are no predecessors.
  // A node on another device than the stream's fails its own device, and is waited for with
  // the stream's. `queued`, if given, gets what the nodes became.
  Target queue_graph(StreamQueue& stream, std::vector<GraphOperation> nodes, const Targets& behind = {},
                     Targets* queued = nullptr);
  // Other processes see the event from now on: also the record that is pending.
  void share(Event& event, std::shared_ptr<SharedEvent> shared);
  // Before the event's place is used otherwise: a pending record then completes nothing.
  static void forget(Event& event);

  // Whether all work is done that a wait for the stream, or for the device, would wait for.
  [[nodiscard]] bool is_idle(const StreamQueue& stream) const;
  [[nodiscard]] bool is_idle(int device) const { return this->device(device).unfinished == 0; }
  // Whether all is done, seen from the host: the event lag has passed too.
  [[nodiscard]] bool is_complete(const Event& event) const;
  [[nodiscard]] bool has_lagging_records(int device) const;
  [[nodiscard]] bool has_lagging_records(const StreamQueue& stream) const;
  // The host has found what is done there to be done: later work starts no earlier.
  void observe(const StreamQueue& stream) { clock_ = std::max(clock_, stream.latest_end); }
  void observe(const Event& event) { clock_ = std::max(clock_, event.time); }
  void observe(int device) { clock_ = std::max(clock_, this->device(device).latest_end); }

  [[nodiscard]] Targets targets(const StreamQueue& stream) const;
  [[nodiscard]] Targets targets(const Event& event) const;
  [[nodiscard]] Targets targets(int device) const;
  // Waits until the targets are done. Stepped, runs what they need.
  void finish(Lock& lock, const Targets& targets);
  // Waits until everything is done that is queued by then, on all devices.
  void finish_all(Lock& lock);
  // Returns when no function runs on another thread that was queued before the call and may touch
  // device memory: callbacks and host functions may not, and may block for long.
  void wait_for_running(Lock& lock);
  // Completes every event of the device that was recorded so far and whose work is done.
  void complete_lagging_records(int device);

  // Stepped only. Runs the first operation that is ready: false if there is none.
  bool step(Lock& lock);
  // Runs the stream's next operation and what it needs: false if there is none. Of a graph,
  // its first node that is ready; if none is, its first.
  bool step(Lock& lock, const StreamQueue& stream);

  [[nodiscard]] Drive drive() const noexcept { return drive_; }
  void tick() { ++ticks_; }
  void set_event_lag(std::uint64_t ticks) { event_lag_ = ticks; }

 private:
  using Needed = std::unordered_set<std::uint64_t>;

  // --- Queueing (executor.cpp) ---
  // Whether work queued on the stream now would wait for nothing.
  [[nodiscard]] bool nothing_precedes(const StreamQueue& stream) const;
  // The latest end of what has been done before such work, and the clock.
  [[nodiscard]] Nanoseconds earliest_start(const StreamQueue& stream) const;
  // A new operation that is held back until release.
  Operation& make_operation(StreamQueue& stream);
  Operation& make_mark(StreamQueue& stream, OperationKind kind);
  Operation& make_graph_node(StreamQueue& stream, GraphOperation& node);
  void attach_record(Operation& mark, Event& event, StreamQueue& stream);
  static void tell_of(Operation& mark, const Event& event);
  void wait_for_record(Operation& mark, const Event& event);
  // What waited for other processes no longer does.
  void let_go(const Targets& held);
  void order_behind_stream(Operation& operation);
  static void depend(Operation& operation, Operation* predecessor);
  void append_to_stream(Operation& operation);
  // Lets it run once its predecessors are done.
  void release(Operation& operation);

  // --- Completion (executor.cpp) ---
  void complete(Operation& operation);
  void retire(Operation& operation);
  void recycle(Operation& operation);
  void note_lag(Event& event, StreamQueue& stream);
  [[nodiscard]] bool is_lagging(const RecordLag& lag, int device) const;

  // --- Driving (executor_drive.cpp) ---
  [[nodiscard]] bool runs_first(const Operation* a, const Operation* b) const;
  void insert_ready(Operation& operation);
  void erase_ready(const Operation& operation);
  // Has the workers take what is ready, but for what this thread takes itself.
  void engage_workers(std::size_t taken_here = 0);
  void run(Lock& lock, Operation& operation);
  [[nodiscard]] CUresult call(Lock& lock, Operation& operation);
  bool run_one(Lock& lock);
  // The ids of the targets and of all that they wait for.
  [[nodiscard]] static Needed needed_for(const Targets& targets);
  [[nodiscard]] Operation* first_ready(const Needed& needed) const;
  [[nodiscard]] Target next_of(const StreamQueue& stream) const;

  std::vector<DeviceQueues> devices_;
  const void* driver_;
  const Drive drive_;
  std::deque<Operation> operations_;
  std::vector<Operation*> idle_operations_;
  std::vector<Operation*> ready_;  // sorted: the first to run is the last
  std::vector<const Operation*> running_;
  std::vector<Operation*> done_;  // what complete has still to retire
  std::condition_variable ran_;
  std::uint64_t next_id_ = 1;
  Nanoseconds clock_{};
  std::uint64_t ticks_ = 0;
  std::uint64_t event_lag_ = 0;
  std::uint64_t records_ = 0;
  std::mutex& mutex_;
  ForeignRecords foreign_;
  std::unique_ptr<Workers> workers_;  // of the free-running drive
};

}  // namespace cistern::simulated
