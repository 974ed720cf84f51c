#pragma once

// Random numbers on the devices: Philox4x32-10, and where each device's sequence stands.
//
// A device's sequence is fixed by its seed; its offset says how many results were drawn of it. A result
// depends on its seed and its place alone, not on how many are drawn at once: on CUDA devices cuRAND makes
// them (libcurand.so.10, or what CISTERN_LIBCURAND names; CURAND_RNG_PSEUDO_PHILOX4_32_10 in legacy order),
// on simulated ones cistern does, by the same counters. Words and uniform values are the same bit for bit;
// normal ones differ by what the logarithms and sines of two machines do.
// Devices are independent of each other: each starts with the seed 67280421310721, as PyTorch's do.
// A fill takes its place in the sequence when it is queued, so fills from several streams are drawn
// in the order of the calls; one that throws takes nothing, unless another was queued meanwhile.
// A fill that is captured has its place in the sequence from then on: each launch of the graph
// writes the same values. (PyTorch's graphs draw anew.)
// The numbers are no secret: not for cryptography.
// Thread safety: any function may be called from any thread.
// Errors: InvalidArgument for an address, a count or a device that cannot be; NotSupported where there
// is no device, or no cuRAND on a CUDA one; LibraryError if cuRAND fails; DriverError.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern {

// What a device's sequence is and where it stands: 16 bytes, the seed and then the offset, each as an
// unsigned number of 64 bits, the lowest byte first. PyTorch's states have the same two numbers.
using RngState = std::vector<std::uint8_t>;
inline constexpr std::size_t kRngStateBytes = 16;

// The state of a device, by default of the current one. Initialises the device layer.
[[nodiscard]] CISTERN_EXPORT RngState get_rng_state(Device device = {});
// Those of all devices, by index.
[[nodiscard]] CISTERN_EXPORT std::vector<RngState> get_rng_state_all();
// Fills that are queued from now on go on from there. Throws InvalidArgument unless the state has
// 16 bytes. Any offset will do.
CISTERN_EXPORT void set_rng_state(const RngState& state, Device device = {});
// One for each device; all are set or, where one cannot be or their number is another, none.
CISTERN_EXPORT void set_rng_state_all(const std::vector<RngState>& states);

// Begins a device's sequence anew, by a seed of one's own. Without a device the call is silently
// ignored; before the device layer is initialised it is kept, and initialises nothing.
// This is the current device alone, which is insufficient to get determinism with several: see
// manual_seed_all.
CISTERN_EXPORT void manual_seed(std::uint64_t seed);
CISTERN_EXPORT void manual_seed_all(std::uint64_t seed);
// The same with a random seed: for the current device alone, or one seed for all of them (seed_all).
CISTERN_EXPORT void seed();
CISTERN_EXPORT void seed_all();
// The seed of the current device. Initialises the device layer.
[[nodiscard]] CISTERN_EXPORT std::uint64_t initial_seed();

// Each fills `count` values of device memory of `stream`'s device, in stream order, and moves the
// device's offset on by `count`. 0 values are nothing. `destination` is a multiple of 4.
// Words of 32 random bits.
CISTERN_EXPORT void fill_random_words(std::uint32_t* destination, std::size_t count,
                                      const Stream& stream = current_stream());
// Above 0 and up to 1, 1 included: multiples of 2^-33, where a float has room for them.
CISTERN_EXPORT void fill_uniform(float* destination, std::size_t count, const Stream& stream = current_stream());
// By Box and Muller: two words make two values. So this begins at an even offset, and leaves one.
// Throws InvalidArgument unless both parameters are finite and `standard_deviation` is not negative.
CISTERN_EXPORT void fill_normal(float* destination, std::size_t count, float mean = 0, float standard_deviation = 1,
                                const Stream& stream = current_stream());

}  // namespace cistern
