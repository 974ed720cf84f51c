#include "runtime/driver_error.h"

#include <cistern/error.h>
#include <fmt/format.h>

namespace cistern {

std::string driver_words(const DriverApi& api, CUresult result) {
  // The answer inside a host function, where asking for words would be one more forbidden call
  // (CUDA Driver API, cuLaunchHostFunc).
  if (result == CUDA_ERROR_NOT_PERMITTED) return "CUDA_ERROR_NOT_PERMITTED (operation not permitted)";
  // The driver leaves both null for a number that it does not know.
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_name && api.get_error_name(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (api.get_error_string && api.get_error_string(result, &text) != CUDA_SUCCESS) text = nullptr;
  const std::string word = name != nullptr ? name : fmt::format("error {}", static_cast<int>(result));
  return text != nullptr ? fmt::format("{} ({})", word, text) : word;
}

void throw_driver_error(const DriverApi& api, CUresult result, DriverEntryId entry, const std::string& object) {
  const char* call = kDriverEntryNames[static_cast<std::size_t>(entry)];
  throw DriverError(static_cast<int>(result), call,
                    fmt::format("{} of {}: {}", call, object, driver_words(api, result)));
}

}  // namespace cistern
