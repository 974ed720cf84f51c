#include "runtime/simulated/libcuda/process_device.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace cistern::simulated {
namespace {

std::atomic<bool> process_ends{false};
struct SaysSoAtExit {
  ~SaysSoAtExit() { process_ends.store(true, std::memory_order_relaxed); }
} const says_so_at_exit;

SimulatedDriver* make_device() noexcept {
  try {
    const char* settings = std::getenv("CISTERN_SIMULATED");
    SimulatedOptions options = SimulatedOptions::parse(settings == nullptr ? "" : settings);
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) options.set_visible_devices(visible);
    return new SimulatedDriver(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cistern's libcuda.so.1: CISTERN_SIMULATED: %s\n", error.what());
    return nullptr;
  }
}

}  // namespace

SimulatedDriver* process_device() noexcept {
  static SimulatedDriver* const device = make_device();
  return device;
}

bool is_process_ending() noexcept { return process_ends.load(std::memory_order_relaxed); }

}  // namespace cistern::simulated
