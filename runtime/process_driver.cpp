#include "runtime/process_driver.h"

#include <cistern/error.h>
#include <cistern/simulated.h>
#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#include "runtime/cuda_driver.h"
#include "runtime/fork_loss.h"
#include "runtime/nvtx_memory.h"

namespace cistern {
namespace {

constexpr std::string_view kCuda = "cuda";
constexpr std::string_view kAuto = "auto";
constexpr std::string_view kSimulated = "simulated";

// A driver, what its table lives in, and its contexts.
struct LoadedDriver {
  DriverApi cuda;                              // filled if it is the CUDA driver
  std::unique_ptr<SimulatedDriver> simulated;  // null if it is
  std::unique_ptr<Contexts> contexts;
  std::string notice;  // said when it is first used; empty: nothing to say
};

SimulatedOptions simulated_options(std::string_view settings) {
  SimulatedOptions options;
  try {
    options = SimulatedOptions::parse(settings);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("CISTERN_DEVICE: {}", error.what()));
  }
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) options.set_visible_devices(visible);
  return options;
}

std::unique_ptr<LoadedDriver> load_cuda() {
  auto driver = std::make_unique<LoadedDriver>();
  try {
    driver->cuda = load_cuda_driver();
    annotate_memory(driver->cuda);
    driver->contexts = std::make_unique<Contexts>(driver->cuda);
  } catch (const NotSupported& error) {
    throw NotSupported(fmt::format("{}. Install an NVIDIA driver, or set CISTERN_DEVICE=simulated to run without a GPU",
                                   error.what()));
  }
  return driver;
}

std::unique_ptr<LoadedDriver> load_simulated(const SimulatedOptions& options) {
  auto driver = std::make_unique<LoadedDriver>();
  driver->simulated = std::make_unique<SimulatedDriver>(options);
  driver->contexts = std::make_unique<Contexts>(driver->simulated->api());
  return driver;
}

std::unique_ptr<LoadedDriver> load_auto() {
  std::string reason;
  try {
    return load_cuda();
  } catch (const NotSupported& error) {
    reason = error.what();
  } catch (const DriverError& error) {
    reason = error.what();
  }
  // All of it is visible: CUDA_VISIBLE_DEVICES spoke of the CUDA devices, and may be why none is there.
  auto driver = load_simulated(SimulatedOptions());
  driver->notice =
      fmt::format("cistern: no CUDA device is used, the device is simulated (CISTERN_DEVICE=auto): {}\n", reason);
  return driver;
}

std::unique_ptr<LoadedDriver> load_requested() {
  const DeviceRequest request = requested_device();
  switch (request.kind) {
    case DeviceRequest::Kind::cuda:
      break;
    case DeviceRequest::Kind::simulated:
      return load_simulated(request.simulated);
    case DeviceRequest::Kind::automatic:
      return load_auto();
  }
  return load_cuda();
}

// None of these has a destructor that does anything: code that runs at exit may call.
std::mutex load_mutex;
std::atomic<LoadedDriver*> loaded{nullptr};
std::atomic<bool> in_use{false};

// Whether this thread holds the mutex because it loads. The driver's cuInit may fork, for
// nvidia-modprobe: the handlers then find the mutex theirs already, and leave it as it is.
thread_local bool loading = false;

class LoadingScope {
 public:
  LoadingScope() { loading = true; }
  ~LoadingScope() { loading = false; }
  LoadingScope(const LoadingScope&) = delete;
  LoadingScope& operator=(const LoadingScope&) = delete;

 private:
  std::lock_guard<std::mutex> lock_{load_mutex};
};

// A child must not find the mutex held by a thread that it does not have.
void before_fork() {
  if (!loading) load_mutex.lock();
}
void after_fork_in_parent() {
  if (!loading) load_mutex.unlock();
}
void after_fork_in_child() {
  // No driver survives a fork: its threads and its connection to the device stay behind.
  if (loaded.load(std::memory_order_relaxed) != nullptr) driver_lost_in_fork.store(true, std::memory_order_relaxed);
  if (!loading) load_mutex.unlock();
}

LoadedDriver& load() {
  static const int watches_forks = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (watches_forks != 0) throw std::bad_alloc();
  if (driver_lost_in_fork.load(std::memory_order_relaxed))
    throw NotSupported(
        "this process was forked from one that had loaded the device's driver already, and drivers do not work in "
        "a forked child: fork before the first use of a device, or start the child with exec");
  if (LoadedDriver* driver = loaded.load(std::memory_order_acquire)) return *driver;
  const LoadingScope scope;
  if (LoadedDriver* driver = loaded.load(std::memory_order_relaxed)) return *driver;
  LoadedDriver* driver = load_requested().release();
  loaded.store(driver, std::memory_order_release);
  return *driver;
}

LoadedDriver& use() {
  LoadedDriver& driver = load();
  if (!in_use.load(std::memory_order_acquire) && !in_use.exchange(true, std::memory_order_acq_rel))
    std::fputs(driver.notice.c_str(), stderr);
  return driver;
}

}  // namespace

DeviceRequest requested_device() {
  using Kind = DeviceRequest::Kind;
  const char* variable = std::getenv("CISTERN_DEVICE");
  const std::string_view choice = variable == nullptr ? "" : variable;
  if (choice.empty() || choice == kCuda) return {};
  if (choice == kAuto) return {.kind = Kind::automatic};
  if (choice == kSimulated) return {Kind::simulated, simulated_options("")};
  if (choice.starts_with(kSimulated) && choice[kSimulated.size()] == ':')
    return {Kind::simulated, simulated_options(choice.substr(kSimulated.size() + 1))};
  throw InvalidArgument(fmt::format(
      "CISTERN_DEVICE={}: expected cuda, simulated, simulated:SETTINGS (e.g. devices=2,capacity=80GiB) or auto",
      choice));
}

const DriverApi& process_driver() { return use().contexts->api(); }

Contexts& process_contexts() { return *use().contexts; }

bool process_driver_loaded() noexcept {
  return in_use.load(std::memory_order_acquire) && !driver_lost_in_fork.load(std::memory_order_relaxed);
}

int process_device_count() try {
  // Also in a forked child: the number is known without the driver.
  if (LoadedDriver* driver = loaded.load(std::memory_order_acquire)) return driver->contexts->device_count();
  return load().contexts->device_count();
} catch (const NotSupported&) {
  return 0;
}

int resolve_device(Device device) {
  const int index = device.is_current() ? current_device().index() : device.index();
  process_contexts().require(index);
  return index;
}

}  // namespace cistern
