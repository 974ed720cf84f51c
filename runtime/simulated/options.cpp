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

// "all", "none", or pairs of devices such as "0-1,1-2".
std::optional<std::vector<std::pair<int, int>>> read_peers(std::string_view text) {
  if (text == "all") return std::nullopt;
  std::vector<std::pair<int, int>> pairs;
  if (text == "none") return pairs;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t dash = item.find('-');
    std::pair<int, int> pair;
    if (dash == std::string_view::npos || !read_number(item.substr(0, dash), &pair.first) ||
        !read_number(item.substr(dash + 1), &pair.second)) {
      refuse("peers", text, "all, none, or pairs of devices such as 0-1,1-2");
    }
    pairs.push_back(pair);
    if (comma == std::string_view::npos) return pairs;
    rest = rest.substr(comma + 1);
  }
}

// Where the setting at the start of the text ends: at the comma before the next one. Pairs of
// peers have commas between them.
std::size_t end_of_setting(std::string_view text) {
  std::size_t end = text.find(',');
  if (text.substr(0, 6) != "peers=") return end;
  while (end != std::string_view::npos) {
    const std::size_t next = text.find(',', end + 1);
    if (text.substr(end, next - end).find('=') != std::string_view::npos || end + 1 == text.size()) break;
    end = next;
  }
  return end;
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
  } else if (setting == "peer_bandwidth") {
    options.peer_bandwidth = read_bytes(setting, value);
  } else if (setting == "host_bandwidth") {
    options.host_bandwidth = read_bytes(setting, value);
  } else if (setting == "memory_bandwidth") {
    options.memory_bandwidth = read_bytes(setting, value);
  } else if (setting == "races") {
    options.races = read_race_mode(setting, value);
  } else if (setting == "race_frames") {
    if (!read_number(value, &options.race_frames) || options.race_frames < 0 ||
        options.race_frames > SimulatedOptions::kMostRaceFrames)
      refuse(setting, value, "a number of frames from 0 to 128");
  } else if (setting == "shared") {
    if (value.empty()) refuse(setting, value, "a name");
    options.shared = value;
  } else if (setting == "compute_capability") {
    const std::size_t point = value.find('.');
    const bool valid = point != std::string_view::npos &&
                       read_number(value.substr(0, point), &options.compute_capability_major) &&
                       read_number(value.substr(point + 1), &options.compute_capability_minor) &&
                       options.compute_capability_major >= 0 && options.compute_capability_minor >= 0;
    if (!valid) refuse(setting, value, "a version such as 9.0");
  } else if (setting == "peers") {
    options.peers = read_peers(value);
  } else {
    throw InvalidArgument(
        "simulated device: unknown setting '" + std::string(setting) +
        "'; expected devices, capacity, backing, drive, event_lag, peer_bandwidth, host_bandwidth, memory_bandwidth, "
        "races, race_frames, shared, compute_capability or peers");
  }
}

}  // namespace

SimulatedOptions SimulatedOptions::parse(std::string_view text) {
  SimulatedOptions options;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const std::size_t comma = end_of_setting(text);
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
