#include "bench/driver_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "runtime/driver_error.h"

namespace cistern {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// The calls of one device, each checked, with the clock around the one in question.
class Timing {
 public:
  Timing(Contexts& contexts, int device, int repetitions)
      : api_(contexts.api()),
        device_(device),
        repetitions_(repetitions),
        guard_(contexts.api(), contexts.primary(device)) {
    check(api_.stream_create_with_priority(&busy_stream_, CU_STREAM_NON_BLOCKING, 0),
          DriverEntryId::stream_create_with_priority);
    check(api_.mem_alloc(&busy_memory_, kBusyBytes), DriverEntryId::mem_alloc);
  }

  ~Timing() {
    // A device that fails here was reported where it failed first.
    static_cast<void>(api_.stream_synchronize(busy_stream_));
    static_cast<void>(api_.mem_free(busy_memory_));
    static_cast<void>(api_.stream_destroy(busy_stream_));
  }
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;

  std::vector<CallTime> run() {
    allocations();
    virtual_memory();
    events();
    synchronizations();
    return std::move(times_);
  }

 private:
  static constexpr std::size_t kBusyBytes = 256 * kMiB;
  static constexpr int kFillsInFlight = 64;

  void check(CUresult result, DriverEntryId entry) {
    check_driver(api_, result, entry, [&] { return fmt::format("device {}", device_); });
  }

  // Some milliseconds of work on a large device, queued and not waited for.
  void keep_busy() {
    for (int i = 0; i < kFillsInFlight; ++i)
      check(api_.memset_d8_async(busy_memory_, static_cast<unsigned char>(i), kBusyBytes, busy_stream_),
            DriverEntryId::memset_d8_async);
  }
  void make_idle() { check(api_.ctx_synchronize(), DriverEntryId::ctx_synchronize); }

