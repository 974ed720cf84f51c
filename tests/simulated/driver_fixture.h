#pragma once

// A simulated driver that is initialised and whose first device is current on this thread.

#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"

namespace cistern::testing {

inline constexpr std::size_t KiB = std::size_t{1} << 10;
inline constexpr std::size_t MiB = std::size_t{1} << 20;
inline constexpr std::size_t GiB = std::size_t{1} << 30;

inline CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

class ReadyDriver {
 public:
  explicit ReadyDriver(SimulatedOptions options = {.capacity_bytes = 256 * MiB}) : driver(std::move(options)) {
    EXPECT_EQ(api.init(0), CUDA_SUCCESS);
    use(0);
  }

  // Makes a device's primary context current.
  void use(int device) {
    CUcontext context = nullptr;
    EXPECT_EQ(api.primary_ctx_retain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  }
  // Lets kernels of `from` touch what `to` allocates. `from` is current then.
  void enable_peer(int from, int to) {
    CUcontext peer = nullptr;
    EXPECT_EQ(api.primary_ctx_retain(&peer, to), CUDA_SUCCESS);
    use(from);
    EXPECT_EQ(api.ctx_enable_peer_access(peer, 0), CUDA_SUCCESS);
  }
  CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(api.mem_alloc(&pointer, bytes), CUDA_SUCCESS);
    return pointer;
  }
  CUevent create_event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent event = nullptr;
    EXPECT_EQ(api.event_create(&event, flags), CUDA_SUCCESS);
    return event;
  }
  CUstream create_blocking_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(api.stream_create_with_priority(&stream, CU_STREAM_DEFAULT, 0), CUDA_SUCCESS);
    return stream;
  }
  // Work on `stream` that appends `mark` to `order` when it runs.
  void note(StreamHandle stream, std::vector<int>& order, int mark, std::chrono::nanoseconds duration = {}) {
    driver.launch(stream, {}, {}, duration, [&order, mark] { order.push_back(mark); });
  }

  SimulatedDriver driver;
  const DriverApi& api = driver.api();
};

}  // namespace cistern::testing
