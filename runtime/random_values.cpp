#include "runtime/random_values.h"

#include <cmath>

#include "runtime/philox.h"

namespace cistern {
namespace {

// As curand_uniform.h makes a float of a word: in (0, 1].
float uniform_of(std::uint32_t word) noexcept { return static_cast<float>(word) * 0x1p-32F + 0x1p-33F; }

struct Pair {
  float first;
  float second;
};

// As curand_normal.h makes two normal values of two words.
Pair normals_of(std::uint32_t radius, std::uint32_t angle) noexcept {
  constexpr float two_pi_over_2_32 = 0x1p-32F * 6.2831855F;
  const float turn = static_cast<float>(angle) * two_pi_over_2_32 + two_pi_over_2_32 / 2;
  const float length = std::sqrt(-2.0F * std::log(uniform_of(radius)));
  return {length * std::sin(turn), length * std::cos(turn)};
}

// What makes four values of a block's four words.
struct Words {
  using Value = std::uint32_t;
  void operator()(const PhiloxBlock& words, Value* values) const noexcept {
    for (std::size_t i = 0; i < 4; ++i) values[i] = words[i];
  }
};
struct Uniform {
  using Value = float;
  void operator()(const PhiloxBlock& words, Value* values) const noexcept {
    for (std::size_t i = 0; i < 4; ++i) values[i] = uniform_of(words[i]);
  }
};
struct Normal {
  using Value = float;
  float mean;
  float standard_deviation;
  void operator()(const PhiloxBlock& words, Value* values) const noexcept {
    for (std::size_t i = 0; i < 4; i += 2) {
      const Pair pair = normals_of(words[i], words[i + 1]);
      values[i] = mean + standard_deviation * pair.first;
      values[i + 1] = mean + standard_deviation * pair.second;
    }
  }
};

template <class Make>
void write(std::uint64_t seed, std::uint64_t position, std::size_t count, void* destination, Make make) noexcept {
  auto* values = static_cast<typename Make::Value*>(destination);
  typename Make::Value four[4];
  // The ends may lie inside a block: its other values are somebody else's.
  while (count > 0 && (position % 4 != 0 || count < 4)) {
    make(philox_quad(seed, position / 4), four);
    for (auto i = static_cast<std::size_t>(position % 4); i < 4 && count > 0; ++i, ++position, --count)
      *values++ = four[i];
  }
  for (; count >= 4; count -= 4, position += 4, values += 4) make(philox_quad(seed, position / 4), values);
  if (count > 0) write(seed, position, count, values, make);
}

}  // namespace

void write_random_values(const RandomFill& fill, std::size_t first, std::size_t count, void* destination) noexcept {
  const std::uint64_t position = fill.position + first;
  switch (fill.kind) {
    case RandomKind::words:
      return write(fill.seed, position, count, destination, Words{});
    case RandomKind::uniform:
      return write(fill.seed, position, count, destination, Uniform{});
    case RandomKind::normal:
      return write(fill.seed, position, count, destination, Normal{fill.mean, fill.standard_deviation});
  }
}

}  // namespace cistern