  // The median of one call; `before` and `after` are not timed. With `busy`, work is queued
  // first, and taken away after the call.
  double median(DriverEntryId entry, bool busy, const std::function<void()>& before,
                const std::function<CUresult()>& call, const std::function<void()>& after) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (int i = 0; i < repetitions_; ++i) {
      before();
      if (busy) keep_busy();
      const auto start = Clock::now();
      const CUresult result = call();
      const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
      check(result, entry);
      times.push_back(elapsed.count());
      if (busy) make_idle();
      after();
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  void add(DriverEntryId entry, std::string of, bool is_cost, const std::function<void()>& before,
           const std::function<CUresult()>& call, const std::function<void()>& after) {
    CallTime time;
    time.entry = kDriverEntryNames[static_cast<std::size_t>(entry)];
    time.of = std::move(of);
    time.is_cost = is_cost;
    make_idle();
    time.idle_ns = median(entry, false, before, call, after);
    time.busy_ns = median(entry, true, before, call, after);
    times_.push_back(std::move(time));
  }

  void allocations() {
    for (const std::size_t mib : {std::size_t{2}, std::size_t{20}, std::size_t{512}}) {
      CUdeviceptr pointer = 0;
      const auto allocate = [&] { return api_.mem_alloc(&pointer, mib * kMiB); };
      const auto release = [&] { return api_.mem_free(pointer); };
      const std::string of = fmt::format("{} MiB", mib);
      add(
          DriverEntryId::mem_alloc, of, mib == 20, [] {}, allocate, [&] { check(release(), DriverEntryId::mem_free); });
      add(
          DriverEntryId::mem_free, of, mib == 20, [&] { check(allocate(), DriverEntryId::mem_alloc); }, release, [] {});
    }
  }

  // A range of handles side by side, as the paged policy makes them.
  struct Range {
    CUdeviceptr address = 0;
    std::size_t handle_bytes = 0;
    std::vector<CUmemGenericAllocationHandle> handles;
  };

  void virtual_memory() {
    if (!api_.mem_create || !api_.mem_map) return;
    properties_ = CUmemAllocationProp{};
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id = device_;
    check(api_.mem_get_allocation_granularity(&granularity_, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          DriverEntryId::mem_get_allocation_granularity);
    reservation_calls();
    handle_calls();
    for (const std::size_t handles : {std::size_t{1}, std::size_t{16}, std::size_t{256}})
      mapping_calls(handles, granularity_);
    for (const std::size_t handle_bytes : {32 * kMiB, 512 * kMiB}) mapping_calls(1, handle_bytes);
  }

  void reservation_calls() {
    CUdeviceptr address = 0;
    const std::size_t bytes = 1024 * kMiB;
    const auto reserve = [&] { return api_.mem_address_reserve(&address, bytes, 0, 0, 0); };
    const auto release = [&] { return api_.mem_address_free(address, bytes); };
    add(
        DriverEntryId::mem_address_reserve, "1 GiB", true, [] {}, reserve,
        [&] { check(release(), DriverEntryId::mem_address_free); });
    add(
        DriverEntryId::mem_address_free, "1 GiB", true, [&] { check(reserve(), DriverEntryId::mem_address_reserve); },
        release, [] {});
  }

  void handle_calls() {
    CUmemGenericAllocationHandle handle = 0;
    const auto create = [&] { return api_.mem_create(&handle, granularity_, &properties_, 0); };
    const auto release = [&] { return api_.mem_release(handle); };
    const std::string of = fmt::format("{} MiB", granularity_ / kMiB);
    add(
        DriverEntryId::mem_create, of, true, [] {}, create, [&] { check(release(), DriverEntryId::mem_release); });
    add(
        DriverEntryId::mem_release, of, true, [&] { check(create(), DriverEntryId::mem_create); }, release, [] {});
  }

  void mapping_calls(std::size_t handles, std::size_t handle_bytes) {
    const bool is_cost = handles == 1 && handle_bytes == granularity_;
    Range range;
    range.handle_bytes = handle_bytes;
    range.handles.resize(handles);
    check(api_.mem_address_reserve(&range.address, handles * handle_bytes, 0, 0, 0),
          DriverEntryId::mem_address_reserve);
    for (auto& handle : range.handles)
      check(api_.mem_create(&handle, handle_bytes, &properties_, 0), DriverEntryId::mem_create);
    const auto map = [&] { return map_all(range); };
    const auto unmap = [&] { return api_.mem_unmap(range.address, handles * handle_bytes); };
    const auto set_access = [&] { return allow_access(range); };
    const std::string of = fmt::format("{} handle{} of {} MiB", handles, handles == 1 ? "" : "s", handle_bytes / kMiB);
    add(
        DriverEntryId::mem_map, of + (handles == 1 ? "" : ", one call each"), is_cost, [] {}, map,
        [&] { check(unmap(), DriverEntryId::mem_unmap); });
    add(
        DriverEntryId::mem_set_access, of, is_cost, [&] { check(map(), DriverEntryId::mem_map); }, set_access,
        [&] { check(unmap(), DriverEntryId::mem_unmap); });
    add(
        DriverEntryId::mem_unmap, of, is_cost,
        [&] {
          check(map(), DriverEntryId::mem_map);
          check(set_access(), DriverEntryId::mem_set_access);
        },
        unmap, [] {});
    for (auto handle : range.handles) check(api_.mem_release(handle), DriverEntryId::mem_release);
    check(api_.mem_address_free(range.address, handles * handle_bytes), DriverEntryId::mem_address_free);
  }

  CUresult map_all(const Range& range) {
    for (std::size_t i = 0; i < range.handles.size(); ++i) {
      const CUresult result =
          api_.mem_map(range.address + i * range.handle_bytes, range.handle_bytes, 0, range.handles[i], 0);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }

  CUresult allow_access(const Range& range) {
    CUmemAccessDesc access{};
    access.location = properties_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return api_.mem_set_access(range.address, range.handles.size() * range.handle_bytes, &access, 1);
  }

  void events() {
    CUevent event = nullptr;
    const auto create = [&] { return api_.event_create(&event, CU_EVENT_DISABLE_TIMING); };
    const auto destroy = [&] { return api_.event_destroy(event); };
    add(
        DriverEntryId::event_create, "without timing", true, [] {}, create,
        [&] { check(destroy(), DriverEntryId::event_destroy); });
    add(
        DriverEntryId::event_destroy, "without timing", true, [&] { check(create(), DriverEntryId::event_create); },
        destroy, [] {});
    check(create(), DriverEntryId::event_create);
    const auto record = [&] { return api_.event_record(event, busy_stream_); };
    add(
        DriverEntryId::event_record, "the busy stream", true, [] {}, record, [] {});
    add(
        DriverEntryId::event_query, "recorded before", true, [&] { check(record(), DriverEntryId::event_record); },
        [&] {
          const CUresult result = api_.event_query(event);
          return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
        },
        [] {});
    CUstream waiting = nullptr;
    check(api_.stream_create_with_priority(&waiting, CU_STREAM_NON_BLOCKING, 0),
          DriverEntryId::stream_create_with_priority);
    add(
        DriverEntryId::stream_wait_event, "another stream", true, [&] { check(record(), DriverEntryId::event_record); },
        [&] { return api_.stream_wait_event(waiting, event, 0); },
        [&] { check(api_.stream_synchronize(waiting), DriverEntryId::stream_synchronize); });
    check(api_.stream_destroy(waiting), DriverEntryId::stream_destroy);
    check(destroy(), DriverEntryId::event_destroy);
  }

  // What the calls take where there is nothing to wait for, also while others keep the device busy.
  void synchronizations() {
    CUevent event = nullptr;
    check(api_.event_create(&event, CU_EVENT_DISABLE_TIMING), DriverEntryId::event_create);
    CUstream idle = nullptr;
    check(api_.stream_create_with_priority(&idle, CU_STREAM_NON_BLOCKING, 0),
          DriverEntryId::stream_create_with_priority);
    const auto complete = [&] {
      check(api_.event_record(event, idle), DriverEntryId::event_record);
      make_idle();
    };
    add(
        DriverEntryId::event_synchronize, "a completed event", true, complete,
        [&] { return api_.event_synchronize(event); }, [] {});
    add(
        DriverEntryId::stream_synchronize, "an idle stream", true, [] {}, [&] { return api_.stream_synchronize(idle); },
        [] {});
    check(api_.stream_destroy(idle), DriverEntryId::stream_destroy);
    check(api_.event_destroy(event), DriverEntryId::event_destroy);
  }

  const DriverApi& api_;
  const int device_;
  const int repetitions_;
  ContextGuard guard_;
  CUstream busy_stream_ = nullptr;
  CUdeviceptr busy_memory_ = 0;
  CUmemAllocationProp properties_{};
  std::size_t granularity_ = 2 * kMiB;
  std::vector<CallTime> times_;
};

}  // namespace

std::vector<CallTime> time_driver_calls(Contexts& contexts, int device, int repetitions) {
  return Timing(contexts, device, repetitions).run();
}

}  // namespace cistern
