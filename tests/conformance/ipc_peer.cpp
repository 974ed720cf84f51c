#include "tests/conformance/ipc_peer.h"

#include <unistd.h>

#include <cstdio>
#include <deque>
#include <exception>

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

CUevent event_of(const Request& request) { return reinterpret_cast<CUevent>(request.object); }

class Peer {
 public:
  Peer() : api_(driver_under_test()) {
    CUcontext context = nullptr;
    if (api_.primary_ctx_retain(&context, 0) != CUDA_SUCCESS || api_.ctx_set_current(context) != CUDA_SUCCESS ||
        api_.stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) {
      std::fputs("the peer has no device\n", stderr);
    }
  }

  Reply serve(const Request& request) {
    switch (request.task) {
      case Task::open_memory:
      case Task::close_memory:
      case Task::read:
      case Task::fill:
        return serve_memory(request);
      case Task::import:
      case Task::map:
      case Task::get_access:
      case Task::set_access:
      case Task::release:
        return serve_handle(request);
      default:
        return serve_event(request);
    }
  }

 private:
  Reply serve_memory(const Request& request) {
    Reply reply;
    CUdeviceptr address = 0;
    unsigned char byte = 0;
    switch (request.task) {
      case Task::open_memory:
        reply.result = api_.ipc_open_mem_handle(&address, request.memory, static_cast<unsigned>(request.value));
        reply.value = address;
        break;
      case Task::close_memory:
        reply.result = api_.ipc_close_mem_handle(request.object);
        break;
      case Task::read:
        reply.result = api_.memcpy_async(reinterpret_cast<CUdeviceptr>(&byte), request.object, 1, stream_);
        if (reply.result == CUDA_SUCCESS) reply.result = api_.stream_synchronize(stream_);
        reply.value = byte;
        break;
      default:
        reply.result = api_.memset_d8_async(request.object, static_cast<unsigned char>(request.value), 4096, stream_);
        if (reply.result == CUDA_SUCCESS) reply.result = api_.stream_synchronize(stream_);
    }
    return reply;
  }

  Reply serve_event(const Request& request) {
    Reply reply;
    CUevent opened = nullptr;
    float milliseconds = 0;
    switch (request.task) {
      case Task::open_event:
        reply.result = api_.ipc_open_event_handle(&opened, request.event);
        reply.value = reinterpret_cast<std::uint64_t>(opened);
        break;
      case Task::destroy_event:
        reply.result = api_.event_destroy(event_of(request));
        break;
      case Task::query:
        reply.result = api_.event_query(event_of(request));
        break;
      case Task::synchronize:
        reply.result = api_.event_synchronize(event_of(request));
        break;
      case Task::elapsed:
        reply.result = api_.event_elapsed_time(&milliseconds, event_of(request), event_of(request));
        break;
      case Task::record:
        reply.result = api_.event_record(event_of(request), stream_);
        break;
      case Task::wait:
        reply.result = api_.stream_wait_event(stream_, event_of(request), 0);
        break;
      case Task::query_stream:
        reply.result = api_.stream_query(stream_);
        break;
      case Task::finish_stream:
        reply.result = api_.stream_synchronize(stream_);
        break;
      case Task::hold_stream:
        reply.result = api_.launch_host_func(
            stream_, [](void* gate) { static_cast<Gate*>(gate)->pass(); }, &gates_.emplace_back());
        break;
      default:
        if (gates_.empty()) return {CUDA_ERROR_NOT_FOUND};
        gates_.back().open();
        reply.result = CUDA_SUCCESS;
    }
    return reply;
  }

  Reply serve_handle(const Request& request) {
    Reply reply;
    CUmemGenericAllocationHandle handle = 0;
    unsigned long long flags = 0;
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    switch (request.task) {
      case Task::import:
        reply.result = api_.mem_import_from_shareable_handle(
            &handle, reinterpret_cast<void*>(std::uintptr_t{kInheritedDescriptor}),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        reply.value = handle;
        break;
      case Task::map: {
        CUdeviceptr address = 0;
        reply.result = api_.mem_address_reserve(&address, request.value, 0, 0, 0);
        if (reply.result == CUDA_SUCCESS) {
          reply.result = api_.mem_map(address, request.value, 0, request.object, 0);
        }
        reply.value = address;
        break;
      }
      case Task::get_access:
        reply.result = api_.mem_get_access(&flags, &access.location, request.object);
        reply.value = flags;
        break;
      case Task::set_access:
        reply.result = api_.mem_set_access(request.object, request.value, &access, 1);
        break;
      default:
        reply.result = api_.mem_release(request.object);
    }
    return reply;
  }

  const DriverApi& api_;
  CUstream stream_ = nullptr;
  std::deque<Gate> gates_;
};

}  // namespace

Reply IpcPeer::ask(const Request& request) {
  Reply reply;
  if (!child_.send(&request, sizeof(request)) || !child_.receive(&reply, sizeof(reply))) {
    ADD_FAILURE() << "the second process has gone";
  }
  return reply;
}

Reply IpcPeer::ask(Task task, std::uint64_t object, std::uint64_t value) {
  Request request;
  request.task = task;
  request.object = object;
  request.value = value;
  return ask(request);
}

int run_ipc_peer() {
  try {
    Peer peer;
    Request request;
    while (read_all(STDIN_FILENO, &request, sizeof(request))) {
      const Reply reply = peer.serve(request);
      if (!write_all(STDOUT_FILENO, &reply, sizeof(reply))) break;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the peer: %s\n", error.what());
    return 1;
  }
  // Without the tidying of an exit: work that is held up must not keep a process that was let go.
  _exit(0);
}

}  // namespace cistern::conformance
