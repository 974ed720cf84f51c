#pragma once

// Where each device's random sequence stands.
//
// Asks no driver: a seed can be set before there is one.
// Thread safety: any member may be called from any thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace cistern {

struct RandomState {
  std::uint64_t seed = 67280421310721;  // PyTorch's default_rng_seed_val
  std::uint64_t offset = 0;
  friend bool operator==(const RandomState&, const RandomState&) = default;
};

class RandomStates {
 public:
  [[nodiscard]] RandomState get(int device) const;
  void set(int device, RandomState state);
  // Of devices 0 and on, all at once.
  void set_each(const std::vector<RandomState>& states);
  // Of every device, those included that nobody has named yet.
  void set_all(RandomState state);

  struct Taken {
    RandomState before;
    RandomState first;  // the seed, and the first of the places
    RandomState after;
  };
  // Takes `count` places of a device's sequence, beginning and ending at a multiple of `alignment`.
  [[nodiscard]] Taken take(int device, std::uint64_t count, std::uint64_t alignment);
  // Gives them back, unless the state has moved on since.
  void give_back(int device, const Taken& taken) noexcept;

 private:
  mutable std::mutex mutex_;
  RandomState of_others_;                // of devices that are not in the map
  std::map<int, RandomState> of_named_;  // by device
};

// Those of the process's devices.
[[nodiscard]] RandomStates& random_states();

}  // namespace cistern
