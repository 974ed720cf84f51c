#pragma once

// HeapsLink: the way to heaps from what may outlive them: MemPools, scopes, budgets, threads.
//
// Thread safety: any thread.

#include <atomic>
#include <shared_mutex>

namespace cistern {

class DeviceHeaps;

struct HeapsLink {
  std::atomic<DeviceHeaps*> heaps;  // null once they have ended
  std::shared_mutex end;            // whoever shares it keeps them from ending meanwhile
};

}  // namespace cistern
