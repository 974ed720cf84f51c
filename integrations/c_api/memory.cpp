#include <cistern/blas.h>
#include <cistern/c_api.h>
#include <cistern/ipc.h>
#include <cistern/processes.h>
#include <cistern/pytorch_names.h>
#include <cistern/stats.h>

#include <optional>

#include "integrations/c_api/status.h"

using cistern::c_api::guarded;
using cistern::c_api::require;
using cistern::c_api::stream_of;

cistern_status cistern_current_blas_handle(cublasContext** handle) {
  return guarded([&] {
    require(handle, "handle");
    *handle = cistern::current_blas_handle();
  });
}

cistern_status cistern_caching_allocator_alloc(size_t bytes, int device, const cistern_stream* stream, void** pointer) {
  return guarded([&] {
    require(pointer, "pointer");
    std::optional<cistern::Stream> chosen;
    if (stream != nullptr) chosen = stream_of(device, *stream);
    *pointer = cistern::caching_allocator_alloc(bytes, device, chosen);
  });
}

void cistern_caching_allocator_delete(void* pointer) { cistern::caching_allocator_delete(pointer); }

cistern_status cistern_memory_cached(int device, size_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = cistern::memory_reserved(device);
  });
}

cistern_status cistern_max_memory_cached(int device, size_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = cistern::max_memory_reserved(device);
  });
}

cistern_status cistern_reset_max_memory_allocated(int device) {
  return guarded([&] { cistern::reset_peak_memory_stats(device); });
}
cistern_status cistern_reset_max_memory_cached(int device) {
  return guarded([&] { cistern::reset_peak_memory_stats(device); });
}

cistern_status cistern_list_gpu_processes(int device, char* text, size_t bytes, size_t* needed) {
  return guarded([&] {
    cistern::c_api::require_room(text, bytes, needed);
    cistern::c_api::write_text(cistern::list_gpu_processes(device), text, bytes, needed);
  });
}

cistern_status cistern_ipc_collect() {
  return guarded([] { cistern::ipc_collect(); });
}
