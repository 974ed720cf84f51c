#include <cistern/device.h>
#include <cistern/event.h>
#include <cistern/memory.h>

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "integrations/c_api/status.h"
#include "integrations/c_api/versioned.h"
#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

using cistern::Device;
using cistern::Event;
using cistern::Stream;
using cistern::c_api::guarded;
using cistern::c_api::read_struct;
using cistern::c_api::require;
using cistern::c_api::require_given;
using cistern::c_api::stream_of;

struct cistern_event {
  Event event;
};

namespace cistern::c_api {
namespace {

// The streams of cistern_stream_create, which own their driver's. Never destroyed: code that runs at exit may ask.
struct CreatedStreams {
  std::shared_mutex mutex;
  std::map<cistern_stream, Stream> streams;
};
CreatedStreams& created_streams() {
  static auto& created = *new CreatedStreams();
  return created;
}

StreamOptions options_of(int device, const cistern_stream_options* given) {
  const cistern_stream_options read = read_struct(given, "options");
  StreamOptions options;
  options.device = Device(device);
  options.priority = read.priority;
  options.non_blocking = read.blocking == 0;
  return options;
}

Device resolved(int device) {
  const Device given(device);
  return given.is_current() ? current_device() : given;
}

[[noreturn]] void refuse_stream(cistern_stream stream) {
  char text[96];
  std::snprintf(text, sizeof text, "stream %p: expected one of cistern_stream_create", static_cast<void*>(stream));
  throw InvalidArgument(text);
}

void require_done(bool done, const char* what) {
  if (!done) throw NotReady(std::string(what) + ": work before it is under way");
}

}  // namespace

Stream stream_of(int device, cistern_stream handle) {
  const Device on = resolved(device);
  if (handle == nullptr) return default_stream(on);
  {
    CreatedStreams& created = created_streams();
    const std::shared_lock lock(created.mutex);
    if (const auto found = created.streams.find(handle); found != created.streams.end()) {
      if (found->second.device() != on)
        throw InvalidArgument(found->second.to_string() + ": it is not of device " + std::to_string(on.index()));
      return found->second;
    }
  }
  return Stream::external(handle, on);
}

Stream request_stream_of(int device, cistern_stream handle) {
  KnownStream known;
  if (handle == nullptr || !process_contexts().known_streams().find(handle, &known) ||
      known.device != resolved(device).index())
    return stream_of(device, handle);
  return StreamAccess::wrap(process_driver(), {handle, known.id}, known.device);
}

}  // namespace cistern::c_api

using cistern::c_api::created_streams;

cistern_status cistern_initialize() {
  return guarded([] { cistern::initialize(); });
}
cistern_status cistern_device_count(int* count) {
  return guarded([&] {
    require(count, "count");
    *count = cistern::device_count();
  });
}
cistern_status cistern_current_device(int* device) {
  return guarded([&] {
    require(device, "device");
    *device = cistern::current_device().index();
  });
}
cistern_status cistern_set_device(int device) {
  return guarded([&] { cistern::set_device(device); });
}
cistern_status cistern_synchronize(int device) {
  return guarded([&] { cistern::synchronize(device); });
}
cistern_status cistern_memory_info(int device, size_t* free_bytes, size_t* total_bytes) {
  return guarded([&] {
    require(free_bytes, "free_bytes");
    require(total_bytes, "total_bytes");
    const cistern::MemoryInfo info = cistern::memory_info(device);
    *free_bytes = info.free;
    *total_bytes = info.total;
  });
}

cistern_status cistern_stream_create(int device, const cistern_stream_options* options, cistern_stream* stream) {
  return guarded([&] {
    require(stream, "stream");
    const Stream made = Stream::create(cistern::c_api::options_of(device, options));
    const std::unique_lock lock(created_streams().mutex);
    created_streams().streams.insert_or_assign(made.native_handle(), made);
    *stream = made.native_handle();
  });
}

cistern_status cistern_stream_destroy(cistern_stream stream) {
  return guarded([&] {
    std::map<cistern_stream, Stream>::node_type ended;  // its last copy ends without the lock
    {
      const std::unique_lock lock(created_streams().mutex);
      ended = created_streams().streams.extract(stream);
    }
    if (ended.empty()) cistern::c_api::refuse_stream(stream);
  });
}

cistern_status cistern_stream_from_pool(int device, const cistern_stream_options* options, cistern_stream* stream) {
  return guarded([&] {
    require(stream, "stream");
    *stream = Stream::from_pool(cistern::c_api::options_of(device, options)).native_handle();
  });
}
cistern_status cistern_current_stream(int device, cistern_stream* stream) {
  return guarded([&] {
    require(stream, "stream");
    *stream = cistern::current_stream(device).native_handle();
  });
}
cistern_status cistern_set_stream(int device, cistern_stream stream) {
  return guarded([&] { cistern::set_stream(stream_of(device, stream)); });
}
cistern_status cistern_stream_query(int device, cistern_stream stream) {
  return guarded([&] { cistern::c_api::require_done(stream_of(device, stream).query(), "stream"); });
}
cistern_status cistern_stream_synchronize(int device, cistern_stream stream) {
  return guarded([&] { stream_of(device, stream).synchronize(); });
}
cistern_status cistern_stream_wait_stream(int device, cistern_stream stream, int other_device, cistern_stream other) {
  return guarded([&] { stream_of(device, stream).wait_stream(stream_of(other_device, other)); });
}

cistern_status cistern_event_create(const cistern_event_options* options, cistern_event** event) {
  return guarded([&] {
    require(event, "event");
    const cistern_event_options read = read_struct(options, "options");
    cistern::EventOptions made;
    made.enable_timing = read.enable_timing != 0;
    made.blocking = read.blocking != 0;
    *event = new cistern_event{Event(made)};
  });
}
void cistern_event_destroy(cistern_event* event) { delete event; }
cistern_status cistern_event_record(cistern_event* event, int device, cistern_stream stream) {
  return guarded([&] {
    require_given(event, "event");
    event->event.record(stream_of(device, stream));
  });
}
cistern_status cistern_event_query(const cistern_event* event) {
  return guarded([&] {
    require_given(event, "event");
    cistern::c_api::require_done(event->event.query(), "event");
  });
}
cistern_status cistern_event_synchronize(const cistern_event* event) {
  return guarded([&] {
    require_given(event, "event");
    event->event.synchronize();
  });
}
cistern_status cistern_event_wait(const cistern_event* event, int device, cistern_stream stream) {
  return guarded([&] {
    require_given(event, "event");
    event->event.wait(stream_of(device, stream));
  });
}
cistern_status cistern_event_elapsed_time(const cistern_event* start, const cistern_event* end, float* milliseconds) {
  return guarded([&] {
    require_given(start, "start");
    require_given(end, "end");
    require(milliseconds, "milliseconds");
    *milliseconds = start->event.elapsed_time(end->event);
  });
}

cistern_status cistern_copy_async(void* destination, const void* source, size_t bytes, int device,
                                  cistern_stream stream) {
  return guarded([&] { cistern::copy_async(destination, source, bytes, stream_of(device, stream)); });
}
cistern_status cistern_fill_async(void* destination, unsigned char value, size_t bytes, int device,
                                  cistern_stream stream) {
  return guarded([&] { cistern::fill_async(destination, value, bytes, stream_of(device, stream)); });
}
