// The controls of a simulated driver, as tests and tools use them.

#include <cistern/error.h>
#include <cistern/simulated.h>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/simulated/driver_state.h"

namespace cistern {
namespace {

using simulated::MemoryAccess;
using simulated::OperationKind;
using simulated::OperationLabel;
using simulated::StreamQueue;
using Lock = simulated::DriverState::Lock;

DriverEntryId require_entry(std::string_view name) {
  const auto entry = find_driver_entry(name);
  if (!entry) {
    throw InvalidArgument("simulated driver: no entry is named '" + std::string(name) +
                          "'; expected a driver's name such as cuMemAlloc");
  }
  return *entry;
}

// An empty name means every entry.
std::optional<DriverEntryId> require_entries(std::string_view name) {
  return name.empty() ? std::nullopt : std::optional(require_entry(name));
}

void require_call_number(std::uint64_t k) {
  if (k == 0) throw InvalidArgument("simulated driver: call 0 cannot fail: expected 1 (the next) or more");
}

CUresult require_error(int error) {
  if (error > CUDA_SUCCESS && error <= CUDA_ERROR_UNKNOWN) return static_cast<CUresult>(error);
  throw InvalidArgument("simulated driver: no call fails with " + std::to_string(error) +
                        ": expected a CUresult that is an error");
}

std::vector<MemoryAccess> accesses_of(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  std::vector<MemoryAccess> accesses;
  accesses.reserve(reads.size() + writes.size());
  const auto add = [&accesses](const MemoryRange& range, bool is_write) {
    MemoryAccess access{reinterpret_cast<std::uint64_t>(range.address), range.bytes, is_write};
    access.bytes = access.end() - access.address;  // no address is beyond the last
    accesses.push_back(access);
  };
  for (const MemoryRange& range : reads) add(range, false);
  for (const MemoryRange& range : writes) add(range, true);
  return accesses;
}

[[noreturn]] void throw_refused(CUresult refused, const char* control) {
  throw DriverError(refused, control,
                    std::string(control) + ": the stream's capture, or another's, forbids it (error " +
                        std::to_string(refused) + ")");
}

}  // namespace

struct SimulatedDriver::Implementation : simulated::DriverState {
  using DriverState::DriverState;

  void require_device(int index) const {
    if (is_device(index)) return;
    throw InvalidArgument("simulated driver: device " + std::to_string(index) + ": expected 0 to " +
                          std::to_string(device_count() - 1));
  }

  // A running operation that waited for operations would wait for itself.
  void require_outside_operation(const char* control) const {
    if (!simulated::is_inside_operation(static_cast<const DriverState*>(this))) return;
    throw DriverError(CUDA_ERROR_NOT_PERMITTED, control,
                      std::string(control) + ": a function that runs as an operation may call nothing of its driver");
  }

  void require_stepped() const {
    if (options.drive == Drive::stepped) return;
    throw NotSupported(
        "simulated driver: step: with drive=free work runs by itself; wait for it, or make the driver with "
        "drive=stepped");
  }

  StreamQueue& require_stream(CUstream handle, int index) {
    require_device(index);
    if (StreamQueue* stream = streams.find(handle, index)) return *stream;
    throw InvalidArgument("simulated driver: " + fmt::format("{:#x}", reinterpret_cast<std::uint64_t>(handle)) +
                          " is no stream of this driver: expected one that was created and not destroyed");
  }
  // Default streams are those of the thread's current device, or of the first.
  StreamQueue& require_stream(CUstream handle) { return require_stream(handle, std::max(current.get(), 0)); }

  // Adds what a kernel of device `index` does with the ranges, all of which it may.
  void list_touches(std::vector<simulated::Touch>& touches, const std::vector<MemoryRange>& ranges, int index,
                    bool write) const {
    for (const MemoryRange& range : ranges) {
      const simulated::Touch touch{reinterpret_cast<std::uint64_t>(range.address), range.bytes, write, index};
      if (!may_touch(touch, simulated::Moment::call)) {
        throw InvalidArgument("simulated driver: " + std::to_string(range.bytes) + " bytes at " +
                              fmt::format("{:#x}", touch.address) + " are not memory that device " +
                              std::to_string(index) + " may " + (write ? "write" : "read"));
      }
      if (touch.bytes != 0) touches.push_back(touch);
    }
  }
};

SimulatedDriver::SimulatedDriver(SimulatedOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(options), this)) {}
SimulatedDriver::~SimulatedDriver() = default;

