#include "runtime/simulated/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "runtime/simulated/device_identity.h"

namespace cistern::simulated {
namespace {

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
         });
}

// -1: none, or more than one.
int find_by_uuid(std::string_view prefix, int count) {
  int found = -1;
  for (int device = 0; device < count; ++device) {
    if (!starts_with_ignoring_case(device_uuid_text(device), prefix)) continue;
    if (found >= 0) return -1;
    found = device;
  }
  return found;
}

int find_device(std::string_view entry, int count) {
  if (starts_with_ignoring_case(entry, "GPU-")) return find_by_uuid(entry, count);
  int number = -1;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  const bool is_device = error == std::errc() && number >= 0 && number < count;
  return is_device ? number : -1;
}

}  // namespace

std::vector<int> find_visible_devices(std::string_view text, int count) {
  std::vector<int> devices;
  for (;;) {
    const std::size_t comma = text.find(',');
    const int device = find_device(trim(text.substr(0, comma)), count);
    if (device < 0) return devices;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) return {};
    devices.push_back(device);
    if (comma == std::string_view::npos) return devices;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace cistern::simulated
