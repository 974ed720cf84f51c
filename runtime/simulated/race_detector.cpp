#include "runtime/simulated/race_detector.h"

#include "runtime/simulated/race_foreign.h"

#include <memory>
#include <utility>

namespace cistern::simulated {
namespace {

// The operation whose function runs on this thread, and the detector that it belongs to.
struct Running {
  const RaceDetector* detector = nullptr;
  RaceOperationPtr operation;
};
thread_local Running running;

class RunsAs {
 public:
  explicit RunsAs(Running inner) : outer_(std::exchange(running, std::move(inner))) {}
  ~RunsAs() { running = std::move(outer_); }
  RunsAs(const RunsAs&) = delete;
  RunsAs& operator=(const RunsAs&) = delete;

 private:
  Running outer_;
};

// Places of mapped bytes are numbered above all addresses, each file's apart: an offset takes
// 47 bits at most, as an address does.
std::uint64_t number_of(FilePlace place) {
  return (std::uint64_t{1} << 62) + (static_cast<std::uint64_t>(place.file + 1) << 47) + place.offset;
}

}  // namespace

RaceDetector::RaceDetector(const SimulatedOptions& options, std::uint64_t driver, int devices,
                           const VirtualMemory& virtual_memory)
    : driver_(driver),
      virtual_memory_(virtual_memory),
      order_(devices),
      stacks_(options.race_frames),
      reports_(options.races) {}

// --- Work -------------------------------------------------------------------------------

RaceOperation RaceDetector::describe(const StreamQueue& queue, const char* kind, std::string_view name) {
  RaceOperation operation;
  operation.kind = kind;
  operation.name = name;
  operation.device = queue.device;
  operation.stream = queue.handle;
  operation.stream_id = queue.id;
  operation.stack = stacks_.capture();
  operation.sequence = ++sequence_;
  return operation;
}

RaceOperation RaceDetector::describe_host(const char* kind, std::string_view name) {
  RaceOperation operation;
  operation.kind = kind;
  operation.name = name;
  operation.stack = stacks_.capture();
  operation.sequence = ++sequence_;
  return operation;
}

RaceOperationPtr RaceDetector::submitted(const StreamQueue& queue, Work& work) {
  auto operation = std::make_shared<RaceOperation>(describe(queue, to_string(work.label.kind), work.label.name));
  operation->role = role_of(work.label.kind);
  operation->moment = order_.submit(queue);
  if (operation->role == RaceRole::begins) begin_in_stream(*operation, work.accesses);
  touch(operation, work.accesses);
  if (operation->role == RaceRole::ends) end_in_stream(*operation, work.accesses);
  run_as(operation, work);
  return operation;
}

// Work on a former allocation here was judged when that one was freed, and a pool hands out anew
// only what is free by its own order.
void RaceDetector::begin_in_stream(const RaceOperation& operation, const std::vector<MemoryAccess>& ranges) {
  for (const MemoryAccess& range : ranges) {
    begin_allocation(range.address, range.bytes, "cuMemAllocAsync", operation.stack, operation.sequence);
    memory_.live_allocation(range.address)->of_graph = operation.captured.sequence != 0;
  }
}

// For callers it is gone from here on, wherever its turn is.
void RaceDetector::end_in_stream(const RaceOperation& operation, const std::vector<MemoryAccess>& ranges) {
  for (const MemoryAccess& range : ranges) {
    memory_.end_allocations(range.address, range.end(), operation.stack, operation.sequence);
  }
}

void RaceDetector::run_as(const RaceOperationPtr& operation, Work& work) const {
  if (!work.function) return;
  work.function = [this, operation, function = std::move(work.function)](CUresult status) {
    const RunsAs scope({this, operation});
    return function(status);
  };
}

void RaceDetector::refused(const StreamQueue& queue, const OperationLabel& label,
                           const std::vector<MemoryAccess>& accesses) {
  const RaceOperation operation = describe(queue, to_string(label.kind), label.name);
  bool is_told = accesses.empty();
  for (const MemoryAccess& access : accesses) is_told = judge(operation, access) || is_told;
  if (is_told) return;
  // Every range is somebody's: then it is the wrong one's.
  const MemoryAccess& access = accesses.front();
  const RaceLifetimePtr lifetime = memory_.find(access.address);
  const RaceKind problem = lifetime == nullptr ? RaceKind::dead_memory : RaceKind::foreign_memory;
  reports_.add({problem, &operation, access.writes, nullptr, false, access.address, access.end(), lifetime.get()},
               stacks_);
}

void RaceDetector::host_access(const std::vector<MemoryAccess>& ranges) {
  if (running.detector == this) {
    touch(running.operation, ranges);
    return;
  }
  auto operation = std::make_shared<RaceOperation>(describe_host("host access", {}));
  operation->moment = order_.touch_by_host();
  touch(operation, ranges);
}

void RaceDetector::driver_called_inside(const char* entry) {
  const RaceOperation call = describe_host(entry, {});
  const RaceOperation* inside = running.detector == this ? running.operation.get() : nullptr;
  reports_.add(
      {RaceKind::callback_calls_driver, inside == nullptr ? &call : inside, false, inside == nullptr ? nullptr : &call},
      stacks_);
}

// --- Accesses ---------------------------------------------------------------------------

void RaceDetector::for_each_place(std::uint64_t address, std::size_t bytes,
                                  const std::function<void(std::uint64_t, std::uint64_t, std::uint64_t)>& visit) const {
  if (!virtual_memory_.window().contains(address)) {
    visit(address, MemoryAccess{address, bytes}.end(), 0);
    return;
  }
  virtual_memory_.for_each_piece(address, bytes, [&](std::uint64_t at, std::size_t length, FilePlace in_file) {
    const std::uint64_t place = number_of(in_file);
    visit(place, place + length, at - place);
  });
}

void RaceDetector::for_each_access(std::uint64_t address, std::size_t bytes, const RaceShadow::Conflict& visit) const {
  for_each_place(address, bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t displacement) {
    shadow_.for_each(begin, end, [&](const RaceAccess& access, std::uint64_t from, std::uint64_t to) {
      visit(access, from + displacement, to + displacement);
    });
  });
}

