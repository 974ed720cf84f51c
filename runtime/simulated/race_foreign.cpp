#include "runtime/simulated/race_foreign.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace cistern::simulated {
namespace {

struct Windows {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, AddressWindow>> all;  // with the driver's number
};
// Never destroyed: drivers may end while the process exits.
Windows& windows_of_all() {
  static auto* windows = new Windows;
  return *windows;
}

}  // namespace

RaceWindows::RaceWindows(std::uint64_t driver, const std::vector<AddressWindow>& windows) : driver_(driver) {
  Windows& known = windows_of_all();
  const std::lock_guard lock(known.mutex);
  known.all.reserve(known.all.size() + windows.size());
  for (const AddressWindow& window : windows) known.all.emplace_back(driver, window);
}

RaceWindows::~RaceWindows() {
  Windows& known = windows_of_all();
  const std::lock_guard lock(known.mutex);
  known.all.erase(std::remove_if(known.all.begin(), known.all.end(),
                                 [this](const auto& window) { return window.first == driver_; }),
                  known.all.end());
}

bool is_of_another_driver(std::uint64_t driver, std::uint64_t address) {
  Windows& known = windows_of_all();
  const std::lock_guard lock(known.mutex);
  return std::any_of(known.all.begin(), known.all.end(),
                     [&](const auto& window) { return window.first != driver && window.second.contains(address); });
}

}  // namespace cistern::simulated
