#include <cistern/error.h>
#include <cistern/random.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "runtime/curand.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "runtime/random_states.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

void append(RngState& bytes, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<std::uint8_t>(value >> shift));
}

std::uint64_t number_at(const RngState& bytes, std::size_t first) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | bytes[first + i];
  return value;
}

RngState bytes_of(RandomState state) {
  RngState bytes;
  bytes.reserve(kRngStateBytes);
  append(bytes, state.seed);
  append(bytes, state.offset);
  return bytes;
}

RandomState state_of(const RngState& bytes) {
  if (bytes.size() != kRngStateBytes)
    throw InvalidArgument(
        fmt::format("a random state of {} bytes: expected {}, the seed and the offset", bytes.size(), kRngStateBytes));
  return {number_at(bytes, 0), number_at(bytes, 8)};
}

std::uint64_t random_seed() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

const char* name_of(RandomKind kind) {
  switch (kind) {
    case RandomKind::words:
      return "fill_random_words";
    case RandomKind::uniform:
      return "fill_uniform";
    case RandomKind::normal:
      return "fill_normal";
  }
  return "random fill";
}

void require_fill(const RandomFill& fill, const Stream& stream) {
  constexpr std::size_t size = 4;
  const char* const name = name_of(fill.kind);
  if (fill.destination == 0)
    throw InvalidArgument(
        fmt::format("{} of {} values: the address is null; expected device memory", name, fill.count));
  if (fill.destination % size != 0)
    throw InvalidArgument(fmt::format("{} at {:#x}: expected a multiple of {}", name, fill.destination, size));
  if (fill.count > std::numeric_limits<std::size_t>::max() / size)
    throw InvalidArgument(
        fmt::format("{} of {} values: expected no more than the address space has", name, fill.count));
  if (StreamAccess::driver(stream) != nullptr)
    throw InvalidArgument(
        fmt::format("{} on {}: it belongs to another driver than the process's own", name, stream.to_string()));
}

// In the device's context, which is current.
void queue(const DriverApi& api, int device, const RandomFill& fill, const Stream& stream) {
  if (!api.fill_random) return curand_fill(api, device, fill, stream.native_handle());
  const CUresult result = api.fill_random(fill, stream.native_handle());
  if (result == CUDA_SUCCESS) return;
  throw DriverError(result, name_of(fill.kind),
                    fmt::format("{} of {} values at {:#x} on {}: {}", name_of(fill.kind), fill.count, fill.destination,
                                stream.to_string(), driver_words(api, result)));
}

void fill_random(RandomFill fill, const Stream& stream) {
  if (fill.count == 0) return;
  require_fill(fill, stream);
  const int device = StreamAccess::device(stream);
  const DeviceScope scope(nullptr, device);
  const std::uint64_t alignment = fill.kind == RandomKind::normal ? 2 : 1;
  const RandomStates::Taken taken = random_states().take(device, fill.count, alignment);
  fill.seed = taken.first.seed;
  fill.position = taken.first.offset;
  try {
    queue(scope.api(), device, fill, stream);
  } catch (...) {
    random_states().give_back(device, taken);
    throw;
  }
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

RngState get_rng_state(Device device) { return bytes_of(random_states().get(resolve_device(device))); }

std::vector<RngState> get_rng_state_all() {
  std::vector<RngState> states;
  const int count = process_contexts().device_count();
  for (int device = 0; device < count; ++device) states.push_back(bytes_of(random_states().get(device)));
  return states;
}

void set_rng_state(const RngState& state, Device device) {
  const int index = resolve_device(device);
  random_states().set(index, state_of(state));
}

void set_rng_state_all(const std::vector<RngState>& states) {
  const auto count = static_cast<std::size_t>(process_contexts().device_count());
  if (states.size() != count)
    throw InvalidArgument(fmt::format("{} random states: expected {}, one for each device", states.size(), count));
  std::vector<RandomState> checked;
  for (const RngState& state : states) checked.push_back(state_of(state));
  random_states().set_each(checked);
}

void manual_seed(std::uint64_t seed) { random_states().set(current_device().index(), {.seed = seed}); }
void manual_seed_all(std::uint64_t seed) { random_states().set_all({.seed = seed}); }
void seed() { manual_seed(random_seed()); }
void seed_all() { manual_seed_all(random_seed()); }
std::uint64_t initial_seed() { return random_states().get(resolve_device({})).seed; }

void fill_random_words(std::uint32_t* destination, std::size_t count, const Stream& stream) {
  fill_random({.kind = RandomKind::words, .destination = address(destination), .count = count}, stream);
}

void fill_uniform(float* destination, std::size_t count, const Stream& stream) {
  fill_random({.kind = RandomKind::uniform, .destination = address(destination), .count = count}, stream);
}

void fill_normal(float* destination, std::size_t count, float mean, float standard_deviation, const Stream& stream) {
  if (!std::isfinite(mean) || !std::isfinite(standard_deviation) || standard_deviation < 0)
    throw InvalidArgument(
        fmt::format("fill_normal with mean {} and standard deviation {}: expected finite ones, and no "
                    "deviation below 0",
                    mean, standard_deviation));
  fill_random({.kind = RandomKind::normal,
               .destination = address(destination),
               .count = count,
               .mean = mean,
               .standard_deviation = standard_deviation},
              stream);
}

}  // namespace cistern