void RaceDetector::clear_shadow(std::uint64_t address, std::size_t bytes) {
  for_each_place(address, bytes,
                 [&](std::uint64_t begin, std::uint64_t end, std::uint64_t) { shadow_.clear(begin, end); });
}

bool RaceDetector::judge(const RaceOperation& operation, const MemoryAccess& range) {
  const bool is_node = operation.captured.sequence != 0;
  const auto trespass = is_node ? memory_.judge_node(range.address, range.end(), operation.captured.sequence)
                                : memory_.judge(range.address, range.end());
  if (trespass) {
    reports_.add({trespass->kind, &operation, range.writes, nullptr, false, trespass->begin, trespass->end,
                  trespass->lifetime.get()},
                 stacks_);
    return true;
  }
  if (!is_of_another_driver(driver_, range.address)) return false;
  reports_.add({RaceKind::foreign_memory, &operation, range.writes, nullptr, false, range.address, range.end()},
               stacks_);
  return true;
}

void RaceDetector::touch(const RaceOperationPtr& operation, const std::vector<MemoryAccess>& ranges) {
  for (const MemoryAccess& range : ranges) {
    if (range.bytes == 0) continue;
    if (operation->role == RaceRole::touches) judge(*operation, range);
    for_each_place(range.address, range.bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t displacement) {
      const RaceAccess access{operation, range.writes, displacement};
      shadow_.access(begin, end, access, [&](const RaceAccess& earlier, std::uint64_t from, std::uint64_t to) {
        report_conflict(earlier, access, from + displacement, to + displacement);
      });
    });
  }
}

