#pragma once

// What a callback of C that wants no more makes of the call: CISTERN_ERROR_CANCELLED.

#include <stdexcept>

namespace cistern::c_api {

class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cistern::c_api
