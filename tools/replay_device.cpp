#include "tools/replay_device.h"

#include <cistern/device.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "runtime/call_meter.h"
#include "runtime/context.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

double milliseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

class SimulatedReplayDevice final : public ReplayDevice {
 public:
  explicit SimulatedReplayDevice(const SimulatedOptions& options) : options_(options), driver_(options) {}

  const DriverApi& api() const override { return driver_.api(); }
  std::string name() const override { return "simulated"; }
  bool is_simulated() const override { return true; }
  std::uint64_t capacity_bytes() const override { return options_.capacity_bytes; }
  DriverFigures figures() const override {
    DriverFigures figures;
    std::ranges::transform(kDriverEntryNames, figures.calls.begin(),
                           [&](const char* entry) { return driver_.calls(entry); });
    figures.host_synchronizations = driver_.host_synchronizations();
    figures.modelled_ms = milliseconds(driver_.modelled_cost());
    return figures;
  }
  // Its driver counts what is allocated alone, and nothing is before a replay.
  void start_memory_watch() override {}
  std::uint64_t peak_reserved_bytes() const override { return driver_.peak_used_bytes(0); }
  bool has_event_lag() const override { return options_.event_lag_ticks != 0; }
  void tick() override { driver_.tick(); }

 private:
  SimulatedOptions options_;
  SimulatedDriver driver_;
};

// A table that asks the driver how much memory is free after each call that takes some, and
// remembers the least. It stands below the meter, so that its questions are not counted.
// The driver tells only the device's sum: what other processes take or give back meanwhile
// counts as the replay's, and so does what the driver takes for itself while it runs.
class MemoryWatch {
 public:
  // The device's context must be current.
  explicit MemoryWatch(const DriverApi& inner) : inner_(inner), api_(inner) {
    api_.mem_alloc = {this, [](void* self, CUdeviceptr* pointer, std::size_t bytes) {
                        return watch(self).after(watch(self).inner_.mem_alloc(pointer, bytes));
                      }};
    if (inner_.mem_create)
      api_.mem_create = {this, [](void* self, CUmemGenericAllocationHandle* handle, std::size_t bytes,
                                  const CUmemAllocationProp* properties, unsigned long long flags) {
                           return watch(self).after(watch(self).inner_.mem_create(handle, bytes, properties, flags));
                         }};
    start();
  }
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  const DriverApi& api() const { return api_; }
  // Counts from what is free now.
  void start() {
    std::size_t total = 0;
    check_driver(inner_, inner_.mem_get_info(&free_at_start_, &total), DriverEntryId::mem_get_info,
                 [] { return std::string("device 0"); });
    least_free_ = free_at_start_;
  }
  std::uint64_t peak_bytes() const { return free_at_start_ - least_free_; }

 private:
  static MemoryWatch& watch(void* self) { return *static_cast<MemoryWatch*>(self); }
  CUresult after(CUresult result) {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    if (result == CUDA_SUCCESS && inner_.mem_get_info(&free_bytes, &total) == CUDA_SUCCESS)
      least_free_ = std::min(least_free_, free_bytes);
    return result;
  }

  const DriverApi& inner_;
  DriverApi api_;
  std::size_t free_at_start_ = 0;
  std::size_t least_free_ = 0;
};

class ProcessReplayDevice final : public ReplayDevice {
 public:
  ProcessReplayDevice()
      : context_(process_driver(), process_contexts().primary(0)),
        watch_(process_driver()),
        metered_(watch_.api(), meter_) {}

  const DriverApi& api() const override { return metered_.api(); }
  std::string name() const override { return device_properties(0).name; }
  bool is_simulated() const override { return false; }
  std::uint64_t capacity_bytes() const override { return device_properties(0).total_memory; }
  DriverFigures figures() const override {
    DriverFigures figures;
    for (std::size_t i = 0; i < kDriverEntryCount; ++i) figures.calls[i] = meter_.calls(static_cast<DriverEntryId>(i));
    figures.host_synchronizations = meter_.host_synchronizations();
    figures.modelled_ms = milliseconds(meter_.modelled_cost());
    return figures;
  }
  void start_memory_watch() override { watch_.start(); }
  std::uint64_t peak_reserved_bytes() const override { return watch_.peak_bytes(); }
  bool has_event_lag() const override { return false; }
  void tick() override {}

 private:
  ContextGuard context_;
  MemoryWatch watch_;
  CallMeter meter_;
  MeteredDriver metered_;
};

}  // namespace

std::uint64_t DriverFigures::memory_management_calls() const {
  using enum DriverEntryId;
  std::uint64_t sum = 0;
  for (const DriverEntryId entry : {mem_alloc, mem_free, mem_create, mem_release, mem_address_reserve, mem_address_free,
                                    mem_map, mem_unmap, mem_set_access})
    sum += of(entry);
  return sum;
}

DriverFigures operator-(const DriverFigures& after, const DriverFigures& before) {
  DriverFigures difference;
  std::ranges::transform(after.calls, before.calls, difference.calls.begin(), std::minus<>());
  difference.host_synchronizations = after.host_synchronizations - before.host_synchronizations;
  difference.modelled_ms = after.modelled_ms - before.modelled_ms;
  return difference;
}

std::unique_ptr<ReplayDevice> make_simulated_replay_device(const SimulatedOptions& options) {
  SimulatedOptions accounts_only = options;
  accounts_only.backing = Backing::none;
  return std::make_unique<SimulatedReplayDevice>(accounts_only);
}

std::unique_ptr<ReplayDevice> make_process_replay_device() { return std::make_unique<ProcessReplayDevice>(); }

DeviceChoice choose_device() {
  const DeviceRequest request = requested_device();
  if (request.kind == DeviceRequest::Kind::simulated) return {true, request.simulated};
  // `cuda` fails here where there is no device, with what to do; `auto` falls back and says so.
  return {SimulatedDriver::behind(process_driver()) != nullptr, {}};
}

}  // namespace cistern