void RaceDetector::report_conflict(const RaceAccess& earlier, const RaceAccess& later, std::uint64_t begin,
                                   std::uint64_t end) {
  const RaceLifetimePtr lifetime = memory_.find(begin);
  RaceKind kind = RaceKind::data_race;
  if (later.operation->role == RaceRole::ends) {
    kind = RaceKind::free_in_use;
  } else if (earlier.operation->role != RaceRole::touches) {
    kind = RaceKind::dead_memory;
  } else if (earlier.operation->is_host() || later.operation->is_host()) {
    kind = RaceKind::host_race;
  } else if (lifetime != nullptr && earlier.operation->sequence < lifetime->born) {
    kind = RaceKind::reuse;
  }
  reports_.add(
      {kind, earlier.operation.get(), earlier.writes, later.operation.get(), later.writes, begin, end, lifetime.get()},
      stacks_);
}

// --- Order ------------------------------------------------------------------------------

void RaceDetector::waited(const StreamQueue& queue, const Event& event, bool is_foreign) {
  if (order_.wait(queue, &event) || is_foreign) return;
  const RaceOperation operation = describe(queue, "cuStreamWaitEvent", {});
  reports_.add({RaceKind::idle_wait, &operation}, stacks_);
}

void RaceDetector::stream_destroyed(const StreamQueue& queue) { order_.forget(queue); }

// --- Lives of memory --------------------------------------------------------------------

void RaceDetector::block_allocated(std::uint64_t address, std::size_t bytes, const StreamQueue& queue,
                                   BlockBirth birth) {
  RaceOperation operation = describe(queue, "allocation", {});
  auto block = std::make_shared<RaceLifetime>();
  block->origin = "block";
  block->address = address;
  block->bytes = bytes;
  block->device = queue.device;
  block->stream = queue.handle;
  block->stream_id = queue.id;
  block->allocated = operation.stack;
  block->born = operation.sequence;
  block->in_private_pool = birth.in_private_pool;
  block->is_kept_for_graphs = birth.in_capture;
  const RaceClock next = order_.next(queue);  // also makes the stream known: see free_of
  // In a capture nothing runs yet: the launches are judged as they come.
  if (!birth.in_capture) {
    const auto is_unordered = [&](const RaceAccess& access) { return !next.covers(access.operation->moment.epoch); };
    for_each_access(address, bytes, [&](const RaceAccess& access, std::uint64_t begin, std::uint64_t end) {
      if (!is_unordered(access)) return;
      const RaceLifetimePtr former = memory_.find(begin);
      reports_.add({RaceKind::reuse, access.operation.get(), access.writes, &operation, true, begin, end, former.get()},
                   stacks_);
    });
    // Told once: the block's uses need not say it again.
    for_each_place(address, bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t) {
      shadow_.remove_if(begin, end, is_unordered);
    });
  }
  memory_.begin_block(std::move(block));
}

void RaceDetector::block_used(std::uint64_t address, const StreamQueue& queue) {
  const RaceLifetimePtr block = memory_.live_block(address);
  if (block == nullptr) return;
  block->recorded_streams.emplace_back(queue.id, queue.device);
  // The graph that is captured keeps a block of the host until it ends.
  if (block->is_of_host && queue.capture != nullptr) block->is_kept_for_graphs = true;
}

RaceClock RaceDetector::told_of(const RaceLifetime& block) const {
  RaceClock told = order_.host();
  for (const auto& [stream_id, device] : block.recorded_streams) told.join(order_.next(stream_id, device));
  return told;
}

void RaceDetector::for_each_unfinished(const RaceLifetime& block, const RaceShadow::Conflict& visit) const {
  for_each_access(block.address, block.bytes, [&](const RaceAccess& access, std::uint64_t begin, std::uint64_t end) {
    const RaceOperation& user = *access.operation;
    if (user.is_host() || order_.host().covers(user.moment.epoch)) return;
    const RaceLifetimePtr former = memory_.find(begin);
    if (former != nullptr && former->is_kept_for_graphs && user.captured.sequence != 0) return;
    visit(access, begin, end);
  });
}