const DriverApi& SimulatedDriver::api() const noexcept { return implementation_->api; }

SimulatedDriver* SimulatedDriver::behind(const DriverApi& api) noexcept {
  simulated::DriverState* state = simulated::find_driver_state(api);
  return state == nullptr ? nullptr : state->driver;
}

// --- Streams and work -------------------------------------------------------------------

StreamHandle SimulatedDriver::create_stream(int device, int priority) {
  Implementation& state = *implementation_;
  state.require_device(device);
  const std::lock_guard lock(state.mutex);
  state.device(device).is_held = true;
  return state.streams.create(device, CU_STREAM_NON_BLOCKING, priority);
}

void SimulatedDriver::destroy_stream(StreamHandle stream) {
  Implementation& state = *implementation_;
  if (simulated::Streams::is_default(stream)) {
    throw InvalidArgument("simulated driver: a default stream cannot be destroyed");
  }
  std::shared_ptr<simulated::Graph> dropped;  // let go of with no lock held
  const std::lock_guard lock(state.mutex);
  StreamQueue& queue = state.require_stream(stream);
  if (state.races) state.races->stream_destroyed(queue);
  dropped = state.leave_capture(queue);
  state.streams.destroy(queue);
}

void SimulatedDriver::launch(StreamHandle stream, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes,
                             std::chrono::nanoseconds duration, std::function<void()> function, std::string name) {
  Implementation& state = *implementation_;
  state.require_outside_operation("launch");
  if (duration < std::chrono::nanoseconds::zero()) {
    throw InvalidArgument("simulated driver: a duration of " + std::to_string(duration.count()) +
                          " ns: expected none below 0");
  }
  simulated::Work work{.label = {OperationKind::kernel, std::move(name)}, .duration = duration};
  if (function) {
    work.function = [function = std::move(function)](CUresult) {
      function();
      return CUDA_SUCCESS;
    };
  }
  const std::lock_guard lock(state.mutex);  // what is refused goes after it
  StreamQueue& queue = state.require_stream(stream);
  const int index = queue.device;
  std::vector<simulated::Touch> touches;
  touches.reserve(reads.size() + writes.size());
  try {
    state.list_touches(touches, reads, index, false);
    state.list_touches(touches, writes, index, true);
  } catch (const InvalidArgument&) {
    state.tell_refused(queue, work.label, accesses_of(reads, writes));
    throw;
  }
  state.add_touches(work, std::move(touches));
  const CUresult refused = state.submit(queue, std::move(work));
  if (refused != CUDA_SUCCESS) throw_refused(refused, "launch");
}

void SimulatedDriver::occupy(StreamHandle stream, std::chrono::nanoseconds duration) {
  launch(stream, {}, {}, duration, {});
}

// --- The drive --------------------------------------------------------------------------

bool SimulatedDriver::step() {
  Implementation& state = *implementation_;
  state.require_outside_operation("step");
  state.require_stepped();
  Lock lock(state.mutex);
  return state.executor.step(lock);
}

bool SimulatedDriver::step(StreamHandle stream, int device) {
  Implementation& state = *implementation_;
  state.require_outside_operation("step");
  state.require_stepped();
  Lock lock(state.mutex);
  return state.executor.step(lock, state.require_stream(stream, device));
}

void SimulatedDriver::run_until_idle() {
  if (implementation_->options.drive == Drive::stepped) {
    while (step()) {
    }
    return;
  }
  implementation_->require_outside_operation("run_until_idle");
  Lock lock(implementation_->mutex);
  implementation_->executor.finish_all(lock);
}

void SimulatedDriver::run_until_idle(StreamHandle stream, int device) {
  Implementation& state = *implementation_;
  state.require_outside_operation("run_until_idle");
  Lock lock(state.mutex);
  state.executor.finish(lock, state.executor.targets(state.require_stream(stream, device)));
}

void SimulatedDriver::tick() {
  const std::lock_guard lock(implementation_->mutex);
  implementation_->executor.tick();
}

void SimulatedDriver::set_event_lag(std::uint64_t ticks) {
  const std::lock_guard lock(implementation_->mutex);
  implementation_->executor.set_event_lag(ticks);
}

std::chrono::nanoseconds SimulatedDriver::virtual_time(int device) const {
  implementation_->require_device(device);
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->executor.device(device).latest_end;
}

// --- Counters, costs and faults ---------------------------------------------------------

std::uint64_t SimulatedDriver::calls() const { return implementation_->meter.calls(); }

