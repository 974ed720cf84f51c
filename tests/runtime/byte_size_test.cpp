#include "runtime/byte_size.h"

#include <gtest/gtest.h>

namespace cistern {
namespace {

TEST(ByteSize, TakesWholeNumbersAndBinaryUnits) {
  EXPECT_EQ(parse_byte_size("0"), 0U);
  EXPECT_EQ(parse_byte_size("1048576"), 1048576U);
  EXPECT_EQ(parse_byte_size("7B"), 7U);
  EXPECT_EQ(parse_byte_size("3KiB"), 3072U);
  EXPECT_EQ(parse_byte_size("40GiB"), std::uint64_t{40} << 30);
  EXPECT_EQ(parse_byte_size("16777215TiB"), std::uint64_t{16777215} << 40);
  EXPECT_EQ(parse_byte_size("18446744073709551615"), 18446744073709551615U);
}

TEST(ByteSize, AnythingElseIsNone) {
  for (const char* bad : {"", "GiB", "-1", "+1", "1.5GiB", "4GB", "4 GiB", " 4", "4gib", "18446744073709551616",
                          "16777216TiB", "99999999TiB"})
    EXPECT_EQ(parse_byte_size(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace cistern
