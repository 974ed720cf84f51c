#pragma once

// Philox4x32-10: four words of 32 bits from a counter and a key (J. K. Salmon and others, "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC11), and the order in which a sequence has them.

#include <array>
#include <cstddef>
#include <cstdint>

namespace cistern {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t low = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t high = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(high >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(high),
               static_cast<std::uint32_t>(low >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(low)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The four words at positions 4 * `quad` and on, in cuRAND's legacy order: 65,536 subsequences give a
// block of four words each in turn ("cuRAND", "Host API Overview", "Generator Types").
constexpr PhiloxBlock philox_quad(std::uint64_t seed, std::uint64_t quad) noexcept {
  constexpr std::uint64_t subsequences = 65536;
  const std::uint64_t block = quad / subsequences;
  return philox4x32_10({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                        static_cast<std::uint32_t>(quad % subsequences), 0},
                       {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// The word at a position of the sequence.
constexpr std::uint32_t philox_word(std::uint64_t seed, std::uint64_t position) noexcept {
  return philox_quad(seed, position / 4)[static_cast<std::size_t>(position % 4)];
}

}  // namespace cistern
