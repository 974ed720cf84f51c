#pragma once

// Who is told when enable_peer_access lets one device reach another's memory. The driver's own
// switch is about memory of cuMemAlloc; mapped memory has to be opened range by range.
//
// Thread safety: all functions may be called from any thread. A listener is told with the list's
// lock held: it must not come here again.

#include <vector>

namespace cistern {

class PeerListener {
 public:
  // `from` may use memory of `to` from now on. What is thrown reaches the caller of
  // enable_peer_access, who may call it again.
  virtual void peer_enabled(int from, int to) = 0;

 protected:
  ~PeerListener() = default;
};

void add_peer_listener(PeerListener& listener);
// When it returns the listener is not told any more.
void remove_peer_listener(PeerListener& listener) noexcept;
// The devices that may use memory of `device`.
[[nodiscard]] std::vector<int> peers_of(int device);

}  // namespace cistern
