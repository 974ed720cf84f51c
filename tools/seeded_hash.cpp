#include "tools/seeded_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace cistern {
namespace {

struct Seed {
  std::uint64_t first, second;
};

std::uint64_t random_word(std::random_device& source) { return (std::uint64_t{source()} << 32) | source(); }

const Seed& process_seed() {
  static const Seed seed = [] {
    std::random_device source;
    return Seed{random_word(source), random_word(source)};
  }();
  return seed;
}

class SipState {
 public:
  explicit SipState(const Seed& seed)
      : a_(seed.first ^ 0x736f6d6570736575),
        b_(seed.second ^ 0x646f72616e646f6d),
        c_(seed.first ^ 0x6c7967656e657261),
        d_(seed.second ^ 0x7465646279746573) {}

  void add(std::uint64_t word) {
    d_ ^= word;
    mix();
    a_ ^= word;
  }
  [[nodiscard]] std::uint64_t finish() {
    c_ ^= 0xff;
    for (int round = 0; round < 3; ++round) mix();
    return a_ ^ b_ ^ c_ ^ d_;
  }

 private:
  void mix() {
    a_ += b_;
    b_ = std::rotl(b_, 13) ^ a_;
    a_ = std::rotl(a_, 32);
    c_ += d_;
    d_ = std::rotl(d_, 16) ^ c_;
    a_ += d_;
    d_ = std::rotl(d_, 21) ^ a_;
    c_ += b_;
    b_ = std::rotl(b_, 17) ^ c_;
    c_ = std::rotl(c_, 32);
  }

  std::uint64_t a_, b_, c_, d_;
};

}  // namespace

std::uint64_t seeded_hash(std::string_view bytes) {
  SipState state(process_seed());
  std::uint64_t last = static_cast<std::uint64_t>(bytes.size()) << 56;
  for (; bytes.size() >= sizeof last; bytes.remove_prefix(sizeof last)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    state.add(word);
  }
  std::uint64_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  state.add(last | rest);
  return state.finish();
}

}  // namespace cistern
