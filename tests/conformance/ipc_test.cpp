// Memory and events shared with a second process by handles of bytes.

#include <cstring>

#include "tests/conformance/driver_case.h"
#include "tests/conformance/ipc_peer.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Memory Management, "

class Ipc : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    int supported = 0;
    EXPECT_OK(api.device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, device));
    if (!api.ipc_get_mem_handle || supported == 0) GTEST_SKIP() << "the device has no IPC";
  }

  CUipcMemHandle handle_of(CUdeviceptr memory) {
    CUipcMemHandle handle{};
    EXPECT_OK(api.ipc_get_mem_handle(&handle, memory));
    return handle;
  }
  CUevent make_shared_event() { return make_event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING); }

  Reply open(const CUipcMemHandle& handle, unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    Request request;
    request.task = Task::open_memory;
    request.memory = handle;
    request.value = flags;
    return peer.ask(request);
  }
  std::uint64_t opened(CUdeviceptr memory) {
    const Reply reply = open(handle_of(memory));
    EXPECT_OK(reply.result);
    return reply.value;
  }
  std::uint64_t opened(CUevent event) {
    Request request;
    request.task = Task::open_event;
    EXPECT_OK(api.ipc_get_event_handle(&request.event, event));
    const Reply reply = peer.ask(request);
    EXPECT_OK(reply.result);
    return reply.value;
  }

  IpcPeer peer;
};

STATEMENT(C215, Ipc, TheImporterSeesTheBytes, SECTION "cuIpcOpenMemHandle",
          "A handle opened in another process is the exporter's memory: its bytes are seen there.") {
  const CUdeviceptr memory = make_memory();
  const CUstream stream = make_stream();
  fill(memory, 7, 4096, stream);
  finish(stream);
  const std::uint64_t theirs = opened(memory);
  const Reply reply = peer.ask(Task::read, theirs + 4095);
  EXPECT_OK(reply.result);
  EXPECT_EQ(reply.value, 7u);
  EXPECT_OK(peer.ask(Task::close_memory, theirs).result);
}

STATEMENT(C216, Ipc, TheExporterSeesWhatIsWritten, SECTION "cuIpcOpenMemHandle",
          "What the importer writes is seen by the exporter.") {
  const CUdeviceptr memory = make_memory();
  const std::uint64_t theirs = opened(memory);
  EXPECT_OK(peer.ask(Task::fill, theirs, 9).result);
  EXPECT_TRUE(holds(memory, 4096, 9));
  EXPECT_OK(peer.ask(Task::close_memory, theirs).result);
}

STATEMENT(
    C217, Ipc, OpenedAgainItIsTheSamePointer, SECTION "cuIpcOpenMemHandle",
    "A handle that is open already gives the same pointer again and is counted: it is unmapped by the last close.") {
  const CUdeviceptr memory = make_memory();
  const std::uint64_t first = opened(memory), second = opened(memory);
  EXPECT_EQ(first, second);
  EXPECT_OK(peer.ask(Task::close_memory, first).result);
  EXPECT_OK(peer.ask(Task::read, second).result);
  EXPECT_OK(peer.ask(Task::close_memory, second).result);
  EXPECT_NE(peer.ask(Task::close_memory, second).result, CUDA_SUCCESS);
}

STATEMENT(C218, Ipc, AHandleMayBeTakenManyTimes, SECTION "cuIpcGetMemHandle",
          "The handle of an allocation may be taken any number of times; each opens the same memory.") {
  const CUdeviceptr memory = make_memory();
  const CUipcMemHandle one = handle_of(memory), other = handle_of(memory);
  const Reply first = open(one), second = open(other);
  EXPECT_OK(first.result);
  EXPECT_OK(second.result);
  EXPECT_EQ(first.value, second.value);
}

STATEMENT(C219, Ipc, NewMemoryHasANewHandle, SECTION "cuIpcGetMemHandle",
          "Memory that is allocated at the address of freed memory has a handle of its own.") {
  CUdeviceptr memory = 0;
  ASSERT_OK(api.mem_alloc(&memory, 4 * kMiB));
  const CUipcMemHandle before = handle_of(memory);
  EXPECT_OK(api.mem_free(memory));
  ASSERT_OK(api.mem_alloc(&memory, 4 * kMiB));
  const CUipcMemHandle after = handle_of(memory);
  EXPECT_NE(std::memcmp(&before, &after, sizeof(before)), 0);
  EXPECT_OK(api.mem_free(memory));
}

