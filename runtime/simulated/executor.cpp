#include "runtime/simulated/executor.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cistern::simulated {
namespace {

thread_local const void* running_driver = nullptr;

class InsideOperation {
 public:
  explicit InsideOperation(const void* driver) : outer_(std::exchange(running_driver, driver)) {}
  ~InsideOperation() { running_driver = outer_; }
  InsideOperation(const InsideOperation&) = delete;
  InsideOperation& operator=(const InsideOperation&) = delete;

 private:
  const void* outer_;
};

// A function that throws has crashed, as a kernel does; nobody is there to catch it.
CUresult call(const std::function<CUresult()>& function) noexcept {
  try {
    return function();
  } catch (...) {
    return CUDA_ERROR_LAUNCH_FAILED;
  }
}

void remove(std::vector<Operation*>& from, const Operation* operation) {
  from.erase(std::find(from.begin(), from.end(), operation));
}

}  // namespace

bool is_inside_operation(const void* driver) noexcept { return running_driver == driver; }

bool Executor::RunsFirst::operator()(const Operation* a, const Operation* b) const {
  const auto rank = [](const Operation* op) {
    return std::make_tuple(op->start, op->stream->priority, op->stream->device, op->stream->id, op->id);
  };
  return rank(a) < rank(b);
}

Executor::Executor(int devices, const void* driver) : devices_(static_cast<std::size_t>(devices)), driver_(driver) {}

// --- Queueing ---------------------------------------------------------------------------

Operation& Executor::make_operation(StreamQueue& stream) {
  if (idle_operations_.empty()) {
    idle_operations_.reserve(operations_.size() + 1);
    idle_operations_.push_back(&operations_.emplace_back());
  }
  Operation& operation = *idle_operations_.back();
  idle_operations_.pop_back();
  operation.id = next_id_++;
  operation.stream = &stream;
  operation.start = clock_;
  return operation;
}

void Executor::depend(Operation& operation, Operation* predecessor) {
  if (predecessor == nullptr) return;
  auto& predecessors = operation.predecessors;
  if (std::find(predecessors.begin(), predecessors.end(), predecessor) != predecessors.end()) return;
  predecessors.push_back(predecessor);
  predecessor->successors.push_back(&operation);
}

// The legacy stream waits for all blocking streams of its device, and they for it.
void Executor::order_behind_stream(Operation& operation) {
  const StreamQueue& stream = *operation.stream;
  const DeviceQueues& queues = device(stream.device);
  depend(operation, stream.last);
  if (&stream == queues.legacy) {
    for (const StreamQueue* blocking : queues.blocking) depend(operation, blocking->last);
  } else if (stream.synchronizes_with_legacy()) {
    depend(operation, queues.legacy->last);
  }
}

void Executor::append(Operation& operation) {
  StreamQueue& stream = *operation.stream;
  (stream.last == nullptr ? stream.first : stream.last->next_in_stream) = &operation;
  stream.last = &operation;
  ++device(stream.device).unfinished;
  if (!operation.predecessors.empty()) return;
  if (operation.is_mark) {
    complete(operation);
  } else {
    ready_.insert(&operation);
  }
}

void Executor::queue_work(StreamQueue& stream, Nanoseconds duration, std::function<CUresult()> function) {
  Operation& operation = make_operation(stream);
  operation.duration = duration;
  operation.function = std::move(function);
  order_behind_stream(operation);
  append(operation);
}

void Executor::record(Event& event, StreamQueue& stream) {
  forget(event);
  event.recorded = true;
  note_lag(event, stream);
  if (nothing_precedes(stream)) {
    event.time = clock_;
    device(stream.device).latest_end = clock_;
    return;
  }
  Operation& mark = make_operation(stream);
  mark.is_mark = true;
  mark.records = &event;
  event.pending = &mark;
  order_behind_stream(mark);
  append(mark);
}

void Executor::wait_event(StreamQueue& stream, const Event& event) {
  // What is done already ended before the clock stood where it does.
  if (event.pending == nullptr && nothing_precedes(stream)) return;
  Operation& mark = make_operation(stream);
  mark.is_mark = true;
  depend(mark, event.pending);
  order_behind_stream(mark);
  append(mark);
}

void Executor::forget(Event& event) {
  if (event.pending != nullptr) event.pending->records = nullptr;
  event.pending = nullptr;
}

// --- Completion -------------------------------------------------------------------------

void Executor::retire(Operation& operation, std::vector<Operation*>& done) {
  StreamQueue& stream = *operation.stream;
  DeviceQueues& queues = device(stream.device);
  const Nanoseconds end = operation.start + operation.duration;
  clock_ = std::max(clock_, end);
  queues.latest_end = std::max(queues.latest_end, end);
  --queues.unfinished;
  stream.first = operation.next_in_stream;
  if (stream.first == nullptr) stream.last = nullptr;
  if (operation.records != nullptr) {
    operation.records->pending = nullptr;
    operation.records->time = end;
  }
  for (Operation* successor : operation.successors) {
    successor->start = std::max(successor->start, end);
    remove(successor->predecessors, &operation);
    if (!successor->predecessors.empty()) continue;
    if (successor->is_mark) {
      done.push_back(successor);
    } else {
      ready_.insert(successor);
    }
  }
}

