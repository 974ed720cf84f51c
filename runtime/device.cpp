#include <cistern/device.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "runtime/deferred_destruction.h"
#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"
#include "runtime/queued_functions.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

// At a fixed offset of the thread's block: asked with every request.
[[gnu::tls_model("initial-exec")]] constinit thread_local int current_index = 0;

std::string describe(int device) { return fmt::format("device {}", device); }

// Digits only, and all of them.
std::optional<int> parse_index(std::string_view digits) {
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return std::nullopt;
  int index = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc() || stop != end) return std::nullopt;
  return index;
}

int parse_device(std::string_view text) {
  for (const std::string_view kind : {"cuda", "simulated"}) {
    if (text == kind) return -1;
    if (!text.starts_with(kind) || text[kind.size()] != ':') continue;
    if (const auto index = parse_index(text.substr(kind.size() + 1))) return *index;
  }
  throw InvalidArgument(
      fmt::format("device \"{}\": expected \"cuda\", \"cuda:N\", \"simulated\" or \"simulated:N\"", text));
}

}  // namespace

Device::Device(int index) : index_(index) {
  if (index < -1)
    throw InvalidArgument(fmt::format("device {}: expected an index from 0, or -1 for the current device", index));
}

Device::Device(std::string_view text) : index_(parse_device(text)) {}

std::string Device::to_string() const { return is_current() ? "cuda" : fmt::format("cuda:{}", index_); }

int device_count() { return process_device_count(); }

bool is_available() noexcept try { return process_device_count() > 0; } catch (...) {
  return false;
}

void initialize() { static_cast<void>(process_contexts().primary(current_index)); }

bool is_initialized() noexcept { return process_driver_loaded(); }

Device current_device() { return Device(current_index); }

int current_device_index() noexcept { return current_index; }

void set_device(Device device) {
  if (!device.is_current()) current_index = resolve_device(device);
}

void synchronize(Device device) {
  const int index = resolve_device(device);
  destroy_deferred();
  const DeviceScope scope(nullptr, index);
  const CUresult result = scope.api().ctx_synchronize();
  drop_functions_after(result, nullptr, index);
  check_driver(scope.api(), result, DriverEntryId::ctx_synchronize, [index] { return describe(index); });
}

MemoryInfo memory_info(Device device) {
  const int index = resolve_device(device);
  const DeviceScope scope(nullptr, index);
  MemoryInfo info;
  check_driver(scope.api(), scope.api().mem_get_info(&info.free, &info.total), DriverEntryId::mem_get_info,
               [index] { return describe(index); });
  return info;
}

void restore_current_device(int index) noexcept { current_index = index; }

}  // namespace cistern
