#pragma once

// Executor: the stepped drive. Operations wait for what precedes them; one runs when
// somebody waits for it or steps; time is virtual.
//
// An operation starts at the latest end of what it waits for, and no earlier than the
// clock stood when it was queued. The clock is the latest end of anything that has run.
// Marks take no step: they are done with the last operation that they wait for.
// Thread safety: members that take a lock need it held, let go of it while an operation's
// function runs and while they wait for another thread's, and return with it held. The
// other members need it held too. One function runs at a time.

#include "runtime/simulated/operation.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <unordered_set>
#include <vector>

namespace cistern::simulated {

// Whether an operation of `driver` (any address that names it) runs on this thread.
[[nodiscard]] bool is_inside_operation(const void* driver) noexcept;

class Executor {
 public:
  using Lock = std::unique_lock<std::mutex>;
  // Operations as they were queued: still the same while the id is.
  struct Target {
    const Operation* operation;
    std::uint64_t id;
  };
  using Targets = std::vector<Target>;

  Executor(int devices, const void* driver);

  [[nodiscard]] DeviceQueues& device(int index) { return devices_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const DeviceQueues& device(int index) const { return devices_[static_cast<std::size_t>(index)]; }

  // Queues work. What `function` returns, if not CUDA_SUCCESS, is the device's failure.
  void queue_work(StreamQueue& stream, Nanoseconds duration, std::function<CUresult()> function);
  void record(Event& event, StreamQueue& stream);
  void wait_event(StreamQueue& stream, const Event& event);
  // Before the event's place is used otherwise: a pending record then completes nothing.
  static void forget(Event& event);

  // Whether all work is done that a wait for the stream, or for the device, would wait for.
  [[nodiscard]] bool is_idle(const StreamQueue& stream) const;
  [[nodiscard]] bool is_idle(int device) const { return this->device(device).unfinished == 0; }
  // Whether all is done, seen from the host: the event lag has passed too.
  [[nodiscard]] bool is_complete(const Event& event) const;
  [[nodiscard]] bool has_lagging_records(int device) const;
  [[nodiscard]] bool has_lagging_records(const StreamQueue& stream) const;

  [[nodiscard]] Targets targets(const StreamQueue& stream) const;
  [[nodiscard]] Targets targets(const Event& event) const;
  [[nodiscard]] Targets targets(int device) const;
  // Runs what the targets need, and waits for what other threads run, until they are done.
  void finish(Lock& lock, const Targets& targets);
  // Returns when no function runs on another thread.
  void wait_for_running(Lock& lock);
  // Completes every event of the device that was recorded so far and whose work is done.
  void complete_lagging_records(int device);

  // Runs the first operation that is ready: false if there is none.
  bool step(Lock& lock);
  // Runs the stream's next operation and what it needs: false if there is none.
  bool step(Lock& lock, const StreamQueue& stream);

  void tick() { ++ticks_; }
  void set_event_lag(std::uint64_t ticks) { event_lag_ = ticks; }

 private:
  struct RunsFirst {
    bool operator()(const Operation* a, const Operation* b) const;
  };
  using Needed = std::unordered_set<std::uint64_t>;

  // Whether work queued on the stream now would wait for nothing.
  [[nodiscard]] bool nothing_precedes(const StreamQueue& stream) const;
  Operation& make_operation(StreamQueue& stream);
  void order_behind_stream(Operation& operation);
  static void depend(Operation& operation, Operation* predecessor);
  void append(Operation& operation);
  void complete(Operation& operation);
  void retire(Operation& operation, std::vector<Operation*>& done);
  void run(Lock& lock, Operation& operation);
  // The ids of the targets and of all that they wait for.
  [[nodiscard]] static Needed needed_for(const Targets& targets);
  [[nodiscard]] Operation* first_ready(const Needed& needed) const;
  void note_lag(Event& event, StreamQueue& stream);
  [[nodiscard]] bool is_lagging(const RecordLag& lag, int device) const;

  std::vector<DeviceQueues> devices_;
  const void* driver_;
  std::deque<Operation> operations_;
  std::vector<Operation*> idle_operations_;
  std::set<Operation*, RunsFirst> ready_;
  const Operation* running_ = nullptr;
  std::condition_variable ran_;
  std::uint64_t next_id_ = 1;
  Nanoseconds clock_{};
  std::uint64_t ticks_ = 0;
  std::uint64_t event_lag_ = 0;
  std::uint64_t records_ = 0;
};

}  // namespace cistern::simulated
