// Which device may reach whose memory.

#include "runtime/peer_access.h"

#include <cistern/device.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
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
  // Of mapped memory, whoever has enabled the rest; guarded by the same mutex.
  std::set<std::pair<int, int>> open;
};
EnabledPeers& enabled_peers() {
  static EnabledPeers& peers = *new EnabledPeers;
  return peers;
}

// Apart from the pairs: a listener asks for them.
struct PeerListeners {
  std::mutex mutex;
  std::vector<PeerListener*> all;
};
PeerListeners& peer_listeners() {
  static PeerListeners& listeners = *new PeerListeners;
  return listeners;
}

// Mapped memory is opened; heaps that are made meanwhile find the pair in the list.
void open_mapped_memory(std::pair<int, int> pair) {
  {
    const std::lock_guard lock(enabled_peers().mutex);
    enabled_peers().open.insert(pair);
  }
  try {
    PeerListeners& listeners = peer_listeners();
    const std::lock_guard lock(listeners.mutex);
    for (PeerListener* listener : listeners.all) listener->peer_enabled(pair.first, pair.second);
  } catch (...) {
    const std::lock_guard lock(enabled_peers().mutex);
    enabled_peers().open.erase(pair);
    throw;
  }
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
  const bool was_enabled = result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  if (!was_enabled)
    check_driver(scope.api(), result, DriverEntryId::ctx_enable_peer_access,
                 [&] { return describe(pair.first, pair.second); });
  // If this fails the pair is not remembered, and the next call tries it again.
  open_mapped_memory(pair);
  if (!was_enabled) enabled_peers().add(pair);
  return !was_enabled;
}

void add_peer_listener(PeerListener& listener) {
  const std::lock_guard lock(peer_listeners().mutex);
  peer_listeners().all.push_back(&listener);
}

void remove_peer_listener(PeerListener& listener) noexcept {
  const std::lock_guard lock(peer_listeners().mutex);
  auto& all = peer_listeners().all;
  all.erase(std::remove(all.begin(), all.end(), &listener), all.end());
}

std::vector<int> peers_of(int device) {
  const std::lock_guard lock(enabled_peers().mutex);
  std::vector<int> peers;
  for (const auto& [from, to] : enabled_peers().open)
    if (to == device) peers.push_back(from);
  return peers;
}

std::size_t peer_access_count() noexcept { return enabled_peers().count.load(std::memory_order_relaxed); }

}  // namespace cistern
