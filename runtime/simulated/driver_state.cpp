#include "runtime/simulated/driver_state.h"

#include <cistern/error.h>

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace cistern::simulated {
namespace {

// Address space for each byte of memory, for allocations and again for reservations: so
// that scattered addresses are no reason for a refusal before the memory is full.
constexpr std::size_t kWindowsPerCapacity = 4;
// Reservations have more while all of them together stay below this: programs reserve far more
// than they map, and on a real device address space is plentiful.
constexpr std::size_t kRoomyReservations = std::size_t{1} << 45;
constexpr std::size_t kMostReservationsPerCapacity = 128;
// The access of a mapping is one bit a device.
constexpr int kMostDevices = 64;

// The drivers that live, for find_driver_state.
struct LiveDrivers {
  std::mutex mutex;
  std::vector<DriverState*> states;
};
// Never destroyed: drivers may end while the process exits.
LiveDrivers& live_drivers() {
  static auto* drivers = new LiveDrivers;
  return *drivers;
}

// A value of an enumeration whose last one is `last`.
template <class Enumeration>
void require_named(const char* setting, Enumeration value, Enumeration last) {
  const int number = static_cast<int>(value);
  if (number >= 0 && number <= static_cast<int>(last)) return;
  throw InvalidArgument("simulated driver: " + std::string(setting) + " of the number " + std::to_string(number) +
                        ": expected 0 to " + std::to_string(static_cast<int>(last)));
}

SimulatedOptions checked(SimulatedOptions options) {
  if (options.devices < 1 || options.devices > kMostDevices) {
    throw InvalidArgument("simulated driver: devices=" + std::to_string(options.devices) + ": expected 1 to " +
                          std::to_string(kMostDevices));
  }
  // Four windows for each of two uses, of at most 64 devices, must leave an address valid.
  constexpr std::size_t most = std::size_t{1} << 46;
  const std::size_t windows = 2 * kWindowsPerCapacity * static_cast<std::size_t>(options.devices);
  if (options.capacity_bytes > most / windows) {
    throw InvalidArgument("simulated driver: capacity of " + std::to_string(options.capacity_bytes) +
                          " bytes: expected at most " + std::to_string(most / windows) + " for " +
                          std::to_string(options.devices) + " devices");
  }
  if (options.drive == Drive::free && options.backing == Backing::none) {
    throw InvalidArgument(
        "simulated driver: drive=free with backing=none: expected backing=memory: accounts alone keep no threads");
  }
  require_named("drive", options.drive, Drive::free);
  require_named("backing", options.backing, Backing::none);
  require_named("races", options.races, RaceMode::abort);
  if (options.race_frames < 0 || options.race_frames > SimulatedOptions::kMostRaceFrames) {
    throw InvalidArgument("simulated driver: race_frames=" + std::to_string(options.race_frames) + ": expected 0 to " +
                          std::to_string(SimulatedOptions::kMostRaceFrames));
  }
  for (const auto& [a, b] : options.peers.value_or(std::vector<std::pair<int, int>>())) {
    const auto is_device = [&](int device) { return device >= 0 && device < options.devices; };
    if (is_device(a) && is_device(b) && a != b) continue;
    throw InvalidArgument("simulated driver: peers=" + std::to_string(a) + "-" + std::to_string(b) +
                          ": expected two of the devices 0 to " + std::to_string(options.devices - 1));
  }
  if (!options.visible_devices) return options;
  for (const int device : *options.visible_devices) {
    if (device < 0 || device >= options.devices) {
      throw InvalidArgument("simulated driver: visible device " + std::to_string(device) + ": expected 0 to " +
                            std::to_string(options.devices - 1));
    }
    if (std::count(options.visible_devices->begin(), options.visible_devices->end(), device) > 1)
      throw InvalidArgument("simulated driver: visible device " + std::to_string(device) +
                            " is named twice: expected each once");
  }
  return options;
}

std::vector<int> physical_devices(const SimulatedOptions& options) {
  if (options.visible_devices) return *options.visible_devices;
  std::vector<int> all;
  all.reserve(static_cast<std::size_t>(options.devices));
  for (int device = 0; device < options.devices; ++device) all.push_back(device);
  return all;
}

std::size_t window_bytes(const SimulatedOptions& options) {
  return round_up(std::max(options.capacity_bytes, kGranule), kGranule) * kWindowsPerCapacity;
}

std::deque<SimulatedDevice> make_devices(const SimulatedOptions& options, HostPages& pages) {
  std::deque<SimulatedDevice> devices;
  const std::vector<int> physical = physical_devices(options);
  if (physical.empty()) return devices;
  const std::size_t window = window_bytes(options);
  std::uint64_t begin = pages.reserve_device(window * physical.size());
  for (const int index : physical) {
    devices.emplace_back(index, options.capacity_bytes, AddressWindow{begin, begin + window}, pages);
    begin += window;
  }
  return devices;
}

AddressWindow reserve_virtual_window(const SimulatedOptions& options, std::size_t devices, HostPages& pages) {
  if (devices == 0) return {};
  const std::size_t least = window_bytes(options) * devices;
  const std::size_t factor = std::min(kRoomyReservations / least, kMostReservationsPerCapacity / kWindowsPerCapacity);
  return pages.reserve_for_mappings(least, least * std::max<std::size_t>(factor, 1));
}

std::vector<AddressWindow> memory_windows(const std::deque<SimulatedDevice>& devices, const VirtualMemory& mappings) {
  std::vector<AddressWindow> windows{mappings.window()};
  for (const auto& device : devices) windows.push_back(device.memory.window());
  return windows;
}

AddressWindow reserve_host_window(std::size_t devices, HostPages& pages) {
  if (devices == 0) return {};
  // More than this host could lock: what fails for want of room would have failed there.
  constexpr std::size_t most = std::size_t{512} << 30;
  const auto installed =
      static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = pages.backing() == Backing::none ? most : std::min(round_up(installed, kGranule), most);
  const std::uint64_t begin = pages.reserve_private(bytes);
  return {begin, begin + bytes};
}

// The pairs that are linked, as the driver's own numbers, which CUDA_VISIBLE_DEVICES may have changed.
std::vector<std::pair<int, int>> linked_peers(const SimulatedOptions& options) {
  const std::vector<int> physical = physical_devices(options);
  std::vector<std::pair<int, int>> linked;
  const auto are_linked = [&](int a, int b) {
    return !options.peers || std::any_of(options.peers->begin(), options.peers->end(), [&](const auto& pair) {
      return (pair.first == a && pair.second == b) || (pair.first == b && pair.second == a);
    });
  };
  for (std::size_t a = 0; a < physical.size(); ++a) {
    for (std::size_t b = a + 1; b < physical.size(); ++b) {
      if (are_linked(physical[a], physical[b])) linked.emplace_back(static_cast<int>(a), static_cast<int>(b));
    }
  }
  return linked;
}

std::vector<DeviceMemory*> memories_of(std::deque<SimulatedDevice>& devices) {
  std::vector<DeviceMemory*> memories;
  memories.reserve(devices.size());
  for (auto& device : devices) memories.push_back(&device.memory);
  return memories;
}

std::vector<DeviceCapacity*> capacities_of(std::deque<SimulatedDevice>& devices) {
  std::vector<DeviceCapacity*> capacities;
  capacities.reserve(devices.size());
  for (auto& device : devices) capacities.push_back(&device.capacity);
  return capacities;
}

}  // namespace

DriverState::DriverState(SimulatedOptions settings, SimulatedDriver* owner)
    : driver(owner),
      options(checked(std::move(settings))),
      shared_devices(options.shared.empty()
                         ? nullptr
                         : std::make_unique<SharedDevices>(options.shared, options.devices, options.capacity_bytes)),
      pages(options.backing),
      devices(make_devices(options, pages)),
      virtual_memory(reserve_virtual_window(options, devices.size(), pages), capacities_of(devices), pages,
                     handle_number()),
      host_memory(reserve_host_window(devices.size(), pages), pages),
      pools(memories_of(devices), handle_number()),
      graph_memory(memories_of(devices)),
      peers(device_count(), linked_peers(options)),
      executor(device_count(), this, options.drive, mutex),
      streams(executor, device_count(), handle_number()),
      events(HandleKind::event, handle_number(), HandleReuse::never),
      race_windows(number, memory_windows(devices, virtual_memory)),
      races(options.races == RaceMode::off
                ? nullptr
                : std::make_unique<RaceDetector>(options, number, device_count(), virtual_memory)),
      graphs(handle_number()) {
  executor.set_event_lag(options.event_lag_ticks);
  if (shared_devices) {
    for (SimulatedDevice& each : devices) each.capacity.share(*shared_devices, each.physical);
  }
  api = make_driver_api(*this);
  if (races) listen_to_block_notes(*this);
  LiveDrivers& live = live_drivers();
  const std::lock_guard lock(live.mutex);
  live.states.push_back(this);
}

DriverState::~DriverState() {
  executor.stop();
  LiveDrivers& live = live_drivers();
  const std::lock_guard lock(live.mutex);
  live.states.erase(std::find(live.states.begin(), live.states.end(), this));
}

CUresult DriverState::admit(DriverEntryId entry) {
  meter.count(entry);
  if (gone.load(std::memory_order_acquire)) return CUDA_ERROR_DEINITIALIZED;
  if (is_inside_operation(this)) {
    calls_from_operations.note(entry);
    if (races) report_call_inside(entry);
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (const CUresult fault = inject(entry); fault != CUDA_SUCCESS) return fault;
  const bool needs_init = entry != DriverEntryId::init && entry != DriverEntryId::driver_get_version &&
                          entry != DriverEntryId::get_error_name && entry != DriverEntryId::get_error_string;
  if (needs_init && !initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  return captures.is_any() ? check_capture(entry) : CUDA_SUCCESS;
}

CUresult DriverState::inject(DriverEntryId entry) {
  const Fault fault = faults.count(entry);
  if (fault.is_sticky && current.get() >= 0) {
    const std::lock_guard lock(mutex);
    executor.device(current.get()).failure = fault.error;
  }
  return fault.error;
}

CUresult DriverState::context_status(int index) {
  if (!device(index).has_context()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return executor.device(index).failure;
}

CUcontext DriverState::context_of(int index) const noexcept {
  const auto slot = static_cast<std::uint32_t>(index) + 1;
  return reinterpret_cast<CUcontext>(make_handle(HandleKind::context, handle_number(), 0, slot));
}

int DriverState::device_of(CUcontext context) const noexcept {
  for (int index = 0; index < device_count(); ++index) {
    if (context_of(index) == context) return index;
  }
  return -1;
}

CUresult DriverState::find_current(int* index) {
  *index = current.get();
  return *index < 0 ? CUDA_ERROR_INVALID_CONTEXT : context_status(*index);
}

CUresult DriverState::find_stream(CUstream handle, StreamQueue** stream) {
  const int index = current.get();
  if (index < 0 && Streams::is_default(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = streams.find(handle, index);
  return *stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : context_status((*stream)->device);
}

CUresult DriverState::find_event(CUevent handle, Event** event) {
  *event = events.find(reinterpret_cast<std::uint64_t>(handle));
  return *event == nullptr ? CUDA_ERROR_INVALID_HANDLE : context_status((*event)->device);
}

void DriverState::tell_refused(const StreamQueue& stream, const OperationLabel& label,
                               const std::vector<MemoryAccess>& accesses) {
  if (races) races->refused(stream, label, accesses);
}

// One call of the host's waits once, however many devices it waits for.
CUresult DriverState::wait_for_devices(Lock& lock, std::uint64_t set) {
  CUresult failure = CUDA_SUCCESS;
  bool waits = false;
  for (int index = 0; index < device_count(); ++index) {
    if ((set >> index & 1) == 0) continue;
    waits = waits || !executor.is_idle(index) || executor.has_lagging_records(index);
  }
  if (waits) meter.count_host_synchronization();
  for (int index = 0; index < device_count(); ++index) {
    if ((set >> index & 1) == 0) continue;
    if (!executor.is_idle(index)) executor.finish(lock, executor.targets(index));
    executor.complete_lagging_records(index);
    if (failure == CUDA_SUCCESS) failure = executor.device(index).failure;
  }
  pools.host_waited();
  executor.wait_for_running(lock);
  return failure;
}

DriverState* find_driver_state(const DriverApi& api) noexcept {
  LiveDrivers& live = live_drivers();
  const std::lock_guard lock(live.mutex);
  const auto found = std::find(live.states.begin(), live.states.end(), api.init.self());
  return found == live.states.end() ? nullptr : *found;
}

void forget_thread(std::uint64_t thread) noexcept {
  LiveDrivers& live = live_drivers();
  const std::lock_guard lock(live.mutex);  // a driver that ends waits for it
  for (DriverState* state : live.states) {
    state->current.forget(thread);
    std::vector<std::shared_ptr<Graph>> dropped;  // let go of with the state's lock not held
    const std::lock_guard state_lock(state->mutex);
    try {
      state->captures.forget_thread(thread);
      for (StreamQueue* stream : state->streams.of_thread(thread)) {
        dropped.push_back(state->leave_capture(*stream));
        if (state->races) state->races->stream_destroyed(*stream);
      }
      state->streams.retire_thread(thread);
    } catch (const std::bad_alloc&) {
      // The host has no memory: the streams stay until the driver ends.
    }
  }
}

}  // namespace cistern::simulated
