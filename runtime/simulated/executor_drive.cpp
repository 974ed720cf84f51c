// The two drives: who runs what is ready, when, and how a host thread waits for it.

#include "runtime/simulated/executor.h"

#include "runtime/simulated/shared_event.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cistern::simulated {
namespace {

// A function that throws has crashed, as a kernel does; nobody is there to catch it.
CUresult call_function(const std::function<CUresult(CUresult)>& function, CUresult status) noexcept {
  try {
    return function(status);
  } catch (...) {
    return CUDA_ERROR_LAUNCH_FAILED;
  }
}

bool may_touch_memory(const Operation& operation) {
  return operation.work.label.kind != OperationKind::host_function &&
         operation.work.label.kind != OperationKind::callback;
}

}  // namespace

Executor::Executor(int devices, const void* driver, Drive drive, std::mutex& mutex)
    : devices_(static_cast<std::size_t>(devices)),
      driver_(driver),
      drive_(drive),
      mutex_(mutex),
      foreign_([this](const Targets& held) {
        const Lock lock(mutex_);
        let_go(held);
      }) {
  if (drive == Drive::free) workers_ = std::make_unique<Workers>(mutex, [this](Lock& lock) { return run_one(lock); });
}

void Executor::stop() {
  foreign_.stop();
  if (workers_ != nullptr) workers_->stop();
  // What was not done will never be: no other process is to wait for it.
  for (const Operation& operation : operations_) {
    if (operation.tells) operation.tells->complete(operation.shared_record);
  }
}

// --- What is ready ----------------------------------------------------------------------

// Free-running, the workers are there now: virtual time has no say in what they take first.
bool Executor::runs_first(const Operation* a, const Operation* b) const {
  const auto rank = [this](const Operation* op) {
    const Nanoseconds start = drive_ == Drive::stepped ? op->start : Nanoseconds::zero();
    return std::make_tuple(start, op->priority, op->device, op->stream->id, op->id);
  };
  return rank(a) < rank(b);
}

void Executor::insert_ready(Operation& operation) {
  const auto runs_after = [this](const Operation* a, const Operation* b) { return runs_first(b, a); };
  ready_.insert(std::upper_bound(ready_.begin(), ready_.end(), &operation, runs_after), &operation);
}

void Executor::erase_ready(const Operation& operation) {
  if (ready_.back() == &operation) {
    ready_.pop_back();
  } else {
    ready_.erase(std::find(ready_.begin(), ready_.end(), &operation));
  }
}

void Executor::engage_workers(std::size_t taken_here) {
  if (workers_ == nullptr || ready_.size() <= taken_here) return;
  std::size_t streams = 0;
  for (const DeviceQueues& queues : devices_) streams += 1 + queues.blocking.size() + queues.non_blocking.size();
  workers_->engage(ready_.size() - taken_here, streams);
}

// --- Running ----------------------------------------------------------------------------

CUresult Executor::call(Lock& lock, Operation& operation) {
  const CUresult status = device(operation.device).failure;
  if (!operation.work.function && !operation.work.is_valid) return CUDA_SUCCESS;
  const bool runs = status == CUDA_SUCCESS || operation.work.runs_after_failure;
  CUresult result = CUDA_SUCCESS;
  if (runs && operation.work.is_valid && !operation.work.is_valid()) result = CUDA_ERROR_ILLEGAL_ADDRESS;
  auto is_valid = std::exchange(operation.work.is_valid, nullptr);
  auto function = std::exchange(operation.work.function, nullptr);
  lock.unlock();
  {
    const InsideOperation inside(driver_);
    if (function && runs && result == CUDA_SUCCESS) result = call_function(function, status);
    // What they hold is their owner's code too: let go of it before the lock comes back.
    is_valid = nullptr;
    function = nullptr;
  }
  lock.lock();
  return result;
}

void Executor::run(Lock& lock, Operation& operation) {
  erase_ready(operation);
  running_.push_back(&operation);
  const CUresult result = call(lock, operation);
  running_.erase(std::find(running_.begin(), running_.end(), &operation));
  CUresult& failure = device(operation.device).failure;
  if (failure == CUDA_SUCCESS) failure = result;
  complete(operation);
  ran_.notify_all();
}

