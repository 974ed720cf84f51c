#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::model {

inline std::int64_t number(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

}  // namespace cistern::model
