#pragma once

// What an error of ours says.

#include <cistern/error.h>

#include <functional>
#include <string>

namespace cistern {

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace cistern
