#pragma once

// What goes on without the heap's lock.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/stream_access.h"
#include "tests/byte_units.h"

namespace cistern {

// A driver that calls somebody once, when it hears of a free.
struct TellingDriver {
  SimulatedDriver& driver;
  std::function<void()> when_told = nullptr;

  [[nodiscard]] DriverApi api() {
    DriverApi api = driver.api();
    api.note_free = {this, [](void* self, CUdeviceptr, std::size_t, CUstream, const void*) {
                       auto& now = *static_cast<TellingDriver*>(self);
                       if (const auto call = std::exchange(now.when_told, nullptr)) call();
                     }};
    return api;
  }
};

// What streams do while a free on another one is under way, which has that stream's lock: whoever needs the heap's
// waits for it.
class WithoutTheHeapsLockTest : public ::testing::Test {
 protected:
  explicit WithoutTheHeapsLockTest(const char* options = "oom_dump:off,policy:classic") : options_(options) {}
  void turn(StreamHandle stream) {
    void* const first = allocator_.allocate(kKibi, stream);
    void* const second = allocator_.allocate(2 * kKibi, stream);
    allocator_.deallocate(first);
    allocator_.deallocate(second);
  }
  void turns(const std::vector<StreamHandle>& streams, int count) {
    for (int i = 0; i < count; ++i)
      for (const StreamHandle stream : streams) turn(stream);
  }
  // A random one of them goes, and a block of a random size to 256 KiB comes.
  template <class Random>
  void replace(std::vector<void*>& live, Random& random, StreamHandle stream, int count) {
    for (; count > 0; --count) {
      void*& block = live[random() % live.size()];
      allocator_.deallocate(block);
      block = allocator_.allocate(1 + random() % (256 * kKibi), stream);
    }
  }
  // So many blocks of 256 KiB come and go: what follows is far below the peaks.
  void make_room(StreamHandle stream, int blocks) {
    std::vector<void*> all;
    for (; blocks > 0; --blocks) all.push_back(allocator_.allocate(256 * kKibi, stream));
    for (void* const block : all) allocator_.deallocate(block);
  }
  [[nodiscard]] std::vector<StreamHandle> streams(int count) {
    std::vector<StreamHandle> all;
    for (int i = 0; i < count; ++i) all.push_back(driver_.create_stream());
    return all;
  }
  // Whether a thread that did `before` comes to the end of `meanwhile`.
  bool goes_on(const std::function<void()>& before, const std::function<void()>& meanwhile) {
    for (int times = 0; times < 3; ++times) allocator_.deallocate(allocator_.allocate(512, own_));
    void* const kept = allocator_.allocate(512, own_);
    std::promise<void> ready;
    std::promise<void> asks;
    std::promise<void> done;
    std::thread thread([&] {
      before();
      ready.set_value();
      asks.get_future().wait();
      meanwhile();
      done.set_value();
    });
    ready.get_future().wait();
    bool went_on = false;
    telling_.when_told = [&] {
      asks.set_value();
      went_on = done.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    };
    allocator_.deallocate(kept);
    thread.join();
    allocator_.check();
    return went_on;
  }

  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};
  TellingDriver telling_{driver_};
  const DriverApi api_ = telling_.api();
  const char* options_;
  CachingAllocator allocator_{{.driver = &api_, .options = AllocatorOptions::parse(options_)}};
  const StreamHandle own_ = driver_.create_stream();  // whose free it is; must be awake
};

}  // namespace cistern
