#include "runtime/call_meter.h"

#include <algorithm>

namespace cistern {
namespace {

struct Cost {
  std::string_view entry;
  std::int64_t ns;
};
// What each call costs its caller, as bench/costs.json has it when this is built: measured by
// `./dev gpu`, or estimates that say so there. Entries that it does not name cost nothing.
constexpr Cost kCosts[] = {
#include "runtime/driver_costs.inc"
};

}  // namespace

std::optional<DriverEntryId> find_driver_entry(std::string_view name) noexcept {
  const auto found = std::find(kDriverEntryNames.begin(), kDriverEntryNames.end(), name);
  if (found == kDriverEntryNames.end()) return std::nullopt;
  return static_cast<DriverEntryId>(found - kDriverEntryNames.begin());
}

constinit thread_local char CallMeter::this_thread = 0;

CallMeter::CallMeter() {
  for (const Cost& cost : kCosts)
    if (const auto entry = find_driver_entry(cost.entry)) set_cost(*entry, std::chrono::nanoseconds(cost.ns));
}

std::uint64_t CallMeter::calls() const noexcept {
  std::uint64_t sum = 0;
  for (std::size_t entry = 0; entry < kDriverEntryCount; ++entry) sum += calls_at(entry);
  return sum;
}

void CallMeter::set_cost(DriverEntryId entry, std::chrono::nanoseconds cost) noexcept {
  costs_ns_[index(entry)].store(cost.count(), std::memory_order_relaxed);
}

std::chrono::nanoseconds CallMeter::modelled_cost() const noexcept {
  std::int64_t sum = 0;
  for (std::size_t entry = 0; entry < kDriverEntryCount; ++entry) {
    sum += static_cast<std::int64_t>(calls_at(entry)) * costs_ns_[entry].load(std::memory_order_relaxed);
  }
  return std::chrono::nanoseconds(sum);
}

// What the functions of the table get as their object.
struct MeteredDriver::Entries {
  const DriverApi& inner;
  CallMeter& meter;

  template <DriverEntryId entry, auto member>
  struct Thunk;

  template <DriverEntryId entry, class... Args, DriverEntry<CUresult(Args...)> DriverApi::*member>
  struct Thunk<entry, member> {
    static CUresult call(void* self, Args... args) {
      const Entries& entries = *static_cast<const Entries*>(self);
      entries.meter.count(entry);
      if (makes_host_wait<entry>(entries.inner, args...)) entries.meter.count_host_synchronization();
      return (entries.inner.*member)(args...);
    }
  };

  // Whether the call will wait. A stream or event tells when it is asked. Nothing tells whether
  // a whole device is busy: calls that wait for one are counted always.
  template <DriverEntryId entry, class... Args>
  static bool makes_host_wait(const DriverApi& inner, Args... args) {
    if constexpr (entry == DriverEntryId::stream_synchronize) {
      return inner.stream_query(args...) == CUDA_ERROR_NOT_READY;
    } else if constexpr (entry == DriverEntryId::event_synchronize) {
      return inner.event_query(args...) == CUDA_ERROR_NOT_READY;
    } else {
      return entry == DriverEntryId::ctx_synchronize || entry == DriverEntryId::mem_free ||
             entry == DriverEntryId::mem_unmap;
    }
  }
};

MeteredDriver::MeteredDriver(const DriverApi& inner, CallMeter& meter)
    : entries_(std::make_unique<Entries>(Entries{inner, meter})) {
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  if (inner.member) api_.member = {entries_.get(), &Entries::Thunk<DriverEntryId::member, &DriverApi::member>::call};
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  api_.note_allocate = inner.note_allocate;
  api_.note_use = inner.note_use;
  api_.note_free = inner.note_free;
  api_.list_processes = inner.list_processes;
  api_.fill_random = inner.fill_random;
  api_.strided = inner.strided;
  api_.kernels = inner.kernels;
  api_.has_cuda_libraries = inner.has_cuda_libraries;
}

MeteredDriver::~MeteredDriver() = default;

}  // namespace cistern
