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
  const char* allocate_on;  // null: it knows no streams
};
constexpr PeerLibrary kLibraries[] = {
    {"tcmalloc", "libtcmalloc_minimal.so.4", "tc_malloc", "tc_free", nullptr},
    {"mimalloc", "libmimalloc.so.2.0", "mi_malloc", "mi_free", nullptr},
    {"mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_free", nullptr},
    {"mimalloc", "libmimalloc.so.3", "mi_malloc", "mi_free", nullptr},
    {"jemalloc", "libjemalloc.so.2", "malloc", "free", nullptr},
    {"glibc", nullptr, nullptr, nullptr, nullptr},
    {"cub", "libcistern_cub_peer.so", "cistern_cub_allocate", "cistern_cub_release", "cistern_cub_allocate_on"},
};

// Empty where the library or a function of it is missing.
Peer load(const PeerLibrary& library) {
  Peer peer;
  if (library.file == nullptr) {
    peer = {library.name, &std::malloc, &std::free, nullptr};
    return peer;
  }
  void* const handle = ::dlopen(library.file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return peer;
  peer.allocate_function = reinterpret_cast<void* (*)(std::size_t)>(::dlsym(handle, library.allocate));
  peer.release_function = reinterpret_cast<void (*)(void*)>(::dlsym(handle, library.release));
  if (library.allocate_on != nullptr)
    peer.allocate_on_function =
        reinterpret_cast<void* (*)(std::size_t, unsigned)>(::dlsym(handle, library.allocate_on));
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
                          "': expected tcmalloc, mimalloc, jemalloc, glibc, cub or none");
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
