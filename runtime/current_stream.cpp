// The current stream of each device, a thread's own, and its guard.

#include <cistern/error.h>
#include <cistern/stream.h>
#include <fmt/format.h>

#include <new>
#include <utility>
#include <vector>

#include "runtime/process_driver.h"
#include "runtime/stream_access.h"

namespace cistern {
namespace {

// By device; a device beyond the end is on its default stream. Behind a plain pointer, so
// that static destructors, which run after the thread's own, still find a valid state. At a fixed offset of the
// thread's block: asked with every request.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::vector<Stream>* streams = nullptr;

struct EndsWithThread {
  ~EndsWithThread() { delete std::exchange(streams, nullptr); }
};
thread_local EndsWithThread ends_with_thread;

Stream default_of(int device) { return StreamAccess::on_device(Stream(), device); }

// Where a device's current stream is kept.
Stream& place_of(int device) {
  static_cast<void>(&ends_with_thread);  // its first use on a thread registers its destructor
  if (streams == nullptr) streams = new std::vector<Stream>();
  for (int i = static_cast<int>(streams->size()); i <= device; ++i) streams->push_back(default_of(i));
  return (*streams)[static_cast<std::size_t>(device)];
}

// The thread's current device needs no look at the driver: it was checked when it was set.
int index_of(Device device) {
  return device.is_current() || device == current_device() ? current_device().index() : resolve_device(device);
}

// Null: none was set.
const Stream* kept_of(int device) noexcept {
  const bool is_kept = streams != nullptr && static_cast<std::size_t>(device) < streams->size();
  return is_kept ? &(*streams)[static_cast<std::size_t>(device)] : nullptr;
}

}  // namespace

const Stream* StreamAccess::current() noexcept { return kept_of(current_device_index()); }

Stream current_stream(Device device) {
  const int index = index_of(device);
  const Stream* const kept = kept_of(index);
  return kept != nullptr ? *kept : default_of(index);
}

Stream default_stream(Device device) { return default_of(index_of(device)); }

void set_stream(const Stream& stream) {
  if (StreamAccess::driver(stream) != nullptr)
    throw InvalidArgument(
        fmt::format("set_stream of {}: it belongs to another driver than the process's own", stream.to_string()));
  const int device = resolve_device(stream.device());
  place_of(device) = StreamAccess::on_device(stream, device);
  restore_current_device(device);
}

const Stream& Stream::use() const {
  set_stream(*this);
  return *this;
}

StreamGuard::StreamGuard(const Stream& stream) { enter(stream); }

StreamGuard::StreamGuard(const std::optional<Stream>& stream) {
  if (stream) enter(*stream);
}

void StreamGuard::enter(const Stream& stream) {
  Replaced replaced{current_stream(), current_stream(stream.device())};
  // The place of either device exists from here on: restoring allocates nothing.
  static_cast<void>(place_of(replaced.on_original_device.device().index()));
  set_stream(stream);
  replaced_ = std::move(replaced);
}

StreamGuard::~StreamGuard() {
  if (!replaced_) return;
  try {
    for (const Stream* stream : {&replaced_->on_streams_device, &replaced_->on_original_device})
      place_of(stream->device().index()) = *stream;
  } catch (const std::bad_alloc&) {
    // The places exist since the constructor. Only a guard that a static destructor ends may
    // find them gone, with the thread's own state, and then no stream is current any more.
  }
  restore_current_device(replaced_->on_original_device.device().index());
}

std::optional<Stream> StreamGuard::original_stream() const {
  if (!replaced_) return std::nullopt;
  return replaced_->on_original_device;
}

}  // namespace cistern