STATEMENT(C220, Ipc, ClosingLeavesTheExporterItsMemory, SECTION "cuIpcCloseMemHandle",
          "Closing in the importer leaves the exporter's allocation as it is.") {
  const CUdeviceptr memory = make_memory();
  const CUstream stream = make_stream();
  const std::uint64_t theirs = opened(memory);
  EXPECT_OK(peer.ask(Task::close_memory, theirs).result);
  fill(memory, 3, 4096, stream);
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 3));
}

STATEMENT(C221, Ipc, TheExporterDoesNotOpenItsOwn, SECTION "cuIpcOpenMemHandle",
          "A handle is for another process: in the one that exported it cuIpcOpenMemHandle is "
          "`CUDA_ERROR_INVALID_CONTEXT`.") {
  const CUipcMemHandle handle = handle_of(make_memory());
  CUdeviceptr address = 0;
  EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT,
                api.ipc_open_mem_handle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

STATEMENT(C222, Ipc, OpenFlagsAreChecked, SECTION "cuIpcOpenMemHandle",
          "The flags must be CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.") {
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, open(handle_of(make_memory()), 0x40).result);
}

STATEMENT(C223, Ipc, OnlyMemoryHasAHandle, SECTION "cuIpcGetMemHandle",
          "The handle is of an allocation by cuMemAlloc: host memory has none.") {
  int local = 0;
  CUipcMemHandle handle{};
  EXPECT_NE(api.ipc_get_mem_handle(&handle, reinterpret_cast<CUdeviceptr>(&local)), CUDA_SUCCESS);
}

STATEMENT(C224, Ipc, OnlyAnInterprocessEventHasAHandle, SECTION "cuIpcGetEventHandle",
          "An event must have been created as interprocess, and without timing, to have a handle.") {
  CUipcEventHandle handle{};
  EXPECT_NE(api.ipc_get_event_handle(&handle, make_event(CU_EVENT_DISABLE_TIMING)), CUDA_SUCCESS);
  EXPECT_OK(api.ipc_get_event_handle(&handle, make_shared_event()));
}

STATEMENT(C225, Ipc, AnEventIsPendingInBothProcesses, SECTION "cuIpcGetEventHandle",
          "An opened event has the state of the exporter's: pending while what was recorded is, and done "
          "afterwards.") {
  const CUstream stream = make_stream();
  const CUevent event = make_shared_event();
  const std::uint64_t theirs = opened(event);
  EXPECT_OK(peer.ask(Task::query, theirs).result);
  Gate& gate = hold(stream);
  record(event, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, peer.ask(Task::query, theirs).result);
  gate.open();
  finish(stream);
  EXPECT_OK(peer.ask(Task::synchronize, theirs).result);
  EXPECT_OK(peer.ask(Task::query, theirs).result);
  EXPECT_OK(peer.ask(Task::destroy_event, theirs).result);
}

STATEMENT(C226, Ipc, AStreamWaitsForAnotherProcess, SECTION "cuIpcGetEventHandle",
          "A stream of the importer may wait for the event: its work waits for what the exporter recorded.") {
  const CUstream stream = make_stream();
  const CUevent event = make_shared_event();
  const std::uint64_t theirs = opened(event);
  Gate& gate = hold(stream);
  record(event, stream);
  EXPECT_OK(peer.ask(Task::wait, theirs).result);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, peer.ask(Task::query_stream).result);
  gate.open();
  finish(stream);
  EXPECT_OK(peer.ask(Task::finish_stream).result);
  EXPECT_OK(peer.ask(Task::destroy_event, theirs).result);
}

STATEMENT(C227, Ipc, TheImporterMayRecord, SECTION "cuIpcGetEventHandle",
          "The importer may record the event, too: the exporter sees it pending and then done.") {
  const CUevent event = make_shared_event();
  const std::uint64_t theirs = opened(event);
  EXPECT_OK(peer.ask(Task::hold_stream).result);
  EXPECT_OK(peer.ask(Task::record, theirs).result);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.event_query(event));
  EXPECT_OK(peer.ask(Task::open_gate).result);
  EXPECT_OK(peer.ask(Task::finish_stream).result);
  EXPECT_OK(api.event_synchronize(event));
  EXPECT_OK(peer.ask(Task::destroy_event, theirs).result);
}

STATEMENT(C228, Ipc, AnOpenedEventHasNoTiming, SECTION "cuIpcOpenEventHandle",
          "An opened event behaves as one created without timing: it has no elapsed time.") {
  const CUstream stream = make_stream();
  const CUevent event = make_shared_event();
  const std::uint64_t theirs = opened(event);
  record(event, stream);
  finish(stream);
  EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, peer.ask(Task::elapsed, theirs).result);
  EXPECT_OK(peer.ask(Task::destroy_event, theirs).result);
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
