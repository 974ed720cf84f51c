// The driver table of a simulated driver: one thunk an entry, generated from the list.

#include "runtime/simulated/driver_state.h"

#include <new>
#include <tuple>

namespace cistern::simulated {
namespace {

// Entries that ask for device memory, whose second argument is how many bytes.
constexpr bool asks_for_memory(DriverEntryId entry) {
  return entry == DriverEntryId::mem_alloc || entry == DriverEntryId::mem_create ||
         entry == DriverEntryId::mem_alloc_async || entry == DriverEntryId::mem_alloc_from_pool_async;
}

template <DriverEntryId entry, auto member>
struct Thunk;

template <DriverEntryId entry, class... Args, CUresult (DriverState::*member)(Args...)>
struct Thunk<entry, member> {
  static CUresult call(void* self, Args... args) {
    DriverState& state = *static_cast<DriverState*>(self);
    try {
      if (const CUresult refused = state.admit(entry); refused != CUDA_SUCCESS) return refused;
      if constexpr (asks_for_memory(entry)) {
        if (state.faults.refuses_request(std::get<1>(std::tie(args...)))) return CUDA_ERROR_OUT_OF_MEMORY;
      }
      return (state.*member)(args...);
    } catch (const std::bad_alloc&) {
      return CUDA_ERROR_OUT_OF_MEMORY;  // the host's: the driver has no other word for it
    }
  }
};

}  // namespace

DriverApi make_driver_api(DriverState& state) {
  DriverApi api;
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  api.member = {&state, &Thunk<DriverEntryId::member, &DriverState::member>::call};
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  api.list_processes = {
      &state, [](void* self, CUdevice device) { return static_cast<DriverState*>(self)->list_processes(device); }};
  api.fill_random = {&state, [](void* self, const RandomFill& fill, CUstream stream) {
                       try {
                         return static_cast<DriverState*>(self)->fill_random(fill, stream);
                       } catch (const std::bad_alloc&) {
                         return CUDA_ERROR_OUT_OF_MEMORY;
                       }
                     }};
  api.strided = {&state, [](void* self, const StridedWork& work, CUstream stream) {
                   try {
                     return static_cast<DriverState*>(self)->run_strided(work, stream);
                   } catch (const std::bad_alloc&) {
                     return CUDA_ERROR_OUT_OF_MEMORY;
                   }
                 }};
  return api;
}

}  // namespace cistern::simulated
