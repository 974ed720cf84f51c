// The controls of the process's own device, when it is simulated.

#include <cistern/error.h>
#include <cistern/simulated.h>
#include <cistern/simulated_controls.h>

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern::simulated {
namespace {

using Function = std::function<void()>;

[[noreturn]] void throw_not_simulated() {
  throw NotSupported("the device is not simulated; start the process with CISTERN_DEVICE=simulated");
}

int run(void* function) {
  try {
    (*static_cast<Function*>(function))();
    return 0;
  } catch (...) {
    return 1;  // nothing may be thrown across the library's border: its kernel crashes
  }
}

void drop(void* function) { delete static_cast<Function*>(function); }

// Throws what the member of SimulatedDriver of that name did in the library.
void check(const SimulatedControls& controls, int result, const char* control) {
  if (result == CUDA_SUCCESS) return;
  const std::string words = controls.last_error();
  if (result == CUDA_ERROR_INVALID_VALUE) throw InvalidArgument(words);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw std::bad_alloc();
  throw DriverError(result, control, words);
}

void launch_in_library(const SimulatedControls& controls, StreamHandle stream, const std::vector<MemoryRange>& reads,
                       const std::vector<MemoryRange>& writes, std::chrono::nanoseconds duration, Function function,
                       const std::string& name) {
  if (duration < std::chrono::nanoseconds::zero())
    throw InvalidArgument("simulated driver: a duration of " + std::to_string(duration.count()) +
                          " ns: expected none below 0");
  auto owned = function ? std::make_unique<Function>(std::move(function)) : nullptr;
  const bool has_function = owned != nullptr;
  const int result = controls.launch_owned(stream, reads.data(), reads.size(), writes.data(), writes.size(),
                                           static_cast<std::uint64_t>(duration.count()), has_function ? run : nullptr,
                                           owned.release(), has_function ? drop : nullptr, name.c_str());
  check(controls, result, "launch");
}

}  // namespace

bool is_active() noexcept {
  try {
    const DriverApi& api = process_driver();
    return SimulatedDriver::behind(api) != nullptr || api.controls != nullptr;
  } catch (const std::exception&) {
    return false;  // no driver at all
  }
}

SimulatedDriver& driver() {
  const DriverApi& api = process_driver();
  if (SimulatedDriver* const driver = SimulatedDriver::behind(api)) return *driver;
  if (api.controls == nullptr) throw_not_simulated();
  throw NotSupported(
      "the simulated driver is that of a libcuda.so.1, whose objects are its own: expected its "
      "cistern_simulated_controls "
      "(cistern/simulated_controls.h)");
}

void launch(const Stream& stream, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes,
            std::chrono::nanoseconds duration, std::function<void()> function, std::string name) {
  const DriverApi& api = process_driver();
  SimulatedDriver* const simulated = SimulatedDriver::behind(api);
  if (simulated == nullptr && api.controls == nullptr) throw_not_simulated();
  const ContextGuard context(api, process_contexts().primary(StreamAccess::device(stream)));
  if (simulated == nullptr) {
    launch_in_library(*api.controls, stream.native_handle(), reads, writes, duration, std::move(function), name);
    return;
  }
  simulated->launch(stream.native_handle(), std::move(reads), std::move(writes), duration, std::move(function),
                    std::move(name));
}

void host_access(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  if (!is_active()) return;
  const DriverApi& api = process_driver();
  if (SimulatedDriver* const simulated = SimulatedDriver::behind(api)) {
    simulated->host_access(reads, writes);
  } else {
    check(*api.controls, api.controls->host_access(reads.data(), reads.size(), writes.data(), writes.size()),
          "host_access");
  }
}

}  // namespace cistern::simulated
