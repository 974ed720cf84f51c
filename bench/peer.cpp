#include "bench/peer.h"

#include <cistern/error.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace cistern {
namespace {

struct PeerLibrary {
  const char* name;
  const char* file;  // null: the C library, which is there
  const char* allocate;
  const char* release;
  const char* allocate_on = nullptr;  // null: it knows no streams
  const char* record = nullptr;       // null: it has no record_stream
};
constexpr PeerLibrary kLibraries[] = {
    {"tcmalloc", "libtcmalloc_minimal.so.4", "tc_malloc", "tc_free"},
    {"mimalloc", "libmimalloc.so.2.0", "mi_malloc", "mi_free"},
    {"mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_free"},
    {"mimalloc", "libmimalloc.so.3", "mi_malloc", "mi_free"},
    {"jemalloc", "libjemalloc.so.2", "malloc", "free"},
    {"glibc", nullptr, nullptr, nullptr},
    {"cub", "libcistern_cub_peer.so", "cistern_cub_allocate", "cistern_cub_release", "cistern_cub_allocate_on"},
    {"torch", "libcistern_torch_peer.so", "cistern_torch_allocate", "cistern_torch_release",
     "cistern_torch_allocate_on", "cistern_torch_record"},
    {"driver_pool", "libcistern_driver_pool_peer.so", "cistern_driver_pool_allocate", "cistern_driver_pool_release",
     "cistern_driver_pool_allocate_on"},
};

template <class Function>
void find(void* handle, const char* symbol, Function& function) {
  if (symbol != nullptr) function = reinterpret_cast<Function>(::dlsym(handle, symbol));
}

// What needs a device says whether it has one.
bool is_ready(void* handle) {
  bool (*ready)() = nullptr;
  find(handle, "cistern_peer_is_ready", ready);
  return ready == nullptr || ready();
}

// Empty where the library or a function of it is missing.
Peer load(const PeerLibrary& library) {
  Peer peer;
  if (library.file == nullptr) {
    peer = {library.name, &std::malloc, &std::free};
    return peer;
  }
  void* const handle = ::dlopen(library.file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr || !is_ready(handle)) return peer;
  find(handle, library.allocate, peer.allocate_function);
  find(handle, library.release, peer.release_function);
  find(handle, library.allocate_on, peer.allocate_on_function);
  find(handle, library.record, peer.record_function);
  if (peer.allocate_function != nullptr && peer.release_function != nullptr) peer.name = library.name;
  return peer;
}

Peer load_named(std::string_view name) {
  bool is_known = name == "none";
  for (const PeerLibrary& library : kLibraries) {
    if (name != library.name) continue;
    is_known = true;
    if (const Peer peer = load(library); peer.name != nullptr) return peer;
  }
  if (!is_known)
    throw InvalidArgument("CISTERN_BENCH_PEER: '" + std::string(name) +
                          "': expected tcmalloc, mimalloc, jemalloc, glibc, cub, torch, driver_pool or none");
  return {};
}

}  // namespace

const Peer* process_peer() {
  static const Peer peer = [] {
    const char* name = std::getenv("CISTERN_BENCH_PEER");
    return load_named(name == nullptr ? "tcmalloc" : name);
  }();
  return peer.name == nullptr ? nullptr : &peer;
}

}  // namespace cistern