bool Executor::run_one(Lock& lock) {
  if (ready_.empty()) return false;
  run(lock, *ready_.back());
  engage_workers(1);
  return true;
}

// --- Waiting ----------------------------------------------------------------------------

Targets Executor::targets(const StreamQueue& stream) const {
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

Targets Executor::targets(const Event& event) const {
  if (event.pending == nullptr) return {};
  return {{event.pending, event.pending->id}};
}

Targets Executor::targets(int index) const {
  const DeviceQueues& queues = device(index);
  Targets result = targets(*queues.legacy);
  for (const StreamQueue* stream : queues.non_blocking) {
    if (stream->last != nullptr) result.push_back({stream->last, stream->last->id});
  }
  return result;
}

Executor::Needed Executor::needed_for(const Targets& targets) {
  Needed needed;
  Targets open;
  const auto add = [&](const Target& target) {
    if (target.operation->id == target.id && needed.insert(target.id).second) open.push_back(target);
  };
  for (const Target& target : targets) add(target);
  while (!open.empty()) {
    const Operation& operation = *open.back().operation;
    open.pop_back();
    for (const Target& predecessor : operation.predecessors) add(predecessor);
  }
  return needed;
}

Operation* Executor::first_ready(const Needed& needed) const {
  const auto found =
      std::find_if(ready_.rbegin(), ready_.rend(), [&](const Operation* op) { return needed.count(op->id) != 0; });
  return found == ready_.rend() ? nullptr : *found;
}

void Executor::finish(Lock& lock, const Targets& targets) {
  // What an operation waits for is settled when it is queued: this stays true while we wait.
  const Needed needed = drive_ == Drive::stepped ? needed_for(targets) : Needed();
  HostWait wait;
  std::vector<HostWaitLink> links(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].operation->id != targets[i].id) continue;
    auto* operation = const_cast<Operation*>(targets[i].operation);
    links[i] = {&wait, std::exchange(operation->host_waits, &links[i])};
    ++wait.open;
  }
  while (wait.open != 0) {
    Operation* next = drive_ == Drive::stepped && running_.empty() ? first_ready(needed) : nullptr;
    if (next != nullptr) {
      run(lock, *next);
    } else {
      ran_.wait(lock);
    }
  }
  clock_ = std::max(clock_, wait.end);
}

void Executor::finish_all(Lock& lock) {
  Targets all;
  for (int index = 0; index < static_cast<int>(devices_.size()); ++index) {
    const Targets of_device = targets(index);
    all.insert(all.end(), of_device.begin(), of_device.end());
  }
  finish(lock, all);
}

void Executor::wait_for_running(Lock& lock) {
  const std::uint64_t next_id = next_id_;
  ran_.wait(lock, [&] {
    return std::none_of(running_.begin(), running_.end(),
                        [&](const Operation* op) { return op->id < next_id && may_touch_memory(*op); });
  });
}

// --- Stepping ---------------------------------------------------------------------------

bool Executor::step(Lock& lock) {
  ran_.wait(lock, [&] { return running_.empty(); });
  if (ready_.empty()) return false;
  run(lock, *ready_.back());
  return true;
}

Target Executor::next_of(const StreamQueue& stream) const {
  const Operation& first = *stream.first;
  const Operation* next = &first;
  if (first.work.label.kind == OperationKind::graph_end) {
    const auto before = [this](const Operation* a, const Operation* b) {
      if ((a->open_predecessors == 0) != (b->open_predecessors == 0)) return a->open_predecessors == 0;
      return runs_first(a, b);
    };
    for (const Target& node : first.predecessors) {
      if (node.operation->id != node.id || node.operation->in_stream) continue;
      if (next == &first || before(node.operation, next)) next = node.operation;
    }
  }
  return {next, next->id};
}

bool Executor::step(Lock& lock, const StreamQueue& stream) {
  if (stream.first == nullptr) return false;
  finish(lock, {next_of(stream)});
  return true;
}

}  // namespace cistern::simulated
