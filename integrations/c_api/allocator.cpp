#include <cistern/allocator.h>
#include <cistern/mem_pool.h>

#include <optional>
#include <string>
#include <utility>

#include "allocator/checked_free.h"
#include "allocator/process_heap.h"
#include "integrations/c_api/status.h"
#include "integrations/c_api/versioned.h"

using cistern::OwnFree;
using cistern::c_api::guarded;
using cistern::c_api::read_struct;
using cistern::c_api::request_stream_of;
using cistern::c_api::require;
using cistern::c_api::require_given;
using cistern::c_api::stream_of;

struct cistern_pool {
  cistern::MemPool pool;
};
struct cistern_pool_scope {
  explicit cistern_pool_scope(const cistern::MemPool& pool) : guard(pool) {}
  cistern::MemPoolGuard guard;
};

namespace {

cistern::PoolId pool_id(cistern_pool_id id) { return {id.first, id.second}; }
cistern_pool_id pool_id(cistern::PoolId id) { return {id.first, id.second}; }

void deallocate(void* pointer, std::optional<std::size_t> bytes, int device, cistern_stream stream) {
  if (pointer == nullptr) return;
  const OwnFree done = cistern::deallocate_on_own_stream(pointer, bytes, request_stream_of(device, stream));
  if (done == OwnFree::no_block) cistern::refuse_free(pointer);
  if (done == OwnFree::freed) return;
  const cistern::Stream last_use = stream_of(device, stream);
  cistern::deallocate_checked(pointer, bytes, &last_use);
}

}  // namespace

cistern_status cistern_allocate(size_t bytes, int device, cistern_stream stream, void** pointer) {
  return guarded([&] {
    require(pointer, "pointer");
    void* const at_hand = cistern::allocate_at_hand(bytes, request_stream_of(device, stream));
    *pointer = at_hand != nullptr ? at_hand : cistern::allocate(bytes, stream_of(device, stream));
  });
}

cistern_status cistern_allocate_aligned(size_t bytes, size_t alignment, int device, cistern_stream stream,
                                        void** pointer) {
  return guarded([&] {
    require(pointer, "pointer");
    *pointer = cistern::allocate_aligned(bytes, alignment, stream_of(device, stream));
  });
}

cistern_status cistern_deallocate(void* pointer) {
  return guarded([&] { cistern::deallocate_checked(pointer); });
}
cistern_status cistern_deallocate_on(void* pointer, int device, cistern_stream stream) {
  return guarded([&] { deallocate(pointer, std::nullopt, device, stream); });
}
cistern_status cistern_deallocate_sized(void* pointer, size_t bytes, int device, cistern_stream stream) {
  return guarded([&] { deallocate(pointer, bytes, device, stream); });
}
cistern_status cistern_record_stream(void* pointer, int device, cistern_stream stream) {
  return guarded([&] {
    if (pointer != nullptr) cistern::record_stream_checked(pointer, stream_of(device, stream));
  });
}
cistern_status cistern_register_stream(int device, cistern_stream stream) {
  return guarded([&] { cistern::register_stream(stream_of(device, stream)); });
}

cistern_status cistern_release_stream(int device, cistern_stream stream) {
  return guarded([&] { cistern::release_stream(stream_of(device, stream)); });
}
cistern_status cistern_empty_cache() {
  return guarded([] { cistern::empty_cache(); });
}
cistern_status cistern_trim(size_t target_bytes, int device, size_t* released) {
  return guarded([&] {
    const std::size_t bytes = cistern::trim(target_bytes, device);
    if (released != nullptr) *released = bytes;
  });
}
cistern_status cistern_set_memory_fraction(double fraction, int device) {
  return guarded([&] { cistern::set_memory_fraction(fraction, device); });
}
cistern_status cistern_memory_fraction(int device, double* fraction) {
  return guarded([&] {
    require(fraction, "fraction");
    *fraction = cistern::memory_fraction(device);
  });
}
cistern_status cistern_set_options(const char* text) {
  return guarded([&] { cistern::set_options(text == nullptr ? "" : text); });
}
cistern_status cistern_effective_config(char* text, size_t bytes, size_t* needed) {
  return guarded([&] {
    cistern::c_api::require_room(text, bytes, needed);
    cistern::c_api::write_text(cistern::effective_config(), text, bytes, needed);
  });
}

