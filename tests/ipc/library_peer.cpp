// A process that uses the library as its users do.

#include <cistern/c_api.h>
#include <cistern/cistern.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/ipc/peer_commands.h"

namespace cistern::testing {
namespace {

// The peer's end of the socket on which descriptors come.
constexpr int kSocket = 3;

template <class Handle>
Handle handle_from(Arguments& in) {
  const auto bytes = in.bytes<typename Handle::Bytes>();
  return Handle::from_bytes(bytes.data(), bytes.size());
}

class LibraryPeer {
 public:
  Commands commands() {
    return {
        {"open", [this](Arguments& in) { return keep(open_ipc(handle_from<MemoryHandle>(in))); }},
        {"import", [this](Arguments& in) { return keep(import_fd(receive_fd(kSocket).get(), in.number())); }},
        {"release",
         [this](Arguments& in) {
           memory_.at(in.number()).release();
           return std::string("ok");
         }},
        {"fill",
         [this](Arguments& in) {
           const IpcMemory& memory = memory_.at(in.number());
           fill_async(memory.data(), static_cast<unsigned char>(in.number()), memory.size());
           current_stream().synchronize();
           return std::string("ok");
         }},
        {"byte",
         [this](Arguments& in) {
           unsigned char byte = 0;
           copy_async(&byte, memory_.at(in.number()).data(), 1);
           current_stream().synchronize();
           return std::to_string(byte);
         }},
        {"byte_by_c",  // of a handle, by the functions for C alone
         [](Arguments& in) {
           const auto handle = in.bytes<MemoryHandle::Bytes>();
           cistern_ipc_memory* memory = nullptr;
           unsigned char byte = 0;
           if (cistern_open_ipc(handle.data(), handle.size(), CISTERN_CURRENT_DEVICE, &memory) != CISTERN_SUCCESS ||
               cistern_copy_async(&byte, cistern_ipc_memory_data(memory), 1, 0, nullptr) != CISTERN_SUCCESS ||
               cistern_ipc_memory_release(memory, 0, nullptr) != CISTERN_SUCCESS)
             return std::string("error: ") + cistern_last_error();
           return std::to_string(byte);
         }},
        {"allocate",
         [](Arguments& in) { return std::to_string(reinterpret_cast<std::uint64_t>(allocate(in.number()))); }},
        {"open_event",
         [this](Arguments& in) {
           const auto handle = handle_from<EventHandle>(in);
           events_.push_back(Event::from_ipc_handle(0, handle));
           return std::to_string(events_.size() - 1);
         }},
        {"query", [this](Arguments& in) { return std::string(events_.at(in.number()).query() ? "true" : "false"); }},
        {"set",  // an environment variable; the library reads its own at first use
         [](Arguments& in) {
           const std::string variable = in.word();
           return std::string(::setenv(variable.c_str(), in.word().c_str(), 1) == 0 ? "ok" : "error: no memory");
         }},
        {"processes",
         [](Arguments&) {
           std::string text = list_gpu_processes(0);
           std::replace(text.begin(), text.end(), '\n', '|');
           return text;
         }},
        {"free_bytes", [](Arguments&) { return std::to_string(memory_info().free); }},
    };
  }

 private:
  // By its number from now on.
  std::string keep(IpcMemory memory) {
    memory_.emplace(++last_, std::move(memory));
    return std::to_string(last_);
  }

  std::map<std::uint64_t, IpcMemory> memory_;
  std::uint64_t last_ = 0;
  std::vector<Event> events_;
};

}  // namespace
}  // namespace cistern::testing

int main() {
  cistern::testing::LibraryPeer peer;
  return cistern::testing::serve(peer.commands());
}
