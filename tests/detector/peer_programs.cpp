// Another device's memory: kernels need its leave, and order between devices comes from events alone.

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

// `device` may touch the memory of `peer`. Device 0 is current afterwards.
void enable(World& w, int device, int peer) {
  CUcontext context = nullptr;
  EXPECT_EQ(w.api.primary_ctx_retain(&context, peer), CUDA_SUCCESS);
  w.use(device);
  EXPECT_EQ(w.api.ctx_enable_peer_access(context, 0), CUDA_SUCCESS);
  w.use(0);
}

void kernel_on_a_peers_memory_without_access(World& w) {
  const StreamHandle there = w.stream(1);
  char* data = w.allocate(kBytes);
  if (w.is_mended) enable(w, 1, 0);
  EXPECT_EQ(w.write(there, data, kBytes), w.is_mended);
}

void access_enabled_the_wrong_way_round(World& w) {
  const StreamHandle there = w.stream(1);
  char* data = w.allocate(kBytes);
  if (w.is_mended) {
    enable(w, 1, 0);
  } else {
    enable(w, 0, 1);
  }
  EXPECT_EQ(w.read(there, data, kBytes), w.is_mended);
}

void kernel_after_access_was_taken_back(World& w) {
  const StreamHandle there = w.stream(1);
  char* data = w.allocate(kBytes);
  enable(w, 1, 0);
  if (w.is_mended) w.write(there, data, kBytes);
  w.synchronize(there);
  CUcontext context = nullptr;
  EXPECT_EQ(w.api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  w.use(1);
  EXPECT_EQ(w.api.ctx_disable_peer_access(context), CUDA_SUCCESS);
  if (!w.is_mended) {
    EXPECT_FALSE(w.write(there, data, kBytes));
  }
}

// Takes back from `device` what `enable` gave it. `device` is current afterwards.
void disable(World& w, int device, int peer) {
  CUcontext context = nullptr;
  EXPECT_EQ(w.api.primary_ctx_retain(&context, peer), CUDA_SUCCESS);
  w.use(device);
  EXPECT_EQ(w.api.ctx_disable_peer_access(context), CUDA_SUCCESS);
}

void access_taken_back_under_a_kernel(World& w) {
  const StreamHandle there = w.stream(1);
  char* data = w.allocate(kBytes);
  enable(w, 1, 0);
  EXPECT_TRUE(w.write(there, data, kBytes));
  if (w.is_mended) w.synchronize(there);
  disable(w, 1, 0);
}

// The mended program copies, which needs no leave.
void access_taken_back_under_a_kernel_taken_for_a_copy(World& w) {
  const StreamHandle there = w.stream(1);
  char* data = w.allocate(kBytes);
  enable(w, 1, 0);
  w.use(1);
  char* own = w.allocate(kBytes);
  if (w.is_mended) {
    EXPECT_EQ(w.copy(own, data, kBytes, there), CUDA_SUCCESS);
  } else {
    EXPECT_TRUE(w.read(there, data, kBytes));
  }
  disable(w, 1, 0);
}

// The mended program's memory is its pool's, which gives leave by itself.
void access_taken_back_from_memory_that_no_pool_opens(World& w) {
  const StreamHandle here = w.stream(), there = w.stream(1);
  char* data = nullptr;
  enable(w, 1, 0);
  if (w.is_mended) {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(w.api.device_get_default_mem_pool(&pool, 0), CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(w.api.mem_pool_set_access(pool, &access, 1), CUDA_SUCCESS);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(w.api.mem_alloc_async(&pointer, kBytes, here), CUDA_SUCCESS);
    w.order(here, there);
    data = reinterpret_cast<char*>(pointer);
  } else {
    data = w.allocate(kBytes);
  }
  EXPECT_TRUE(w.write(there, data, kBytes));
  disable(w, 1, 0);
}

// Peer access opens what cuMemAlloc makes; a pool has its own.
void kernel_on_a_peers_pool_without_access(World& w) {
  const StreamHandle here = w.stream(), there = w.stream(1);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(w.api.mem_alloc_async(&pointer, kBytes, here), CUDA_SUCCESS);
  w.order(here, there);
  enable(w, 1, 0);
  if (w.is_mended) {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(w.api.device_get_default_mem_pool(&pool, 0), CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(w.api.mem_pool_set_access(pool, &access, 1), CUDA_SUCCESS);
  }
  EXPECT_EQ(w.write(there, reinterpret_cast<char*>(pointer), kBytes), w.is_mended);
}

void peers_that_do_not_wait_for_each_other(World& w) {
  const StreamHandle here = w.stream(), there = w.stream(1);
  char* data = w.allocate(kBytes);
  enable(w, 1, 0);
  w.write(here, data, kBytes);
  if (w.is_mended) w.order(here, there);
  EXPECT_TRUE(w.read(there, data, kBytes));
}

}  // namespace

std::vector<Program> peer_programs() {
  const SimulatedOptions two{.devices = 2};
  const SimulatedOptions two_free{.devices = 2, .drive = Drive::free};
  constexpr RaceKind foreign = RaceKind::foreign_memory;
  return {
      {"KernelOnAPeersMemoryWithoutAccess", foreign, kernel_on_a_peers_memory_without_access, two},
      {"KernelOnAPeersMemoryWithoutAccessOnTheFreeDrive", foreign, kernel_on_a_peers_memory_without_access, two_free},
      {"AccessEnabledTheWrongWayRound", foreign, access_enabled_the_wrong_way_round, two},
      {"KernelAfterAccessWasTakenBack", foreign, kernel_after_access_was_taken_back, two},
      {"AccessTakenBackUnderAKernel", foreign, access_taken_back_under_a_kernel, two},
      {"AccessTakenBackUnderAKernelOnTheFreeDrive", foreign, access_taken_back_under_a_kernel, two_free},
      {"AccessTakenBackUnderAKernelTakenForACopy", foreign, access_taken_back_under_a_kernel_taken_for_a_copy, two},
      {"AccessTakenBackFromMemoryThatNoPoolOpens", foreign, access_taken_back_from_memory_that_no_pool_opens, two},
      {"KernelOnAPeersPoolWithoutAccess", foreign, kernel_on_a_peers_pool_without_access, two},
      {"PeersThatDoNotWaitForEachOther", RaceKind::data_race, peers_that_do_not_wait_for_each_other, two},
  };
}

}  // namespace cistern::testing
