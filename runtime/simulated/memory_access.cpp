// Which memory an operation may touch, and how it does when its turn has come.

#include "runtime/simulated/memory_access.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

// Larger copies and fills of virtual memory go part by part, so that the host's mappings of one
// part may give way to the next's.
constexpr std::size_t kPart = std::size_t{64} << 20;

void* pointer_to(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

template <class Value>
void fill_values(CUdeviceptr destination, unsigned value, std::size_t bytes) {
  auto* first = static_cast<Value*>(pointer_to(destination));
  std::fill(first, first + bytes / sizeof(Value), static_cast<Value>(value));
}

void fill_bytes(const Fill& fill, std::size_t offset, std::size_t bytes) {
  const CUdeviceptr destination = fill.destination + offset;
  if (fill.width == 1) {
    std::memset(pointer_to(destination), static_cast<int>(fill.value & 0xff), bytes);
  } else if (fill.width == 2) {
    fill_values<std::uint16_t>(destination, fill.value, bytes);
  } else {
    fill_values<std::uint32_t>(destination, fill.value, bytes);
  }
}

// Runs `part(offset, bytes)` over the whole until one fails.
template <class Part>
CUresult in_parts(std::size_t bytes, const Part& part) {
  CUresult result = CUDA_SUCCESS;
  for (std::size_t done = 0; done < bytes && result == CUDA_SUCCESS; done += kPart) {
    result = part(done, std::min(kPart, bytes - done));
  }
  return result;
}

}  // namespace

int DriverState::device_window_at(std::uint64_t address) const {
  if (devices.empty() || address < devices.front().memory.window().begin) return -1;
  const AddressWindow& first = devices.front().memory.window();
  const std::uint64_t index = (address - first.begin) / (first.end - first.begin);
  return index < devices.size() ? static_cast<int>(index) : -1;
}

bool DriverState::is_device_address(std::uint64_t address) const {
  return virtual_memory.window().contains(address) || device_window_at(address) >= 0;
}

int DriverState::device_of_memory(std::uint64_t address) const {
  if (virtual_memory.window().contains(address)) return virtual_memory.device_at(address);
  return device_window_at(address);
}

bool DriverState::may_touch(const Touch& touch, Moment moment) const {
  if (touch.bytes == 0) return true;
  if (virtual_memory.window().contains(touch.address)) {
    return virtual_memory.is_accessible(touch.address, touch.bytes, touch.device, touch.write);
  }
  if (const int owner = device_window_at(touch.address); owner >= 0) {
    const DeviceMemory& memory = devices[static_cast<std::size_t>(owner)].memory;
    if (pools.may_touch(touch, moment) || graph_memory.may_touch(touch, moment)) return true;
    return memory.holds(touch.address, touch.bytes, moment) &&
           (touch.by == Toucher::copy_engine || peers.is_enabled(touch.device, owner));
  }
  if (host_memory.find(touch.address, touch.bytes) != nullptr) return true;
  // Pageable memory of the process is its own affair, but not what was page-locked and freed.
  return touch.by == Toucher::copy_engine && !host_memory.window().contains(touch.address);
}

bool DriverState::is_pageable(std::uint64_t address, std::size_t bytes) const {
  return !is_device_address(address) && host_memory.find(address, bytes) == nullptr;
}