void Executor::complete(Operation& first) {
  // A list, not recursion: a chain of marks may be long.
  std::vector<Operation*> done{&first};
  while (!done.empty()) {
    Operation& operation = *done.back();
    done.pop_back();
    retire(operation, done);
    operation.id = 0;
    operation.next_in_stream = nullptr;
    operation.is_mark = false;
    operation.records = nullptr;
    operation.duration = Nanoseconds::zero();
    operation.function = nullptr;
    operation.successors.clear();
    idle_operations_.push_back(&operation);
  }
}

void Executor::run(Lock& lock, Operation& operation) {
  ready_.erase(&operation);
  DeviceQueues& queues = device(operation.stream->device);
  if (operation.function) {
    running_ = &operation;
    std::function<CUresult()> function = std::exchange(operation.function, nullptr);
    const bool skip = queues.failure != CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    lock.unlock();
    {
      const InsideOperation inside(driver_);
      if (!skip) result = call(function);
      // What it holds is its owner's code too: let go of it before the lock comes back.
      function = nullptr;
    }
    lock.lock();
    running_ = nullptr;
    if (queues.failure == CUDA_SUCCESS) queues.failure = result;
  }
  complete(operation);
  ran_.notify_all();
}

// --- Waiting and stepping ---------------------------------------------------------------

bool Executor::is_idle(const StreamQueue& stream) const {
  const DeviceQueues& queues = device(stream.device);
  if (queues.unfinished == 0) return true;
  if (stream.last != nullptr) return false;
  return &stream != queues.legacy || std::all_of(queues.blocking.begin(), queues.blocking.end(),
                                                 [](const StreamQueue* blocking) { return blocking->last == nullptr; });
}

bool Executor::nothing_precedes(const StreamQueue& stream) const {
  return is_idle(stream) && (!stream.synchronizes_with_legacy() || device(stream.device).legacy->last == nullptr);
}

Executor::Targets Executor::targets(const StreamQueue& stream) const {
  Targets result;
  const auto add = [&](const StreamQueue& queue) {
    if (queue.last != nullptr) result.push_back({queue.last, queue.last->id});
  };
  const DeviceQueues& queues = device(stream.device);
  add(stream);
  if (&stream == queues.legacy) {
    for (const StreamQueue* blocking : queues.blocking) add(*blocking);
  }
  return result;
}

Executor::Targets Executor::targets(const Event& event) const {
  if (event.pending == nullptr) return {};
  return {{event.pending, event.pending->id}};
}

Executor::Targets Executor::targets(int index) const {
  const DeviceQueues& queues = device(index);
  Targets result = targets(*queues.legacy);
  for (const StreamQueue* stream : queues.non_blocking) {
    if (stream->last != nullptr) result.push_back({stream->last, stream->last->id});
  }
  return result;
}

Executor::Needed Executor::needed_for(const Targets& targets) {
  Needed needed;
  std::vector<const Operation*> open;
  for (const Target& target : targets) {
    if (target.operation->id == target.id && needed.insert(target.id).second) open.push_back(target.operation);
  }
  while (!open.empty()) {
    const Operation* operation = open.back();
    open.pop_back();
    for (const Operation* predecessor : operation->predecessors) {
      if (needed.insert(predecessor->id).second) open.push_back(predecessor);
    }
  }
  return needed;
}

Operation* Executor::first_ready(const Needed& needed) const {
  const auto found =
      std::find_if(ready_.begin(), ready_.end(), [&](const Operation* op) { return needed.count(op->id) != 0; });
  return found == ready_.end() ? nullptr : *found;
}

void Executor::finish(Lock& lock, const Targets& targets) {
  const auto unfinished = [&] {
    return std::any_of(targets.begin(), targets.end(),
                       [](const Target& target) { return target.operation->id == target.id; });
  };
  if (!unfinished()) return;
  // What an operation waits for is settled when it is queued: this stays true while we wait.
  const Needed needed = needed_for(targets);
  while (unfinished()) {
    Operation* next = running_ == nullptr ? first_ready(needed) : nullptr;
    if (next != nullptr) {
      run(lock, *next);
    } else {
      ran_.wait(lock);
    }
  }
}

void Executor::wait_for_running(Lock& lock) {
  ran_.wait(lock, [&] { return running_ == nullptr; });
}

bool Executor::step(Lock& lock) {
  wait_for_running(lock);
  if (ready_.empty()) return false;
  run(lock, **ready_.begin());
  return true;
}

bool Executor::step(Lock& lock, const StreamQueue& stream) {
  if (stream.first == nullptr) return false;
  finish(lock, {{stream.first, stream.first->id}});
  return true;
}

// --- Event lag --------------------------------------------------------------------------

void Executor::note_lag(Event& event, StreamQueue& stream) {
  event.lag = RecordLag{ticks_ + event_lag_, ++records_};
  stream.latest_record = event.lag;
  RecordLag& latest = device(stream.device).latest_record;
  latest = RecordLag{std::max(latest.due, event.lag.due), event.lag.record};
}

bool Executor::is_lagging(const RecordLag& lag, int index) const {
  return lag.due > ticks_ && lag.record > device(index).completed_records;
}

bool Executor::is_complete(const Event& event) const {
  return event.pending == nullptr && !is_lagging(event.lag, event.device);
}

bool Executor::has_lagging_records(int index) const { return is_lagging(device(index).latest_record, index); }
bool Executor::has_lagging_records(const StreamQueue& stream) const {
  return is_lagging(stream.latest_record, stream.device);
}

void Executor::complete_lagging_records(int index) {
  DeviceQueues& queues = device(index);
  queues.completed_records = records_;
  queues.latest_record.due = 0;
}

}  // namespace cistern::simulated
