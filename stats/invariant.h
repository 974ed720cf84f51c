#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace cistern {

// For audits, which tests and --check run. Throws std::logic_error.
inline void require(bool condition, std::string_view what) {
  if (!condition) throw std::logic_error("cistern: broken invariant: " + std::string(what));
}

}  // namespace cistern
