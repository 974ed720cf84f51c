// The controls as functions of C, over the process's device.

#include <cistern/error.h>
#include <cistern/simulated_controls.h>
#include <cuda.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "runtime/simulated/libcuda/process_device.h"

namespace cistern::simulated {
namespace {

// Of this thread's latest call that failed.
std::string& last_words() {
  thread_local std::string words;
  return words;
}

int fail(int error, const char* words) noexcept {
  try {
    last_words() = words;
  } catch (const std::bad_alloc&) {
    last_words().clear();
  }
  return error;
}

// What `control` throws as the driver's code. Nothing thrown may leave a function of C.
template <class Control>
int call(Control control) noexcept {
  SimulatedDriver* device = process_device();
  if (device == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "CISTERN_SIMULATED: the settings are wrong");
  if (is_process_ending()) return fail(CUDA_ERROR_DEINITIALIZED, "the process ends");
  try {
    control(*device);
    return CUDA_SUCCESS;
  } catch (const InvalidArgument& error) {
    return fail(CUDA_ERROR_INVALID_VALUE, error.what());
  } catch (const DriverError& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc& error) {
    return fail(CUDA_ERROR_OUT_OF_MEMORY, error.what());
  } catch (const std::exception& error) {
    return fail(CUDA_ERROR_UNKNOWN, error.what());
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

void keep(void*) {}

int launch_owned(void* stream, const MemoryRange* reads, std::size_t read_count, const MemoryRange* writes,
                 std::size_t write_count, std::uint64_t nanoseconds, int (*function)(void*), void* data,
                 void (*release)(void*), const char* name) {
  std::shared_ptr<void> owner;
  try {
    owner = std::shared_ptr<void>(data, release == nullptr ? keep : release);  // it releases, also if this throws
  } catch (const std::bad_alloc& error) {
    return fail(CUDA_ERROR_OUT_OF_MEMORY, error.what());
  }
  return call([&](SimulatedDriver& device) {
    std::function<void()> body;
    if (function != nullptr) {
      body = [function, owner] {
        if (function(owner.get()) != 0) throw std::runtime_error("the kernel crashed");
      };
    }
    device.launch(static_cast<StreamHandle>(stream), ranges(reads, read_count), ranges(writes, write_count),
                  std::chrono::nanoseconds(nanoseconds), std::move(body), name == nullptr ? "" : name);
  });
}

int host_access(const MemoryRange* reads, std::size_t read_count, const MemoryRange* writes, std::size_t write_count) {
  return call(
      [&](SimulatedDriver& device) { device.host_access(ranges(reads, read_count), ranges(writes, write_count)); });
}

const char* last_error() { return last_words().c_str(); }

int fill_random(void* stream, void* address, std::size_t count, int kind, std::uint64_t seed, std::uint64_t position,
                float mean, float standard_deviation) {
  CUresult result = CUDA_SUCCESS;
  const int failed = call([&](SimulatedDriver& device) {
    if (kind < static_cast<int>(RandomKind::words) || kind > static_cast<int>(RandomKind::normal))
      throw InvalidArgument("fill_random: kind " + std::to_string(kind) + ": expected 0, 1 or 2");
    const RandomFill fill{static_cast<RandomKind>(kind),
                          reinterpret_cast<CUdeviceptr>(address),
                          count,
                          seed,
                          position,
                          mean,
                          standard_deviation};
    result = device.api().fill_random(fill, static_cast<StreamHandle>(stream));
  });
  if (failed != CUDA_SUCCESS) return failed;
  return result == CUDA_SUCCESS ? result : fail(result, "fill_random: the driver refused");
}

int run_strided(void* stream, int operation, int element, unsigned rank, const std::uint64_t* extents,
                void* destination, const std::int64_t* destination_strides, const void* source,
                const std::int64_t* source_strides) {
  CUresult result = CUDA_SUCCESS;
  const int failed = call([&](SimulatedDriver& device) {
    if (operation < 0 || operation > 1 || element < 0 || element >= static_cast<int>(kElementCount) ||
        rank > kMaxRank || (rank != 0 && (!extents || !destination_strides || !source_strides)))
      throw InvalidArgument("run_strided: operation " + std::to_string(operation) + ", element " +
                            std::to_string(element) + ", " + std::to_string(rank) + " extents: no such work");
    StridedWork work{.operation = static_cast<StridedOperation>(operation),
                     .element = static_cast<Element>(element),
                     .rank = rank,
                     .count = 1,
                     .destination = reinterpret_cast<CUdeviceptr>(destination),
                     .source = reinterpret_cast<CUdeviceptr>(source)};
    for (unsigned d = 0; d < rank; ++d) {
      work.count *= extents[d];
      work.extents[d] = extents[d];
      work.destination_strides[d] = destination_strides[d];
      work.source_strides[d] = source_strides[d];
    }
    result = device.api().strided(work, static_cast<StreamHandle>(stream));
  });
  if (failed != CUDA_SUCCESS) return failed;
  return result == CUDA_SUCCESS ? result : fail(result, "run_strided: the driver refused");
}

constexpr SimulatedControls kControls = {sizeof(SimulatedControls),
                                         launch,
                                         step,
                                         run_until_idle,
                                         tick,
                                         fail_call,
                                         clear_faults,
                                         launch_owned,
                                         host_access,
                                         last_error,
                                         fill_random,
                                         run_strided};

}  // namespace
}  // namespace cistern::simulated

const cistern::SimulatedControls* cistern_simulated_controls() { return &cistern::simulated::kControls; }
