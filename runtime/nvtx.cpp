#include <cistern/error.h>
#include <cistern/nvtx.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>

#include <atomic>
#include <map>
#include <utility>

#include "runtime/stream_access.h"

namespace cistern::nvtx {
namespace {

const char* text_of(const char* message) noexcept { return message != nullptr ? message : ""; }

nvtxEventAttributes_t attributes_of(const char* message) noexcept {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text_of(message);
  return attributes;
}

nvtxDomainHandle_t domain_of(void* handle) noexcept { return static_cast<nvtxDomainHandle_t>(handle); }

// How many ranges this thread is inside of. NVTX's own count is the tool's, and there may be none.
thread_local int open_ranges = 0;

// The same for domains, by number; without those that have none open. Behind a plain pointer, so that
// what runs when the thread ends, after the thread's own state did, still finds a valid state.
using OpenRanges = std::map<std::uint64_t, int>;
thread_local OpenRanges* open_ranges_of_domains = nullptr;

struct EndsWithThread {
  ~EndsWithThread() { delete std::exchange(open_ranges_of_domains, nullptr); }
};
thread_local EndsWithThread ends_with_thread;

int& open_ranges_of(std::uint64_t domain) {
  static_cast<void>(&ends_with_thread);  // its first use on a thread registers its destructor
  if (open_ranges_of_domains == nullptr) open_ranges_of_domains = new OpenRanges;
  return (*open_ranges_of_domains)[domain];
}

}  // namespace

void mark(const char* message) noexcept { nvtxMarkA(text_of(message)); }

int range_push(const char* message) noexcept {
  nvtxRangePushA(text_of(message));
  return open_ranges++;
}

int range_pop() noexcept {
  if (open_ranges == 0) return -1;
  nvtxRangePop();
  return --open_ranges;
}

void name_stream(const Stream& stream, const char* name) {
  const CUstream handle = stream.native_handle();
  if (is_legacy(handle) || handle == per_thread_handle())
    throw InvalidArgument(
        fmt::format("name_stream of {}: expected a stream that is no default one", stream.to_string()));
  nvtxNameCuStreamA(handle, text_of(name));
}

Domain::Domain(const char* name) : handle_(nvtxDomainCreateA(text_of(name))) {
  static std::atomic<std::uint64_t> made{0};
  number_ = ++made;
}

Domain::~Domain() {
  if (handle_ != nullptr) nvtxDomainDestroy(domain_of(handle_));
}

void Domain::mark(const char* message) const noexcept {
  if (handle_ == nullptr) return;
  const nvtxEventAttributes_t attributes = attributes_of(message);
  nvtxDomainMarkEx(domain_of(handle_), &attributes);
}

int Domain::range_push(const char* message) const {
  const int depth = open_ranges_of(number_)++;
  if (handle_ == nullptr) return depth;
  const nvtxEventAttributes_t attributes = attributes_of(message);
  nvtxDomainRangePushEx(domain_of(handle_), &attributes);
  return depth;
}

int Domain::range_pop() const noexcept {
  if (open_ranges_of_domains == nullptr) return -1;
  const auto open = open_ranges_of_domains->find(number_);
  if (open == open_ranges_of_domains->end()) return -1;
  if (handle_ != nullptr) nvtxDomainRangePop(domain_of(handle_));
  const int depth = --open->second;
  if (depth == 0) open_ranges_of_domains->erase(open);
  return depth;
}

}  // namespace cistern::nvtx
