#pragma once

#include <cistern/allocator.h>
#include <cistern/history.h>
#include <cistern/simulated.h>
#include <cistern/snapshot.h>
#include <cistern/stats.h>
#include <cistern/stream.h>

#include <cuda.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "runtime/stream_access.h"

namespace cistern {

// An allocator over a driver of its own, for a program on streams that use each other's blocks; the first alone has
// some, if nothing else is said.
class UsedHeap {
 public:
  static constexpr std::size_t kStreams = 3;

  UsedHeap(const std::string& policy, bool is_looked_at)
      : is_looked_at_(is_looked_at),
        allocator_({.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:" + policy)}) {
    HistoryOptions history = HistoryOptions::always_on();
    history.max_entries = 4096;
    allocator_.record_history(history);
  }

  std::uintptr_t allocate(std::size_t bytes, std::size_t owner = 0) {
    settle();
    blocks_.push_back(allocator_.allocate(bytes, streams_[owner]));
    if (first_ == nullptr) first_ = blocks_.back();
    return static_cast<std::uintptr_t>(static_cast<char*>(blocks_.back()) - static_cast<char*>(first_));
  }
  void use(std::size_t which, std::size_t user) {
    settle();
    // By a Stream, and now and then by its handle: these are known in different ways.
    if (++uses_ % 4 == 0)
      allocator_.record_stream(blocks_[which], streams_[user]);
    else
      allocator_.record_stream(blocks_[which], users_[user]);
  }
  void free(std::size_t which) {
    settle();
    allocator_.deallocate(blocks_[which]);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void free_elsewhere(std::size_t which) {
    std::thread([&] { free(which); }).join();
  }
  void hold_up(std::size_t user) { driver_.occupy(streams_[user], std::chrono::milliseconds(10)); }
  void let_go(std::size_t user) { driver_.run_until_idle(streams_[user]); }
  [[nodiscard]] std::size_t live() const { return blocks_.size(); }
  [[nodiscard]] CachingAllocator& allocator() { return allocator_; }
  // What the history tells, but for times and addresses.
  [[nodiscard]] std::vector<std::pair<TraceAction, std::int64_t>> told() {
    std::vector<std::pair<TraceAction, std::int64_t>> all;
    const Snapshot snapshot = allocator_.snapshot();
    for (const TraceEntry& entry : snapshot.device_traces.at(0)) all.emplace_back(entry.action, entry.size);
    return all;
  }

 private:
  [[nodiscard]] Stream user_of(StreamHandle handle) const {
    unsigned long long id = 0;
    if (driver_.api().stream_get_id(handle, &id) != CUDA_SUCCESS) throw std::logic_error("the stream has no id");
    return StreamAccess::wrap(driver_.api(), StreamIdentity{handle, id}, 0, std::make_shared<int>());
  }
  void settle() {
    if (is_looked_at_) static_cast<void>(allocator_.memory_stats());
  }

  bool is_looked_at_;
  SimulatedDriver driver_{{.capacity_bytes = std::size_t{4} << 30, .backing = Backing::none}};
  const std::array<StreamHandle, kStreams> streams_ = {driver_.create_stream(), driver_.create_stream(),
                                                       driver_.create_stream()};
  CachingAllocator allocator_;
  const std::array<Stream, kStreams> users_ = {user_of(streams_[0]), user_of(streams_[1]), user_of(streams_[2])};
  std::uint64_t uses_ = 0;
  std::vector<void*> blocks_;
  void* first_ = nullptr;
};

}  // namespace cistern
