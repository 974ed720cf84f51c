#pragma once

// Peer access on demand.
//
// Thread safety: the function may be called from any thread.

namespace cistern::comm {

// Lets work of `to` reach memory of `from`, where the devices can; asks once a pair. Copies between devices that
// cannot go through the host. Throws DriverError.
void enable_peers(int to, int from);

}  // namespace cistern::comm