CUresult DriverState::touch(const std::vector<Touch>& touches, const std::function<void()>& access) {
  class Held {
   public:
    Held(DriverState& state, const std::vector<Touch>& touches) : state_(state), touches_(touches) {}
    ~Held() {
      if (count_ == 0) return;
      const std::lock_guard lock(state_.mutex);
      for (std::size_t i = 0; i < count_; ++i) {
        state_.virtual_memory.release_hold(touches_[i].address, touches_[i].bytes);
      }
      state_.hold_released.notify_all();
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    // Requires: the lock is held.
    CUresult take() {
      for (const Touch& touch : touches_) {
        // Since its turn came the lock was free for a moment.
        if (!state_.may_touch(touch, Moment::turn)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        state_.virtual_memory.hold(touch.address, touch.bytes);
        ++count_;
        if (!state_.virtual_memory.show(touch.address, touch.bytes)) return CUDA_ERROR_MAP_FAILED;
      }
      return CUDA_SUCCESS;
    }

   private:
    DriverState& state_;
    const std::vector<Touch>& touches_;
    std::size_t count_ = 0;
  };
  Held held(*this, touches);
  {
    const std::lock_guard lock(mutex);
    if (const CUresult refused = held.take(); refused != CUDA_SUCCESS) return refused;
  }
  if (access) access();
  return CUDA_SUCCESS;
}

bool DriverState::needs_showing(const Touch& touch) const {
  return options.backing == Backing::memory && virtual_memory.window().contains(touch.address);
}

void DriverState::add_touches(Work& work, std::vector<Touch> touches) {
  if (touches.empty()) return;
  for (const Touch& each : touches) work.accesses.push_back({each.address, each.bytes, each.write});
  const bool shows =
      std::any_of(touches.begin(), touches.end(), [&](const Touch& each) { return needs_showing(each); });
  if (shows) {
    work.function = [this, touches, function = std::move(work.function)](CUresult status) {
      CUresult result = CUDA_SUCCESS;
      const CUresult shown = touch(touches, [&] {
        if (function) result = function(status);
      });
      return shown != CUDA_SUCCESS ? shown : result;
    };
  }
  work.is_valid = [this, touches = std::move(touches)] {
    return std::all_of(touches.begin(), touches.end(),
                       [&](const Touch& each) { return may_touch(each, Moment::turn); });
  };
}

CUresult DriverState::run_copy(const Copy& copy) {
  if (options.backing == Backing::none) return CUDA_SUCCESS;
  const auto move = [&copy](std::size_t offset, std::size_t bytes) {
    const void* source = copy.staged ? copy.staged->data() + offset : pointer_to(copy.source + offset);
    std::memmove(pointer_to(copy.destination + offset), source, bytes);
  };
  if (!needs_showing(copy.writes()) && (copy.staged || !needs_showing(copy.reads()))) {
    move(0, copy.bytes);
    return CUDA_SUCCESS;
  }
  return in_parts(copy.bytes, [&](std::size_t offset, std::size_t bytes) {
    Touch writes = copy.writes();
    writes.address += offset;
    writes.bytes = bytes;
    std::vector<Touch> touches{writes};
    if (!copy.staged) {
      Touch reads = copy.reads();
      reads.address += offset;
      reads.bytes = bytes;
      touches.push_back(reads);
    }
    return touch(touches, [&] { move(offset, bytes); });
  });
}

CUresult DriverState::write_in_parts(const Touch& writes, const WritePart& write) {
  if (options.backing == Backing::none) return CUDA_SUCCESS;
  if (!needs_showing(writes)) {
    write(0, writes.bytes);
    return CUDA_SUCCESS;
  }
  return in_parts(writes.bytes, [&](std::size_t offset, std::size_t bytes) {
    Touch part = writes;
    part.address += offset;
    part.bytes = bytes;
    return touch({part}, [&] { write(offset, bytes); });
  });
}

CUresult DriverState::run_fill(const Fill& fill) {
  return write_in_parts(fill.writes(), [&](std::size_t offset, std::size_t bytes) { fill_bytes(fill, offset, bytes); });
}

namespace {

// Bytes per second; 0 is as fast as can be.
Nanoseconds time_for(std::size_t bytes, std::uint64_t bandwidth) {
  if (bandwidth == 0) return {};
  return Nanoseconds(
      static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes) * 1e9 / static_cast<double>(bandwidth))));
}

}  // namespace

Nanoseconds DriverState::duration_in_device(std::size_t bytes) const {
  return time_for(bytes, options.memory_bandwidth);
}

Nanoseconds DriverState::duration_of(const Copy& copy) const {
  const int to = device_of_memory(copy.destination);
  const int from = copy.staged ? -1 : device_of_memory(copy.source);
  if (to < 0 || from < 0) return time_for(copy.bytes, options.host_bandwidth);
  return to == from ? duration_in_device(copy.bytes) : time_for(copy.bytes, options.peer_bandwidth);
}

Work DriverState::work_of(Copy copy) {
  Work work{.label = {OperationKind::copy, {}}, .duration = duration_of(copy)};
  work.accesses = copy.accesses();
  work.is_valid = [this, writes = copy.writes(), reads = copy.staged ? Touch{} : copy.reads()] {
    return may_touch(writes, Moment::turn) && may_touch(reads, Moment::turn);
  };
  work.function = [this, copy = std::move(copy)](CUresult) { return run_copy(copy); };
  return work;
}

Work DriverState::work_of(const Fill& fill) {
  Work work{.label = {OperationKind::fill, {}}, .duration = duration_in_device(fill.bytes())};
  work.accesses = {{fill.destination, fill.bytes(), true}};
  work.is_valid = [this, writes = fill.writes()] { return may_touch(writes, Moment::turn); };
  work.function = [this, fill](CUresult) { return run_fill(fill); };
  return work;
}

bool DriverState::show_to_host(std::uint64_t address, std::size_t bytes) {
  return !virtual_memory.window().contains(address) || virtual_memory.show(address, bytes);
}

}  // namespace cistern::simulated
