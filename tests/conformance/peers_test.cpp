// Two devices that reach each other's memory.

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Peer Context Memory Access, "

class Peers : public DriverCase {
 protected:
  bool can_access() {
    int can = 0;
    EXPECT_OK(api.device_can_access_peer(&can, 0, 1));
    return can != 0;
  }
};

#define REQUIRE_PEERS()  \
  REQUIRE_TWO_DEVICES(); \
  if (!can_access()) GTEST_SKIP() << "the devices cannot reach each other"

STATEMENT(C110, Peers, AccessIsEnabledOnce, SECTION "cuCtxEnablePeerAccess",
          "Enabling what is enabled is `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.") {
  REQUIRE_PEERS();
  EXPECT_OK(api.ctx_enable_peer_access(second_context(), 0));
  EXPECT_RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, api.ctx_enable_peer_access(second_context(), 0));
  EXPECT_OK(api.ctx_disable_peer_access(second_context()));
}

STATEMENT(C111, Peers, OnlyWhatIsEnabledIsDisabled, SECTION "cuCtxDisablePeerAccess",
          "Disabling what is not enabled is `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.") {
  REQUIRE_PEERS();
  EXPECT_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, api.ctx_disable_peer_access(second_context()));
}

STATEMENT(C112, Peers, AccessHasOneDirection, SECTION "cuCtxEnablePeerAccess",
          "Access is granted in one direction: the other one is still to be enabled.") {
  REQUIRE_PEERS();
  EXPECT_OK(api.ctx_enable_peer_access(second_context(), 0));
  EXPECT_OK(api.ctx_set_current(second_context()));
  EXPECT_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, api.ctx_disable_peer_access(context));
  EXPECT_OK(api.ctx_enable_peer_access(context, 0));
  EXPECT_OK(api.ctx_disable_peer_access(context));
  EXPECT_OK(api.ctx_set_current(context));
  EXPECT_OK(api.ctx_disable_peer_access(second_context()));
}

STATEMENT(C113, Peers, AContextIsNotItsOwnPeer, SECTION "cuCtxEnablePeerAccess",
          "The current context as its own peer, or no current context at all, is `CUDA_ERROR_INVALID_CONTEXT`.") {
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.ctx_enable_peer_access(context, 0));
  EXPECT_OK(api.ctx_set_current(nullptr));
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, api.ctx_enable_peer_access(context, 0));
}

STATEMENT(C114, Peers, TheFlagsMustBeZero, SECTION "cuCtxEnablePeerAccess",
          "Flags other than 0 are `CUDA_ERROR_INVALID_VALUE`.") {
  REQUIRE_PEERS();
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.ctx_enable_peer_access(second_context(), 1));
}

STATEMENT(C115, Peers, UnknownDevicesAreRefused, SECTION "cuDeviceCanAccessPeer",
          "A device that does not exist is `CUDA_ERROR_INVALID_DEVICE`.") {
  int can = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_DEVICE, api.device_can_access_peer(&can, 0, 1000));
}

STATEMENT(C116, Peers, CopiesCrossDevices, "Driver API, Memory Management, cuMemcpyPeerAsync",
          "cuMemcpyPeerAsync copies between the memory of two contexts in stream order, peer access enabled or not.") {
  REQUIRE_TWO_DEVICES();
  const CUdeviceptr here = make_memory();
  ASSERT_OK(api.ctx_set_current(second_context()));
  CUdeviceptr there = 0;
  ASSERT_OK(api.mem_alloc(&there, 4096));
  ASSERT_OK(api.ctx_set_current(context));
  const CUstream stream = make_stream();
  const CUdeviceptr back = make_memory();
  Gate& gate = hold(stream);
  fill(here, 5, 4096, stream);
  EXPECT_OK(api.memcpy_peer_async(there, second_context(), here, context, 4096, stream));
  EXPECT_OK(api.memcpy_peer_async(back, context, there, second_context(), 4096, stream));
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(back, 4096, 5));
  EXPECT_OK(api.mem_free(there));
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
