#include "runtime/simulated/streams.h"

#include <algorithm>

#include "runtime/simulated/thread_numbers.h"

namespace cistern::simulated {
namespace {

std::uint64_t number_of(CUstream handle) { return reinterpret_cast<std::uint64_t>(handle); }
CUstream stream_handle(std::uint64_t number) { return reinterpret_cast<CUstream>(number); }

}  // namespace

Streams::Streams(Executor& executor, int devices, std::uint16_t driver)
    : executor_(executor), created_(HandleKind::stream, driver, HandleReuse::soon) {
  for (int device = 0; device < devices; ++device) {
    legacy_.push_back(make(device, CU_STREAM_DEFAULT, kLeastPriority, nullptr));
    executor_.device(device).legacy = legacy_.back().get();
  }
}

std::unique_ptr<StreamQueue> Streams::make(int device, unsigned flags, int priority, CUstream handle) {
  auto stream = std::make_unique<StreamQueue>();
  stream->device = device;
  stream->handle = handle;
  stream->id = next_id_++;
  stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  stream->flags = flags;
  return stream;
}

CUstream Streams::create(int device, unsigned flags, int priority) {
  drop_retired();
  std::unique_ptr<StreamQueue> stream = make(device, flags, priority, nullptr);
  DeviceQueues& queues = executor_.device(device);
  auto& listed = stream->synchronizes_with_legacy() ? queues.blocking : queues.non_blocking;
  listed.reserve(listed.size() + 1);
  std::unique_ptr<StreamQueue>* place = nullptr;
  stream->handle = stream_handle(created_.insert(&place));
  listed.push_back(stream.get());
  *place = std::move(stream);
  return (*place)->handle;
}

StreamQueue& Streams::of_this_thread(int device) {
  auto& stream = per_thread_[{this_thread_number(), device}];
  if (stream == nullptr) {
    stream = make(device, CU_STREAM_DEFAULT, kLeastPriority, CU_STREAM_PER_THREAD);
    executor_.device(device).blocking.push_back(stream.get());
  }
  return *stream;
}

bool Streams::is_default(CUstream handle) noexcept { return number_of(handle) <= number_of(CU_STREAM_PER_THREAD); }

StreamQueue* Streams::find(CUstream handle, int current_device) {
  if (!is_default(handle)) {
    const auto* stream = created_.find(number_of(handle));
    return stream == nullptr ? nullptr : stream->get();
  }
  if (current_device < 0) return nullptr;
  if (handle == CU_STREAM_PER_THREAD) return &of_this_thread(current_device);
  return legacy_[static_cast<std::size_t>(current_device)].get();
}

void Streams::destroy(StreamQueue& stream) {
  const std::uint64_t handle = number_of(stream.handle);
  retired_.push_back(std::move(created_.at(handle)));
  created_.erase(handle);
  drop_retired();
}

std::vector<StreamQueue*> Streams::of_thread(std::uint64_t thread) {
  std::vector<StreamQueue*> found;
  for (auto stream = per_thread_.lower_bound({thread, 0}); stream != per_thread_.end() && stream->first.first == thread;
       ++stream) {
    found.push_back(stream->second.get());
  }
  return found;
}

void Streams::retire_thread(std::uint64_t thread) {
  auto stream = per_thread_.lower_bound({thread, 0});
  while (stream != per_thread_.end() && stream->first.first == thread) {
    retired_.push_back(std::move(stream->second));
    stream = per_thread_.erase(stream);
  }
  drop_retired();
}

void Streams::drop_retired() {
  const auto done = std::stable_partition(retired_.begin(), retired_.end(),
                                          [](const auto& stream) { return stream->last != nullptr; });
  for (auto stream = done; stream != retired_.end(); ++stream) {
    DeviceQueues& queues = executor_.device((*stream)->device);
    auto& listed = (*stream)->synchronizes_with_legacy() ? queues.blocking : queues.non_blocking;
    listed.erase(std::find(listed.begin(), listed.end(), stream->get()));
  }
  retired_.erase(done, retired_.end());
}

}  // namespace cistern::simulated