// Earlier work that the host does not know to be done would meet what the host writes now.
void RaceDetector::host_block_allocated(std::uint64_t address, std::size_t bytes) {
  const RaceOperation operation = describe_host("allocation of host memory", {});
  auto block = std::make_shared<RaceLifetime>();
  block->origin = "host block";
  block->address = address;
  block->bytes = bytes;
  block->allocated = operation.stack;
  block->born = operation.sequence;
  block->is_of_host = true;
  for_each_unfinished(*block, [&](const RaceAccess& access, std::uint64_t begin, std::uint64_t end) {
    const RaceLifetimePtr former = memory_.find(begin);
    reports_.add({RaceKind::reuse, access.operation.get(), access.writes, &operation, true, begin, end, former.get()},
                 stacks_);
  });
  clear_shadow(address, bytes);  // told once
  memory_.begin_block(std::move(block));
}

void RaceDetector::host_block_freed(std::uint64_t address) {
  const RaceLifetimePtr block = memory_.live_block(address);
  if (block == nullptr) {
    freed_nothing(address, "free of a host block");
    return;
  }
  const RaceOperation operation = describe_host("free of host memory", {});
  const RaceClock told = told_of(*block);
  for_each_unfinished(*block, [&](const RaceAccess& access, std::uint64_t begin, std::uint64_t end) {
    const RaceOperation& user = *access.operation;
    if (told.covers(user.moment.epoch)) return;
    reports_.add({RaceKind::free_in_use, &user, access.writes, &operation, true, begin, end, block.get()}, stacks_);
  });
  memory_.end_block(*block, operation.stack, operation.sequence);
}

// A free is in order on the block's own stream, whichever thread makes it: the per-thread stream
// is the one of the allocation, and the handle of a stream that was destroyed may be another's by now.
RaceOperation RaceDetector::free_of(const RaceLifetime& block, const StreamQueue* named) {
  RaceOperation operation = describe_host("free", {});
  operation.device = block.device;
  operation.stream = block.stream;
  operation.stream_id = block.stream_id;
  operation.moment.clock = order_.next(block.stream_id, block.device);
  // Or of another stream, which took over the memory of one that is over.
  if (named != nullptr && named->id != block.stream_id && named->handle != CU_STREAM_PER_THREAD) {
    operation.moment.clock.join(order_.next(*named));
  }
  return operation;
}

void RaceDetector::block_freed(std::uint64_t address, const StreamQueue* named, bool in_capture) {
  const RaceLifetimePtr block = memory_.live_block(address);
  if (block == nullptr) {
    freed_nothing(address, "free of a block");
    return;
  }
  const RaceOperation operation = free_of(*block, named);
  if (!in_capture) {
    RaceClock next = operation.moment.clock;
    next.join(told_of(*block));
    for_each_access(address, block->bytes, [&](const RaceAccess& access, std::uint64_t begin, std::uint64_t end) {
      const RaceOperation& user = *access.operation;
      if (user.sequence < block->born || next.covers(user.moment.epoch)) return;
      reports_.add({RaceKind::free_in_use, &user, access.writes, &operation, true, begin, end, block.get()}, stacks_);
    });
  }
  // Its pool keeps the bytes for what the capture recorded: others take them through the pool alone.
  if (in_capture && block->in_private_pool) block->is_kept_for_graphs = true;
  memory_.end_block(*block, operation.stack, operation.sequence);
}

void RaceDetector::allocated(std::uint64_t address, std::size_t bytes, const char* origin) {
  begin_allocation(address, bytes, origin, stacks_.capture(), ++sequence_);
}

