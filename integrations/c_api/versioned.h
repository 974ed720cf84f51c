#pragma once

// Structs of C that begin with their size: read and written as far as caller and library both know them.

#include <cistern/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace cistern::c_api {

// The size of a struct in the first version of the headers that had it. Members are added at its end alone, and then
// this is given for it as it was (tests/c_api/abi.* has what it was).
template <class Struct>
inline constexpr std::size_t kFirstSize = sizeof(Struct);

inline void require_size(std::size_t size, std::size_t first, const char* name) {
  if (size < first)
    throw InvalidArgument(std::string(name) + "->size is " + std::to_string(size) + ": expected sizeof, " +
                          std::to_string(first) + " or more");
}

// What `given` says; all 0 for NULL.
template <class Struct>
Struct read_struct(const Struct* given, const char* name) {
  Struct read{};
  if (given == nullptr) return read;
  require_size(given->size, kFirstSize<Struct>, name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const auto is_zero = [](unsigned char byte) { return byte == 0; };
  if (given->size > sizeof(Struct) && !std::all_of(bytes + sizeof(Struct), bytes + given->size, is_zero))
    throw NotSupported(std::string(name) + " has members that this library does not know: it is of version " +
                       std::to_string(CISTERN_C_API_VERSION));
  std::memcpy(&read, given, std::min(given->size, sizeof(Struct)));
  return read;
}

// That `result` can be written to, before anything is done.
template <class Struct>
void require_struct(const Struct* result, const char* name) {
  if (result == nullptr) throw InvalidArgument(std::string(name) + " is NULL: expected where to put the result");
  require_size(result->size, kFirstSize<Struct>, name);
}

// Requires: require_struct did not throw.
template <class Struct>
void write_struct(Struct* result, Struct value) noexcept {
  value.size = std::min(result->size, sizeof(Struct));
  std::memcpy(result, &value, value.size);
}

}  // namespace cistern::c_api
