#include "integrations/c_api/status.h"

#include <cistern/error.h>

#include "integrations/c_api/cancelled.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>

namespace cistern::c_api {
namespace {

std::string& last_words() {
  thread_local std::string words;
  return words;
}

// Of this thread's latest failure of that kind: its size is 0 before there is one.
thread_local cistern_out_of_memory_report last_report{};

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
  } catch (const OutOfMemoryError& error) {
    last_report = report_of(error.report());
    return failed(CISTERN_ERROR_OUT_OF_MEMORY, error.what());
  } catch (const Cancelled& error) {
    return failed(CISTERN_ERROR_CANCELLED, error.what());
  } catch (const std::bad_alloc& error) {
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

void require_room(const char* text, std::size_t bytes, const std::size_t* needed) {
  require(needed, "needed");
  if (bytes != 0) require(text, "text");
}

void write_text(const std::string& all, char* text, std::size_t bytes, std::size_t* needed) noexcept {
  *needed = all.size() + 1;
  if (bytes == 0) return;
  const std::size_t written = std::min(all.size(), bytes - 1);
  std::memcpy(text, all.data(), written);
  text[written] = '\0';
}

cistern_out_of_memory_report report_of(const OutOfMemoryReport& report) noexcept {
  cistern_out_of_memory_report made{};
  made.size = sizeof made;
  made.device = report.device;
  made.cause = static_cast<int>(report.cause);
  made.requested_bytes = report.requested_bytes;
  made.rounded_bytes = report.rounded_bytes;
  made.segment_bytes = report.segment_bytes;
  made.device_total_bytes = report.device_total_bytes;
  made.device_free_bytes = report.device_free_bytes;
  made.outside_bytes = report.outside_bytes;
  made.limit_bytes = report.limit_bytes.value_or(SIZE_MAX);
  made.reserved_bytes = report.reserved_bytes;
  made.allocated_bytes = report.allocated_bytes;
  made.pending_free_bytes = report.pending_free_bytes;
  made.free_split_bytes = report.free_split_bytes;
  made.free_whole_bytes = report.free_whole_bytes;
  made.private_pools_free_bytes = report.private_pools_free_bytes;
  made.largest_free_block_bytes = report.largest_free_block_bytes;
  made.has_device_figures = report.has_device_figures ? 1 : 0;
  const char* const advice = report.advice.c_str();
  std::memcpy(made.advice, advice, std::min(std::strlen(advice), sizeof made.advice - 1));
  return made;
}

const cistern_out_of_memory_report* last_out_of_memory() noexcept {
  return last_report.size == 0 ? nullptr : &last_report;
}

}  // namespace cistern::c_api

int cistern_c_api_version() { return CISTERN_C_API_VERSION; }
const char* cistern_version() { return CISTERN_VERSION; }

const char* cistern_status_name(cistern_status status) {
  static constexpr std::array kNames{
      "CISTERN_SUCCESS",         "CISTERN_ERROR_INVALID_ARGUMENT", "CISTERN_ERROR_NOT_SUPPORTED",
      "CISTERN_ERROR_NOT_READY", "CISTERN_ERROR_OUT_OF_MEMORY",    "CISTERN_ERROR_DRIVER",
      "CISTERN_ERROR_LIBRARY",   "CISTERN_ERROR_UNKNOWN",          "CISTERN_ERROR_CANCELLED",
  };
  static_assert(kNames.size() == CISTERN_ERROR_CANCELLED + 1);
  if (status < 0 || static_cast<std::size_t>(status) >= kNames.size()) return kNames[CISTERN_ERROR_UNKNOWN];
  return kNames[static_cast<std::size_t>(status)];
}

const char* cistern_last_error() { return cistern::c_api::last_words().c_str(); }
