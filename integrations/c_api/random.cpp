#include <cistern/c_api.h>
#include <cistern/error.h>
#include <cistern/random.h>

#include <cstring>
#include <string>
#include <vector>

#include "integrations/c_api/status.h"

using cistern::Device;
using cistern::InvalidArgument;
using cistern::RngState;
using cistern::c_api::guarded;
using cistern::c_api::require;
using cistern::c_api::stream_of;

static_assert(CISTERN_RNG_STATE_BYTES == cistern::kRngStateBytes);

namespace {

void require_room(const void* memory, std::size_t bytes, std::size_t expected) {
  if (bytes != expected)
    throw InvalidArgument("random states of " + std::to_string(bytes) + " bytes: expected " + std::to_string(expected));
  if (bytes != 0 && memory == nullptr)
    throw InvalidArgument("state is NULL: expected " + std::to_string(bytes) + " bytes");
}

RngState state_at(const void* memory, std::size_t index) {
  const auto* first = static_cast<const std::uint8_t*>(memory) + index * CISTERN_RNG_STATE_BYTES;
  return RngState(first, first + CISTERN_RNG_STATE_BYTES);
}

}  // namespace

cistern_status cistern_get_rng_state(int device, void* state, size_t bytes) {
  return guarded([&] {
    require_room(state, bytes, CISTERN_RNG_STATE_BYTES);
    std::memcpy(state, cistern::get_rng_state(device).data(), bytes);
  });
}

cistern_status cistern_get_rng_state_all(void* states, size_t bytes) {
  return guarded([&] {
    const std::vector<RngState> all = cistern::get_rng_state_all();
    require_room(states, bytes, all.size() * CISTERN_RNG_STATE_BYTES);
    auto* to = static_cast<std::uint8_t*>(states);
    for (const RngState& state : all) {
      std::memcpy(to, state.data(), state.size());
      to += state.size();
    }
  });
}

cistern_status cistern_set_rng_state(int device, const void* state, size_t bytes) {
  return guarded([&] {
    require_room(state, bytes, CISTERN_RNG_STATE_BYTES);
    cistern::set_rng_state(state_at(state, 0), device);
  });
}

cistern_status cistern_set_rng_state_all(const void* states, size_t bytes) {
  return guarded([&] {
    require_room(states, bytes, static_cast<std::size_t>(cistern::device_count()) * CISTERN_RNG_STATE_BYTES);
    std::vector<RngState> all;
    for (std::size_t i = 0; i < bytes / CISTERN_RNG_STATE_BYTES; ++i) all.push_back(state_at(states, i));
    cistern::set_rng_state_all(all);
  });
}

cistern_status cistern_manual_seed(uint64_t seed) {
  return guarded([&] { cistern::manual_seed(seed); });
}
cistern_status cistern_manual_seed_all(uint64_t seed) {
  return guarded([&] { cistern::manual_seed_all(seed); });
}
cistern_status cistern_seed() {
  return guarded([] { cistern::seed(); });
}
cistern_status cistern_seed_all() {
  return guarded([] { cistern::seed_all(); });
}

cistern_status cistern_initial_seed(uint64_t* seed) {
  return guarded([&] {
    require(seed, "seed");
    *seed = cistern::initial_seed();
  });
}

cistern_status cistern_fill_random_words(uint32_t* destination, size_t count, int device, cistern_stream stream) {
  return guarded([&] { cistern::fill_random_words(destination, count, stream_of(device, stream)); });
}

cistern_status cistern_fill_uniform(float* destination, size_t count, int device, cistern_stream stream) {
  return guarded([&] { cistern::fill_uniform(destination, count, stream_of(device, stream)); });
}

cistern_status cistern_fill_normal(float* destination, size_t count, float mean, float standard_deviation, int device,
                                   cistern_stream stream) {
  return guarded(
      [&] { cistern::fill_normal(destination, count, mean, standard_deviation, stream_of(device, stream)); });
}
