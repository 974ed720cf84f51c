// SimulatedOptions from text.

#include <cistern/error.h>
#include <cistern/simulated.h>

#include <charconv>
#include <set>
#include <string>

#include "runtime/byte_size.h"
#include "runtime/simulated/visible_devices.h"

namespace cistern {
namespace {

[[noreturn]] void refuse(std::string_view setting, std::string_view value, const char* expected) {
  throw InvalidArgument("simulated device: " + std::string(setting) + "=" + std::string(value) + ": expected " +
                        expected);
}

// The whole text as a number; false if it is none.
template <class Number>
bool read_number(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

std::size_t read_bytes(std::string_view setting, std::string_view text) {
  const auto bytes = parse_byte_size(text);
  if (!bytes) refuse(setting, text, "a size such as 80GiB, 512MiB or 1048576");
  return *bytes;
}

RaceMode read_race_mode(std::string_view setting, std::string_view text) {
  if (text == "off") return RaceMode::off;
  if (text == "collect") return RaceMode::collect;
  if (text == "report") return RaceMode::report;
  if (text == "abort") return RaceMode::abort;
  refuse(setting, text, "off, collect, report or abort");
}

void apply(SimulatedOptions& options, std::string_view setting, std::string_view value) {
  if (setting == "devices") {
    if (!read_number(value, &options.devices) || options.devices < 1) refuse(setting, value, "a number from 1");
  } else if (setting == "capacity") {
    options.capacity_bytes = read_bytes(setting, value);
  } else if (setting == "backing") {
    if (value != "memory" && value != "none") refuse(setting, value, "memory or none");
    options.backing = value == "none" ? Backing::none : Backing::memory;
  } else if (setting == "drive") {
    if (value != "stepped" && value != "free") refuse(setting, value, "stepped or free");
    options.drive = value == "free" ? Drive::free : Drive::stepped;
  } else if (setting == "event_lag") {
    if (!read_number(value, &options.event_lag_ticks)) refuse(setting, value, "a number of ticks");
  } else if (setting == "races") {
    options.races = read_race_mode(setting, value);
  } else if (setting == "compute_capability") {
    const std::size_t point = value.find('.');
    const bool valid = point != std::string_view::npos &&
                       read_number(value.substr(0, point), &options.compute_capability_major) &&
                       read_number(value.substr(point + 1), &options.compute_capability_minor) &&
                       options.compute_capability_major >= 0 && options.compute_capability_minor >= 0;
    if (!valid) refuse(setting, value, "a version such as 9.0");
  } else {
    throw InvalidArgument("simulated device: unknown setting '" + std::string(setting) +
                          "'; expected devices, capacity, backing, drive, event_lag, races or compute_capability");
  }
}

}  // namespace

SimulatedOptions SimulatedOptions::parse(std::string_view text) {
  SimulatedOptions options;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || (comma != std::string_view::npos && text.empty())) {
      throw InvalidArgument("simulated device: '" + std::string(item) +
                            "': expected settings as name=value, separated by commas");
    }
    const std::string_view setting = item.substr(0, equals);
    if (!seen.insert(setting).second) {
      throw InvalidArgument("simulated device: " + std::string(setting) + " is set twice");
    }
    apply(options, setting, item.substr(equals + 1));
  }
  return options;
}

void SimulatedOptions::set_visible_devices(std::string_view text) {
  visible_devices = simulated::find_visible_devices(text, devices);
}

}  // namespace cistern
