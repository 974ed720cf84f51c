// Queueing operations, and what follows when one is done.

#include "runtime/simulated/executor.h"

#include "runtime/simulated/shared_event.h"

#include <algorithm>
#include <utility>

namespace cistern::simulated {

// --- Queueing ---------------------------------------------------------------------------

Operation& Executor::make_operation(StreamQueue& stream) {
  if (idle_operations_.empty()) {
    // Room for all in each list, so that running and completing an operation never fails.
    if (operations_.size() == idle_operations_.capacity()) {
      const std::size_t room = 2 * operations_.size() + 1;
      ready_.reserve(room);
      running_.reserve(room);
      done_.reserve(room);
      idle_operations_.reserve(room);  // the last: its capacity tells of the others'
    }
    idle_operations_.push_back(&operations_.emplace_back());
  }
  Operation& operation = *idle_operations_.back();
  idle_operations_.pop_back();
  operation.id = next_id_++;
  operation.stream = &stream;
  operation.device = stream.device;
  operation.priority = stream.priority;
  operation.start = earliest_start(stream);
  operation.open_predecessors = 1;  // this hold
  return operation;
}

Operation& Executor::make_mark(StreamQueue& stream, OperationKind kind) {
  Operation& mark = make_operation(stream);
  mark.is_mark = true;
  mark.work.label.kind = kind;
  return mark;
}

void Executor::depend(Operation& operation, Operation* predecessor) {
  if (predecessor == nullptr) return;
  operation.predecessors.push_back({predecessor, predecessor->id});
  predecessor->successors.push_back(&operation);
  ++operation.open_predecessors;
}

// "Stream synchronization behavior": the legacy stream waits for all blocking streams of its
// device, and they for it.
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

void Executor::append_to_stream(Operation& operation) {
  StreamQueue& stream = *operation.stream;
  (stream.last == nullptr ? stream.first : stream.last->next_in_stream) = &operation;
  stream.last = &operation;
  ++device(stream.device).unfinished;
}

void Executor::release(Operation& operation) {
  if (--operation.open_predecessors != 0) return;
  if (operation.is_mark) {
    complete(operation);
  } else {
    insert_ready(operation);
  }
}

Target Executor::queue_work(StreamQueue& stream, Work work, const Targets& behind) {
  Operation& operation = make_operation(stream);
  operation.work = std::move(work);
  order_behind_stream(operation);
  for (const Target& target : behind) {
    if (target.operation->id == target.id) depend(operation, const_cast<Operation*>(target.operation));
  }
  append_to_stream(operation);
  const Target queued{&operation, operation.id};
  release(operation);
  engage_workers();
  return queued;
}

std::unordered_set<std::uint64_t> Executor::preceding(const StreamQueue& stream) const {
  Targets last = targets(stream);
  const StreamQueue& legacy = *device(stream.device).legacy;
  if (stream.synchronizes_with_legacy() && legacy.last != nullptr) last.push_back({legacy.last, legacy.last->id});
  return needed_for(last);
}

void Executor::tell_of(Operation& mark, const Event& event) {
  if (!event.shared) return;
  mark.tells = event.shared;
  mark.shared_record = event.shared->begin_record();
}

// In this process or in another.
void Executor::wait_for_record(Operation& mark, const Event& event) {
  const std::uint64_t foreign = event.shared ? event.shared->latest_foreign() : 0;
  if (foreign == 0) {
    depend(mark, event.pending);
    return;
  }
  foreign_.watch(event.shared, foreign, {&mark, mark.id});
  ++mark.open_predecessors;  // until let_go
}

void Executor::let_go(const Targets& held) {
  for (const Target& target : held) release(*const_cast<Operation*>(target.operation));
  engage_workers();
  ran_.notify_all();
}

void Executor::share(Event& event, std::shared_ptr<SharedEvent> shared) {
  event.shared = std::move(shared);
  if (event.pending != nullptr) tell_of(*event.pending, event);
}

void Executor::attach_record(Operation& mark, Event& event, StreamQueue& stream) {
  forget(event);
  event.recorded = true;
  note_lag(event, stream);
  mark.records = &event;
  event.pending = &mark;
  tell_of(mark, event);
}

void Executor::record(Event& event, StreamQueue& stream) {
  if (nothing_precedes(stream)) {
    forget(event);
    event.recorded = true;
    note_lag(event, stream);
    event.time = earliest_start(stream);
    Nanoseconds& latest_end = device(stream.device).latest_end;
    latest_end = std::max(latest_end, event.time);
    if (event.shared) event.shared->complete(event.shared->begin_record());
    return;
  }
  Operation& mark = make_mark(stream, OperationKind::event_record);
  order_behind_stream(mark);
  attach_record(mark, event, stream);
  append_to_stream(mark);
  release(mark);
}

void Executor::wait_event(StreamQueue& stream, const Event& event) {
  const bool foreign = event.shared && event.shared->latest_foreign() != 0;
  if (!foreign && event.pending == nullptr && nothing_precedes(stream)) {
    stream.latest_end = std::max(stream.latest_end, event.time);
    return;
  }
  Operation& mark = make_mark(stream, OperationKind::event_wait);
  mark.start = std::max(mark.start, event.time);
  wait_for_record(mark, event);
  order_behind_stream(mark);
  append_to_stream(mark);
  release(mark);
}

Operation& Executor::make_graph_node(StreamQueue& stream, GraphOperation& node) {
  Operation& operation = make_operation(stream);
  operation.in_stream = false;
  if (node.device >= 0) operation.device = node.device;
  if (node.priority) operation.priority = *node.priority;
  operation.is_mark = node.records != nullptr || node.waits_for != nullptr;
  operation.work = std::move(node.work);
  if (node.waits_for != nullptr) {
    operation.start = std::max(operation.start, node.waits_for->time);
    wait_for_record(operation, *node.waits_for);
  }
  return operation;
}

Target Executor::queue_graph(StreamQueue& stream, std::vector<GraphOperation> nodes, const Targets& behind,
                             Targets* queued) {
  // All are held back until all are linked: a mark that waits for nothing would be done, and
  // its place used again, before its successors could name it.
  std::vector<Operation*> operations;
  operations.reserve(nodes.size() + 1);
  const auto depend_on_what_precedes = [&](Operation& operation) {
    order_behind_stream(operation);
    for (const Target& target : behind) {
      if (target.operation->id == target.id) depend(operation, const_cast<Operation*>(target.operation));
    }
  };
  for (GraphOperation& node : nodes) {
    Operation& operation = make_graph_node(stream, node);
    for (const std::size_t place : node.after) depend(operation, operations[place]);
    if (node.after.empty()) depend_on_what_precedes(operation);
    operations.push_back(&operation);
  }
  Operation& end = make_mark(stream, OperationKind::graph_end);
  for (Operation* operation : operations) depend(end, operation);
  depend_on_what_precedes(end);
  operations.push_back(&end);
  append_to_stream(end);
  device(stream.device).unfinished += nodes.size();
  const Target target{&end, end.id};
  // Waits of this graph's nodes are for records made before the launch: these come after.
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].records != nullptr) attach_record(*operations[i], *nodes[i].records, stream);
  }
  if (queued != nullptr) {
    for (const Operation* operation : operations) queued->push_back({operation, operation->id});
  }
  for (Operation* operation : operations) release(*operation);
  engage_workers();
  return target;
}

