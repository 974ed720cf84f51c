#pragma once

#include <cistern/error.h>
#include <cistern/options.h>

#include <string>
#include <string_view>

namespace cistern {

// What the error says when `text` is refused as InvalidArgument; empty when it is accepted.
inline std::string refusal(std::string_view text, const AllocatorOptions& base = {}) {
  try {
    static_cast<void>(AllocatorOptions::parse(text, base));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

}  // namespace cistern
