// A process with a simulated driver of its own, which it uses through the driver's table.

#include <cistern/simulated.h>

#include <chrono>
#include <string>

#include "runtime/driver_api.h"
#include "tests/ipc/peer_commands.h"

namespace cistern::testing {
namespace {

template <class Value>
std::string to_text(const Value& value) {
  std::string text;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    unsigned char byte = 0;
    std::memcpy(&byte, reinterpret_cast<const unsigned char*>(&value) + i, 1);
    constexpr const char* digits = "0123456789abcdef";
    text += {digits[byte / 16], digits[byte % 16]};
  }
  return text;
}

template <class Handle>
std::string number(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return std::to_string(reinterpret_cast<std::uint64_t>(handle));
  } else {
    return std::to_string(handle);
  }
}

// "error N", or what the call gave.
std::string result(CUresult code, const std::string& value = "ok") {
  return code == CUDA_SUCCESS ? value : "error " + std::to_string(static_cast<int>(code));
}

class DriverPeer {
 public:
  explicit DriverPeer(const char* settings) : driver_(SimulatedOptions::parse(settings)), api_(driver_.api()) {
    api_.init(0);
    use(0);
  }

  CUresult use(int device) {
    CUcontext context = nullptr;
    const CUresult code = api_.primary_ctx_retain(&context, device);
    return code == CUDA_SUCCESS ? api_.ctx_set_current(context) : code;
  }

  Commands commands() {
    Commands all = memory_commands();
    all.merge(event_commands());
    return all;
  }

 private:
  Commands memory_commands() {
    return {
        {"use", [this](Arguments& in) { return result(use(static_cast<int>(in.number()))); }},
        {"allocate",
         [this](Arguments& in) {
           CUdeviceptr pointer = 0;
           const CUresult code = api_.mem_alloc(&pointer, in.number());
           return result(code, number(pointer));
         }},
        {"free", [this](Arguments& in) { return result(api_.mem_free(in.number())); }},
        {"fill",
         [](Arguments& in) {
           auto* pointer = in.pointer<unsigned char*>();
           const auto value = static_cast<int>(in.number());
           std::memset(pointer, value, in.number());
           return std::string("ok");
         }},
        {"byte", [](Arguments& in) { return std::to_string(*in.pointer<unsigned char*>()); }},
        {"memory_handle",
         [this](Arguments& in) {
           CUipcMemHandle handle{};
           const CUresult code = api_.ipc_get_mem_handle(&handle, in.number());
           return result(code, to_text(handle));
         }},
        {"open_memory",
         [this](Arguments& in) {
           CUdeviceptr pointer = 0;
           const auto handle = in.bytes<CUipcMemHandle>();
           const CUresult code = api_.ipc_open_mem_handle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
           return result(code, number(pointer));
         }},
        {"close_memory", [this](Arguments& in) { return result(api_.ipc_close_mem_handle(in.number())); }},
        {"free_bytes",
         [this](Arguments&) {
           std::size_t free_bytes = 0;
           std::size_t total = 0;
           const CUresult code = api_.mem_get_info(&free_bytes, &total);
           return result(code, number(free_bytes));
         }},
    };
  }

  Commands event_commands() {
    return {
        {"stream", [this](Arguments&) { return number(driver_.create_stream()); }},
        {"event",
         [this](Arguments&) {
           CUevent event = nullptr;
           const CUresult code = api_.event_create(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
           return result(code, number(event));
         }},
        {"event_handle",
         [this](Arguments& in) {
           CUipcEventHandle handle{};
           const CUresult code = api_.ipc_get_event_handle(&handle, in.pointer<CUevent>());
           return result(code, to_text(handle));
         }},
        {"open_event",
         [this](Arguments& in) {
           CUevent event = nullptr;
           const CUresult code = api_.ipc_open_event_handle(&event, in.bytes<CUipcEventHandle>());
           return result(code, number(event));
         }},
        {"destroy_event", [this](Arguments& in) { return result(api_.event_destroy(in.pointer<CUevent>())); }},
        {"occupy",
         [this](Arguments& in) {
           driver_.occupy(in.pointer<CUstream>(), std::chrono::milliseconds(1));
           return std::string("ok");
         }},
        {"record",
         [this](Arguments& in) {
           const auto event = in.pointer<CUevent>();
           return result(api_.event_record(event, in.pointer<CUstream>()));
         }},
        {"wait",
         [this](Arguments& in) {
           const auto stream = in.pointer<CUstream>();
           return result(api_.stream_wait_event(stream, in.pointer<CUevent>(), 0));
         }},
        {"query", [this](Arguments& in) { return result(api_.event_query(in.pointer<CUevent>())); }},
        {"synchronize", [this](Arguments& in) { return result(api_.event_synchronize(in.pointer<CUevent>())); }},
        {"synchronize_stream",
         [this](Arguments& in) { return result(api_.stream_synchronize(in.pointer<CUstream>())); }},
        {"query_stream", [this](Arguments& in) { return result(api_.stream_query(in.pointer<CUstream>())); }},
        {"step", [this](Arguments&) { return std::string(driver_.step() ? "stepped" : "nothing"); }},
    };
  }

  SimulatedDriver driver_;
  const DriverApi& api_;
};

}  // namespace
}  // namespace cistern::testing

int main(int, char** arguments) {
  cistern::testing::DriverPeer peer(arguments[1]);
  return cistern::testing::serve(peer.commands());
}