void Executor::forget(Event& event) {
  if (event.pending != nullptr) event.pending->records = nullptr;
  event.pending = nullptr;
}

// --- What precedes ----------------------------------------------------------------------

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

Nanoseconds Executor::earliest_start(const StreamQueue& stream) const {
  Nanoseconds start = std::max(clock_, stream.latest_end);
  if (drive_ == Drive::stepped) return start;  // the clock is past all that is done
  const DeviceQueues& queues = device(stream.device);
  if (&stream == queues.legacy) {
    for (const StreamQueue* blocking : queues.blocking) start = std::max(start, blocking->latest_end);
  } else if (stream.synchronizes_with_legacy()) {
    start = std::max(start, queues.legacy->latest_end);
  }
  return start;
}

// --- Completion -------------------------------------------------------------------------

void Executor::retire(Operation& operation) {
  StreamQueue& stream = *operation.stream;
  DeviceQueues& queues = device(stream.device);
  const Nanoseconds end = operation.start + operation.work.duration;
  if (drive_ == Drive::stepped) clock_ = std::max(clock_, end);
  queues.latest_end = std::max(queues.latest_end, end);
  Nanoseconds& device_end = device(operation.device).latest_end;  // a graph's node may run elsewhere
  device_end = std::max(device_end, end);
  --queues.unfinished;
  if (operation.in_stream) {
    stream.latest_end = std::max(stream.latest_end, end);
    stream.first = operation.next_in_stream;
    if (stream.first == nullptr) stream.last = nullptr;
  }
  if (operation.records != nullptr) {
    operation.records->pending = nullptr;
    operation.records->time = end;
  }
  if (operation.tells) operation.tells->complete(operation.shared_record);
  for (HostWaitLink* link = operation.host_waits; link != nullptr; link = link->next) {
    --link->wait->open;
    link->wait->end = std::max(link->wait->end, end);
  }
  for (Operation* successor : operation.successors) {
    successor->start = std::max(successor->start, end);
    if (--successor->open_predecessors != 0) continue;
    if (successor->is_mark) {
      done_.push_back(successor);
    } else {
      insert_ready(*successor);
    }
  }
}

void Executor::recycle(Operation& operation) {
  operation.id = 0;
  operation.next_in_stream = nullptr;
  operation.in_stream = true;
  operation.is_mark = false;
  operation.records = nullptr;
  operation.tells = nullptr;
  operation.work.label.name.clear();
  operation.work.duration = Nanoseconds::zero();
  operation.predecessors.clear();
  operation.successors.clear();
  operation.host_waits = nullptr;
  idle_operations_.push_back(&operation);
}

void Executor::complete(Operation& first) {
  // A list, not recursion: a chain of marks may be long.
  done_.push_back(&first);
  while (!done_.empty()) {
    Operation& operation = *done_.back();
    done_.pop_back();
    retire(operation);
    recycle(operation);
  }
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
  if (event.shared && event.shared->latest_foreign() != 0) {
    return event.shared->check_abandoned(event.shared->latest_foreign());
  }
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