std::uint64_t SimulatedDriver::calls(std::string_view entry) const {
  return implementation_->meter.calls(require_entry(entry));
}

std::map<std::string, std::uint64_t> SimulatedDriver::calls_by_name() const {
  std::map<std::string, std::uint64_t> calls;
  for (std::size_t entry = 0; entry < kDriverEntryCount; ++entry) {
    calls[kDriverEntryNames[entry]] = implementation_->meter.calls(static_cast<DriverEntryId>(entry));
  }
  return calls;
}

std::uint64_t SimulatedDriver::host_synchronizations() const { return implementation_->meter.host_synchronizations(); }

std::chrono::nanoseconds SimulatedDriver::modelled_cost() const { return implementation_->meter.modelled_cost(); }

void SimulatedDriver::set_cost(std::string_view entry, std::chrono::nanoseconds cost) {
  const DriverEntryId id = require_entry(entry);
  if (cost.count() < 0)
    throw InvalidArgument("simulated driver: " + std::string(entry) + " at " + std::to_string(cost.count()) +
                          " ns: expected a cost of none below 0");
  implementation_->meter.set_cost(id, cost);
}

void SimulatedDriver::fail_call(std::string_view entry, std::uint64_t k, int error) {
  require_call_number(k);
  const simulated::Fault fault{require_error(error), false};
  implementation_->faults.fail_call(require_entries(entry), k, fault);
}

void SimulatedDriver::fail_call_for_good(std::string_view entry, std::uint64_t k, int error) {
  require_call_number(k);
  const simulated::Fault fault{require_error(error), true};
  implementation_->faults.fail_call(require_entries(entry), k, fault);
}

void SimulatedDriver::fail_at_random(std::string_view entry, double probability, std::uint64_t seed, int error) {
  if (!(probability >= 0 && probability <= 1)) {
    throw InvalidArgument("simulated driver: a probability of " + std::to_string(probability) +
                          ": expected one from 0 to 1");
  }
  const simulated::Fault fault{require_error(error), false};
  implementation_->faults.fail_at_random(require_entries(entry), probability, seed, fault);
}

void SimulatedDriver::refuse_requests_from(std::size_t bytes) { implementation_->faults.refuse_requests_from(bytes); }

void SimulatedDriver::fail_device(int device, int error) {
  implementation_->require_device(device);
  const CUresult failure = require_error(error);
  const std::lock_guard lock(implementation_->mutex);
  implementation_->executor.device(device).failure = failure;
}

void SimulatedDriver::shut_down() noexcept { implementation_->gone.store(true, std::memory_order_release); }

std::uint64_t SimulatedDriver::calls_from_operations() const {
  return implementation_->calls_from_operations.count.load(std::memory_order_relaxed);
}

std::string SimulatedDriver::first_call_from_operations() const {
  const DriverEntryId first = implementation_->calls_from_operations.first.load(std::memory_order_relaxed);
  return first == DriverEntryId::count ? "" : kDriverEntryNames[static_cast<std::size_t>(first)];
}

std::uint64_t SimulatedDriver::faults_injected() const { return implementation_->faults.injected(); }
void SimulatedDriver::clear_faults() { implementation_->faults.clear(); }

// --- Races ------------------------------------------------------------------------------

std::vector<RaceReport> SimulatedDriver::race_reports() const {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->races ? implementation_->races->reports() : std::vector<RaceReport>();
}

void SimulatedDriver::clear_race_reports() {
  const std::lock_guard lock(implementation_->mutex);
  if (implementation_->races) implementation_->races->clear_reports();
}

void SimulatedDriver::host_access(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  const std::vector<MemoryAccess> accesses = accesses_of(reads, writes);
  const std::lock_guard lock(implementation_->mutex);
  for (const MemoryAccess& access : accesses) {
    if (implementation_->show_to_host(access.address, access.bytes)) continue;
    throw DriverError(CUDA_ERROR_MAP_FAILED, "host_access",
                      "simulated driver: the host has no mapping left for " + std::to_string(access.bytes) +
                          " bytes at " + fmt::format("{:#x}", access.address));
  }
  if (implementation_->races) implementation_->races->host_access(accesses);
}

// --- Memory -----------------------------------------------------------------------------

std::size_t SimulatedDriver::used_bytes(int device) const {
  implementation_->require_device(device);
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->device(device).capacity.used();
}

std::size_t SimulatedDriver::peak_used_bytes(int device) const {
  implementation_->require_device(device);
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->device(device).capacity.peak();
}

}  // namespace cistern
