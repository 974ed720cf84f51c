// The controls of the process's own device, when it is simulated.

#include <cistern/error.h>
#include <cistern/simulated.h>

#include <exception>
#include <string>
#include <utility>

#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern::simulated {
namespace {

SimulatedDriver& require(SimulatedDriver* driver) {
  if (driver == nullptr) {
    throw NotSupported("the device is not simulated; start the process with CISTERN_DEVICE=simulated");
  }
  return *driver;
}

}  // namespace

bool is_active() noexcept {
  try {
    return SimulatedDriver::behind(process_driver()) != nullptr;
  } catch (const std::exception&) {
    return false;  // no driver at all
  }
}

SimulatedDriver& driver() { return require(SimulatedDriver::behind(process_driver())); }

void launch(const Stream& stream, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes,
            std::chrono::nanoseconds duration, std::function<void()> function, std::string name) {
  SimulatedDriver& simulated = driver();
  const ContextGuard context(process_driver(), process_contexts().primary(StreamAccess::device(stream)));
  simulated.launch(stream.native_handle(), std::move(reads), std::move(writes), duration, std::move(function),
                   std::move(name));
}

void host_access(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  if (is_active()) driver().host_access(reads, writes);
}

}  // namespace cistern::simulated
