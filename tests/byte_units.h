#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern {

inline constexpr std::size_t kKibi = 1024;
inline constexpr std::size_t kMega = 1024 * kKibi;
// Statistics and documents count with a sign.
inline constexpr std::int64_t kSignedMega = kMega;

}  // namespace cistern
