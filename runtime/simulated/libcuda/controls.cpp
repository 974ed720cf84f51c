// The controls as functions of C, over the process's device.

#include <cistern/error.h>
#include <cistern/simulated_controls.h>
#include <cuda.h>

#include <chrono>
#include <exception>
#include <functional>
#include <new>
#include <vector>

#include "runtime/simulated/libcuda/process_device.h"

namespace cistern::simulated {
namespace {

// What `control` throws as the driver's code. Nothing thrown may leave a function of C.
template <class Control>
int call(Control control) noexcept {
  SimulatedDriver* device = process_device();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_process_ending()) return CUDA_ERROR_DEINITIALIZED;
  try {
    control(*device);
    return CUDA_SUCCESS;
  } catch (const InvalidArgument&) {
    return CUDA_ERROR_INVALID_VALUE;
  } catch (const DriverError& error) {
    return error.code();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception&) {
    return CUDA_ERROR_UNKNOWN;
  }
}

std::vector<MemoryRange> ranges(const MemoryRange* first, std::size_t count) {
  if (first == nullptr && count != 0) throw InvalidArgument("ranges are counted but not given");
  return std::vector<MemoryRange>(first, first + count);
}

int launch(void* stream, const MemoryRange* reads, std::size_t read_count, const MemoryRange* writes,
           std::size_t write_count, std::uint64_t nanoseconds, void (*function)(void*), void* data) {
  return call([&](SimulatedDriver& device) {
    std::function<void()> body;
    if (function != nullptr) body = [function, data] { function(data); };
    device.launch(static_cast<StreamHandle>(stream), ranges(reads, read_count), ranges(writes, write_count),
                  std::chrono::nanoseconds(nanoseconds), std::move(body));
  });
}

int step(int* ran) {
  return call([&](SimulatedDriver& device) {
    if (ran == nullptr) throw InvalidArgument("step: nowhere to say whether anything ran");
    *ran = device.step() ? 1 : 0;
  });
}

int run_until_idle() {
  return call([](SimulatedDriver& device) { device.run_until_idle(); });
}

int tick() {
  return call([](SimulatedDriver& device) { device.tick(); });
}

int fail_call(const char* entry, std::uint64_t k, int error) {
  return call([&](SimulatedDriver& device) { device.fail_call(entry == nullptr ? "" : entry, k, error); });
}

int clear_faults() {
  return call([](SimulatedDriver& device) { device.clear_faults(); });
}

constexpr SimulatedControls kControls = {
    sizeof(SimulatedControls), launch, step, run_until_idle, tick, fail_call, clear_faults};

}  // namespace
}  // namespace cistern::simulated

const cistern::SimulatedControls* cistern_simulated_controls() { return &cistern::simulated::kControls; }
