// Philox4x32-10 itself, and the order of its words in a sequence.

#include "runtime/philox.h"

#include <gtest/gtest.h>

namespace cistern {
namespace {

// kat_vectors of Random123 1.14, "philox4x32 10".
TEST(Philox, GivesThePublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SubsequencesGiveABlockEachInTurn) {
  constexpr std::uint64_t seed = 0x1234567890abcdef;
  constexpr std::array<std::uint32_t, 2> key = {0x90abcdef, 0x12345678};
  EXPECT_EQ(philox_quad(seed, 0), philox4x32_10({0, 0, 0, 0}, key));
  EXPECT_EQ(philox_quad(seed, 1), philox4x32_10({0, 0, 1, 0}, key));
  EXPECT_EQ(philox_quad(seed, 65535), philox4x32_10({0, 0, 65535, 0}, key));
  EXPECT_EQ(philox_quad(seed, 65536), philox4x32_10({1, 0, 0, 0}, key));
  // The last of all: 2^64 words are 2^46 blocks of each subsequence.
  EXPECT_EQ(philox_quad(seed, ~std::uint64_t{0} / 4), philox4x32_10({0xffffffff, 0x3fff, 65535, 0}, key));
  EXPECT_EQ(philox_word(seed, 262147), philox_quad(seed, 65536)[3]);
}

}  // namespace
}  // namespace cistern
