#pragma once

// Small programs on one driver, each with a mistake that one line mends.

#include <cistern/cistern.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"

namespace cistern::testing {

inline constexpr std::size_t KiB = std::size_t{1} << 10;
inline constexpr std::size_t MiB = std::size_t{1} << 20;
inline constexpr std::size_t kBytes = 4 * KiB;
inline constexpr RaceKind kDataRace = RaceKind::data_race;
inline constexpr RaceKind kHostRace = RaceKind::host_race;

// A driver with the detector on, an allocator on it, and short words for what programs do.
class World {
 public:
  explicit World(bool mended, SimulatedOptions options = {})
      : is_mended(mended), driver(with_detector(std::move(options))), heap({.driver = &driver.api()}) {
    use(0);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Makes a device current.
  void use(int device) {
    CUcontext context = nullptr;
    EXPECT_EQ(api.primary_ctx_retain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  }
  StreamHandle stream(int device = 0) { return driver.create_stream(device); }
  StreamHandle blocking_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(api.stream_create_with_priority(&stream, CU_STREAM_DEFAULT, 0), CUDA_SUCCESS);
    return stream;
  }
  CUevent event() {
    CUevent event = nullptr;
    EXPECT_EQ(api.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    return event;
  }
  // Memory of the driver's own.
  char* allocate(std::size_t bytes = 4 * KiB) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(api.mem_alloc(&pointer, bytes), CUDA_SUCCESS);
    return reinterpret_cast<char*>(pointer);
  }
  // A block of the allocator.
  char* block(StreamHandle stream, std::size_t bytes = 4 * KiB, int device = 0) {
    return static_cast<char*>(heap.allocate(bytes, stream, device));
  }
  // Memory of the host's, which outlives the device's work.
  std::vector<char>& host(std::size_t bytes = 4 * KiB) { return host_.emplace_back(bytes); }
  CUresult free(void* pointer) { return api.mem_free(reinterpret_cast<CUdeviceptr>(pointer)); }

  // A kernel; false if the driver refuses it.
  bool kernel(const char* name, StreamHandle stream, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes) {
    try {
      driver.launch(stream, std::move(reads), std::move(writes), std::chrono::microseconds(1), {}, name);
      return true;
    } catch (const InvalidArgument&) {
      return false;
    }
  }
  bool read(StreamHandle stream, const void* memory, std::size_t bytes = 4 * KiB) {
    return kernel("reader", stream, {{memory, bytes}}, {});
  }
  bool write(StreamHandle stream, const void* memory, std::size_t bytes = 4 * KiB) {
    return kernel("writer", stream, {}, {{memory, bytes}});
  }
  CUresult copy(void* destination, const void* source, std::size_t bytes, StreamHandle stream) {
    return api.memcpy_async(reinterpret_cast<CUdeviceptr>(destination), reinterpret_cast<CUdeviceptr>(source), bytes,
                            stream);
  }
  CUresult fill(void* destination, std::size_t bytes, StreamHandle stream) {
    return api.memset_d8_async(reinterpret_cast<CUdeviceptr>(destination), 7, bytes, stream);
  }
  void record(CUevent event, StreamHandle stream) { EXPECT_EQ(api.event_record(event, stream), CUDA_SUCCESS); }
  void wait(StreamHandle stream, CUevent event) { EXPECT_EQ(api.stream_wait_event(stream, event, 0), CUDA_SUCCESS); }
  // All that is on `first` now comes before what is queued on `second` later.
  void order(StreamHandle first, StreamHandle second) {
    const CUevent mark = event();
    record(mark, first);
    wait(second, mark);
  }
  void synchronize(StreamHandle stream) { EXPECT_EQ(api.stream_synchronize(stream), CUDA_SUCCESS); }
  void host_reads(const void* memory, std::size_t bytes) { driver.host_access({{memory, bytes}}, {}); }
  void host_writes(const void* memory, std::size_t bytes) { driver.host_access({}, {{memory, bytes}}); }

  const bool is_mended;

 private:
  std::deque<std::vector<char>> host_;

 public:
  SimulatedDriver driver;
  const DriverApi& api = driver.api();
  CachingAllocator heap;

 private:
  static SimulatedOptions with_detector(SimulatedOptions options) {
    options.capacity_bytes = 64 * MiB;
    options.races = RaceMode::collect;
    return options;
  }
};

struct Program {
  const char* mistake;
  RaceKind kind;  // what the detector says of it
  std::function<void(World&)> body;
  SimulatedOptions options = {};
};

// One list a file.
std::vector<Program> ordering_programs();
std::vector<Program> default_stream_programs();
std::vector<Program> reuse_programs();
std::vector<Program> lifetime_programs();
std::vector<Program> stream_ordered_programs();
std::vector<Program> page_locked_programs();
std::vector<Program> peer_programs();
std::vector<Program> ended_stream_programs();
std::vector<Program> host_programs();
std::vector<Program> callback_programs();
std::vector<Program> graph_programs();
std::vector<Program> graph_memory_programs();

}  // namespace cistern::testing