cistern_status cistern_last_out_of_memory(cistern_out_of_memory_report* report) {
  return guarded([&] {
    cistern::c_api::require_struct(report, "report");
    const cistern_out_of_memory_report* last = cistern::c_api::last_out_of_memory();
    if (last == nullptr) throw cistern::NotReady("no request of this thread has run out of memory yet");
    cistern::c_api::write_struct(report, *last);
  });
}

cistern_status cistern_add_out_of_memory_observer(cistern_out_of_memory_observer observer, void* user_data,
                                                  uint64_t* id) {
  return guarded([&] {
    require_given(reinterpret_cast<const void*>(observer), "observer");
    require(id, "id");
    const auto call = [observer, user_data](const cistern::OutOfMemoryReport& report) {
      const cistern_out_of_memory_report made = cistern::c_api::report_of(report);
      observer(&made, user_data);
    };
    *id = static_cast<std::uint64_t>(cistern::add_out_of_memory_observer(call));
  });
}
cistern_status cistern_add_free_memory_callback(cistern_free_memory_callback callback, void* user_data, uint64_t* id) {
  return guarded([&] {
    require_given(reinterpret_cast<const void*>(callback), "callback");
    require(id, "id");
    const auto call = [callback, user_data](int device, std::size_t bytes) {
      return callback(device, bytes, user_data) != 0;
    };
    *id = static_cast<std::uint64_t>(cistern::add_free_memory_callback(call));
  });
}
cistern_status cistern_remove_observer(uint64_t id) {
  return guarded([&] {
    if (!cistern::remove_observer(static_cast<cistern::ObserverId>(id)))
      throw cistern::InvalidArgument("observer " + std::to_string(id) + ": there is none of that id");
  });
}

cistern_status cistern_pool_create(const cistern_pool_options* options, cistern_pool** pool) {
  return guarded([&] {
    require(pool, "pool");
    const cistern_pool_options read = read_struct(options, "options");
    cistern::MemPoolOptions made;
    if (options != nullptr) made.device = cistern::Device(read.device);
    made.use_on_oom = read.use_on_oom != 0;
    made.no_split = read.no_split != 0;
    if (read.name != nullptr) made.name = read.name;
    *pool = new cistern_pool{cistern::MemPool(made)};
  });
}
void cistern_pool_destroy(cistern_pool* pool) { delete pool; }
cistern_status cistern_pool_allocate(const cistern_pool* pool, size_t bytes, int device, cistern_stream stream,
                                     void** pointer) {
  return guarded([&] {
    require_given(pool, "pool");
    require(pointer, "pointer");
    *pointer = pool->pool.allocate(bytes, stream_of(device, stream));
  });
}
cistern_status cistern_pool_trim(const cistern_pool* pool, size_t* released) {
  return guarded([&] {
    require_given(pool, "pool");
    const std::size_t bytes = pool->pool.trim();
    if (released != nullptr) *released = bytes;
  });
}
cistern_status cistern_pool_scope_begin(const cistern_pool* pool, cistern_pool_scope** scope) {
  return guarded([&] {
    require_given(pool, "pool");
    require(scope, "scope");
    *scope = new cistern_pool_scope(pool->pool);
  });
}
void cistern_pool_scope_end(cistern_pool_scope* scope) { delete scope; }

cistern_pool_id cistern_capture_pool_id() { return pool_id(cistern::capture_pool_id()); }
cistern_pool_id cistern_graph_pool_handle() { return pool_id(cistern::graph_pool_handle()); }
cistern_status cistern_begin_allocate_to_pool(int device, cistern_pool_id id, const cistern_stream* stream) {
  return guarded([&] {
    const cistern::PoolFilter filter = stream == nullptr ? cistern::PoolFilter::this_thread()
                                                         : cistern::PoolFilter::stream(stream_of(device, *stream));
    cistern::begin_allocate_to_pool(device, pool_id(id), filter);
  });
}
cistern_status cistern_end_allocate_to_pool(int device, cistern_pool_id id) {
  return guarded([&] { cistern::end_allocate_to_pool(device, pool_id(id)); });
}
cistern_status cistern_release_pool(int device, cistern_pool_id id) {
  return guarded([&] { cistern::release_pool(device, pool_id(id)); });
}
