#pragma once

// What a note about a block of host memory has where one of a private pool's block names the pool: such a block is in
// no stream's order, and the host may write it at once. Thread safety: constant.

namespace cistern {

inline constexpr char kHostBlockNote = 0;
[[nodiscard]] constexpr bool is_of_host_block(const void* pool) noexcept { return pool == &kHostBlockNote; }

}  // namespace cistern
