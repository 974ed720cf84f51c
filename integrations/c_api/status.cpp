#include "integrations/c_api/status.h"

#include <cistern/error.h>

#include <exception>
#include <new>
#include <string>

namespace cistern::c_api {
namespace {

std::string& last_words() {
  thread_local std::string words;
  return words;
}

cistern_status failed(cistern_status status, const char* words) noexcept {
  try {
    last_words() = words;
  } catch (const std::bad_alloc&) {
    last_words().clear();
  }
  return status;
}

}  // namespace

cistern_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return failed(CISTERN_ERROR_INVALID_ARGUMENT, error.what());
  } catch (const NotSupported& error) {
    return failed(CISTERN_ERROR_NOT_SUPPORTED, error.what());
  } catch (const NotReady& error) {
    return failed(CISTERN_ERROR_NOT_READY, error.what());
  } catch (const DriverError& error) {
    return failed(CISTERN_ERROR_DRIVER, error.what());
  } catch (const LibraryError& error) {
    return failed(CISTERN_ERROR_LIBRARY, error.what());
  } catch (const std::bad_alloc& error) {  // an OutOfMemoryError is one
    return failed(CISTERN_ERROR_OUT_OF_MEMORY, error.what());
  } catch (const std::exception& error) {
    return failed(CISTERN_ERROR_UNKNOWN, error.what());
  } catch (...) {
    return failed(CISTERN_ERROR_UNKNOWN, "an exception of no known type");
  }
}

void require(const void* result, const char* name) {
  if (result == nullptr) throw InvalidArgument(std::string(name) + " is NULL: expected where to put the result");
}

void require_given(const void* argument, const char* name) {
  if (argument == nullptr) throw InvalidArgument(std::string(name) + " is NULL: expected what is to be read");
}

void require_count(std::size_t count, const char* name, std::size_t most) {
  if (count > most)
    throw InvalidArgument(std::to_string(count) + " " + name + ": expected no more than " + std::to_string(most));
}

Stream stream_of(int device, cistern_stream handle) {
  const Device given(device);
  if (handle == nullptr) return default_stream(given);
  return Stream::external(handle, given.is_current() ? current_device() : given);
}

}  // namespace cistern::c_api

const char* cistern_last_error() { return cistern::c_api::last_words().c_str(); }