void RaceDetector::begin_allocation(std::uint64_t address, std::size_t bytes, const char* origin, RaceStackId stack,
                                    std::uint64_t sequence) {
  auto allocation = std::make_shared<RaceLifetime>();
  allocation->origin = origin;
  allocation->address = address;
  allocation->bytes = bytes;
  allocation->allocated = stack;
  allocation->born = sequence;
  clear_shadow(address, bytes);
  memory_.begin_allocation(std::move(allocation));
}

void RaceDetector::mapped(std::uint64_t address, std::size_t bytes) {
  auto mapping = std::make_shared<RaceLifetime>();
  mapping->origin = "mapping";
  mapping->address = address;
  mapping->bytes = bytes;
  mapping->allocated = stacks_.capture();
  mapping->born = ++sequence_;
  mapping->is_row = true;
  memory_.begin_allocation(std::move(mapping));
}

void RaceDetector::freed(std::uint64_t address, const char* entry) {
  if (const RaceLifetimePtr allocation = memory_.live_allocation(address)) end_lives(address, allocation->bytes, entry);
}

void RaceDetector::end_lives(std::uint64_t address, std::size_t bytes, const char* entry) {
  const RaceOperation operation = describe_host(entry, {});
  for_each_place(address, bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t displacement) {
    shadow_.for_each(begin, end, [&](const RaceAccess& access, std::uint64_t from, std::uint64_t to) {
      // Work through another mapping of the bytes does not lose them.
      // cuMemFree waits for the allocation itself, if that is stream-ordered.
      if (access.displacement != displacement || access.operation->role == RaceRole::begins) return;
      if (order_.host().covers(access.operation->moment.epoch)) return;
      const RaceLifetimePtr lifetime = memory_.find(from + displacement);
      reports_.add({RaceKind::free_in_use, access.operation.get(), access.writes, &operation, true, from + displacement,
                    to + displacement, lifetime.get()},
                   stacks_);
    });
    // Told once: what takes the bytes next need not meet them again.
    shadow_.remove_if(begin, end, [&](const RaceAccess& access) { return access.displacement == displacement; });
  });
  memory_.end_allocations(address, address + bytes, operation.stack, operation.sequence);
}

void RaceDetector::unregistered(std::uint64_t address, std::size_t bytes) {
  const RaceOperation operation = describe_host("cuMemHostUnregister", {});
  const std::uint64_t since = registrations_[address];
  for_each_access(address, bytes, [&](const RaceAccess& access, std::uint64_t begin, std::uint64_t end) {
    const RaceOperation& user = *access.operation;
    if (user.is_host() || user.sequence < since || order_.host().covers(user.moment.epoch)) return;
    reports_.add({RaceKind::free_in_use, &user, access.writes, &operation, true, begin, end}, stacks_);
  });
  registrations_.erase(address);
  memory_.forget_blocks(address, address + bytes);
}

void RaceDetector::leave_taken_back(int device, std::uint64_t begin, std::uint64_t end,
                                    const std::function<bool(std::uint64_t)>& needs_leave) {
  const RaceOperation operation = describe_host("cuCtxDisablePeerAccess", {});
  const std::string_view kernel = to_string(OperationKind::kernel);
  shadow_.for_each(begin, end, [&](const RaceAccess& access, std::uint64_t from, std::uint64_t to) {
    const RaceOperation& user = *access.operation;
    if (user.device != device || user.kind != kernel || order_.host().covers(user.moment.epoch)) return;
    if (!needs_leave(from)) return;
    const RaceLifetimePtr lifetime = memory_.find(from);
    reports_.add({RaceKind::foreign_memory, &user, access.writes, &operation, false, from, to, lifetime.get()},
                 stacks_);
  });
}

void RaceDetector::freed_nothing(std::uint64_t address, const char* entry) {
  const RaceOperation operation = describe_host(entry, {});
  const RaceLifetimePtr lifetime = memory_.find(address);
  reports_.add({RaceKind::invalid_free, &operation, true, nullptr, false, address, address + 1, lifetime.get()},
               stacks_);
}

}  // namespace cistern::simulated
