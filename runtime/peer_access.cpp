// Which device may reach whose memory.

#include <cistern/device.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/device_scope.h"
#include "runtime/driver_error.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

// The pairs that were enabled here. Never destroyed: code that runs at exit may ask.
struct EnabledPeers {
  std::mutex mutex;
  std::set<std::pair<int, int>> pairs;
  std::atomic<std::size_t> count{0};

  bool has(std::pair<int, int> pair) {
    const std::lock_guard lock(mutex);
    return pairs.count(pair) != 0;
  }
  void add(std::pair<int, int> pair) {
    const std::lock_guard lock(mutex);
    pairs.insert(pair);
    count.store(pairs.size(), std::memory_order_relaxed);
  }
};
EnabledPeers& enabled_peers() {
  static EnabledPeers& peers = *new EnabledPeers;
  return peers;
}

std::string describe(int from, int to) { return fmt::format("device {} to device {}", from, to); }

}  // namespace

bool can_access_peer(Device from, Device to) {
  const int source = resolve_device(from);
  const int target = resolve_device(to);
  if (source == target) return true;
  const DriverApi& api = process_driver();
  Contexts& contexts = process_contexts();
  int can_access = 0;
  check_driver(api,
               api.device_can_access_peer(&can_access, contexts.driver_device(source), contexts.driver_device(target)),
               DriverEntryId::device_can_access_peer, [&] { return describe(source, target); });
  return can_access != 0;
}

bool enable_peer_access(Device from, Device to) {
  const std::pair<int, int> pair(resolve_device(from), resolve_device(to));
  if (pair.first == pair.second || enabled_peers().has(pair)) return false;
  if (!can_access_peer(pair.first, pair.second))
    throw NotSupported(
        fmt::format("peer access of device {} to memory of device {}: the devices cannot", pair.first, pair.second));
  const CUcontext peer = process_contexts().primary(pair.second);
  const DeviceScope scope(nullptr, pair.first);
  const CUresult result = scope.api().ctx_enable_peer_access(peer, 0);
  // By somebody else, or by another thread of ours a moment ago. Not remembered: whoever it was
  // may disable it again.
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return false;
  check_driver(scope.api(), result, DriverEntryId::ctx_enable_peer_access,
               [&] { return describe(pair.first, pair.second); });
  enabled_peers().add(pair);
  return true;
}

std::size_t peer_access_count() noexcept { return enabled_peers().count.load(std::memory_order_relaxed); }

}  // namespace cistern
