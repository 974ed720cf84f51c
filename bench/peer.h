#pragma once

// The one foreign allocator of this process, to compare with: CISTERN_BENCH_PEER names it
// (tcmalloc, which is the default, mimalloc, jemalloc, glibc, cub, torch, driver_pool or none). One a
// process: two host allocators in one would share pages, caches and luck.
//
// All but glibc's are loaded with dlopen beside the C library's, so that only calls through this
// reach them. Host allocators serve the same sizes; their memory is never touched. cub is the
// CUDA Toolkit's CachingDeviceAllocator over the simulated driver (cub_peer.cpp). torch (torch_peer.cpp) and
// driver_pool (driver_pool_peer.cpp) need a real device.

#include <cstddef>

namespace cistern {

struct Peer {
  const char* name = nullptr;
  void* (*allocate_function)(std::size_t bytes) = nullptr;
  void (*release_function)(void* pointer) = nullptr;
  // Where an allocator knows streams: for the n-th of its own; else null.
  void* (*allocate_on_function)(std::size_t bytes, unsigned stream) = nullptr;
  // Where it has a record_stream: the block is used by the n-th of its streams too; else null.
  void (*record_function)(void* pointer, unsigned stream) = nullptr;

  [[nodiscard]] void* allocate(std::size_t bytes) const { return allocate_function(bytes); }
  void release(void* pointer) const { release_function(pointer); }
  // This allocator for work of the n-th stream.
  struct OnStream;
  [[nodiscard]] OnStream on_stream(unsigned stream) const;
};

struct Peer::OnStream {
  const Peer* peer = nullptr;
  unsigned stream = 0;

  [[nodiscard]] void* allocate(std::size_t bytes) const {
    return peer->allocate_on_function == nullptr ? peer->allocate_function(bytes)
                                                 : peer->allocate_on_function(bytes, stream);
  }
  void release(void* pointer) const { peer->release_function(pointer); }
};
inline Peer::OnStream Peer::on_stream(unsigned stream) const { return {this, stream}; }

// Null where it is not installed, or was not built, or lacks the device that it needs, or none is asked for. Throws
// InvalidArgument for a name that is none of the above.
[[nodiscard]] const Peer* process_peer();

}  // namespace cistern
