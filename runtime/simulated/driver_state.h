#pragma once

// DriverState: one simulated driver. Each entry of the driver table is a member of the same
// name, in the file of its concern (*_calls.cpp).
//
// Thread safety: entries may be called from any thread; they take the one lock.

#include <cistern/simulated.h>

#include "runtime/call_meter.h"
#include "runtime/driver_api.h"
#include "runtime/simulated/capture.h"
#include "runtime/simulated/current_devices.h"
#include "runtime/simulated/device_capacity.h"
#include "runtime/simulated/device_memory.h"
#include "runtime/simulated/executor.h"
#include "runtime/simulated/fault_plan.h"
#include "runtime/simulated/graph_memory.h"
#include "runtime/simulated/graph_table.h"
#include "runtime/simulated/handle_table.h"
#include "runtime/simulated/host_memory.h"
#include "runtime/simulated/host_pages.h"
#include "runtime/simulated/ipc_state.h"
#include "runtime/simulated/memory_access.h"
#include "runtime/simulated/memory_description.h"
#include "runtime/simulated/memory_pools.h"
#include "runtime/simulated/operation.h"
#include "runtime/simulated/peer_access.h"
#include "runtime/simulated/race_detector.h"
#include "runtime/simulated/race_foreign.h"
#include "runtime/simulated/rows.h"
#include "runtime/simulated/streams.h"
#include "runtime/simulated/user_objects.h"
#include "runtime/simulated/virtual_memory.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace cistern::simulated {

struct SimulatedDevice {
  SimulatedDevice(int physical_index, std::size_t capacity_bytes, AddressWindow window, HostPages& pages)
      : physical(physical_index), capacity(capacity_bytes), memory(window, capacity, pages) {}
  int physical;  // its number before CUDA_VISIBLE_DEVICES
  DeviceCapacity capacity;
  DeviceMemory memory;
  [[nodiscard]] bool has_context() const noexcept { return retained != 0 || is_held; }
  std::uint64_t retained = 0;  // its primary context
  bool is_held = false;        // and by the driver itself, for streams of SimulatedDriver::create_stream
  unsigned flags = 0;          // of its primary context
};

// Calls that functions of operations made, and that were refused.
struct CallsFromOperations {
  void note(DriverEntryId entry) noexcept {
    count.fetch_add(1, std::memory_order_relaxed);
    auto none = DriverEntryId::count;
    first.compare_exchange_strong(none, entry, std::memory_order_relaxed);
  }
  std::atomic<std::uint64_t> count{0};
  std::atomic<DriverEntryId> first{DriverEntryId::count};
};

struct DriverState {
  using Lock = std::unique_lock<std::mutex>;

  // `owner` is what SimulatedDriver::behind finds.
  DriverState(SimulatedOptions settings, SimulatedDriver* owner);
  ~DriverState();
  DriverState(const DriverState&) = delete;
  DriverState& operator=(const DriverState&) = delete;

#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) CUresult member parameters;
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY

  // Whether the call may go on: counts it, refuses what a running operation calls, what comes
  // before cuInit or after the driver's end, and lets faults fire.
  CUresult admit(DriverEntryId entry);
  // Tells the race detector of a call that admit refuses for coming from an operation.
  void report_call_inside(DriverEntryId entry);

  // The processes attached to a device: this one alone where it is not shared.
  [[nodiscard]] std::vector<GpuProcess> list_processes(CUdevice device);
  // A kernel that fills memory with values of a Philox sequence (random_calls.cpp).
  CUresult fill_random(const RandomFill& fill, CUstream stream);
  // A kernel that copies or adds elements that lie apart (strided_calls.cpp).
  CUresult run_strided(const StridedWork& work, CUstream stream);
  // What moving bytes takes of virtual time.
  [[nodiscard]] Nanoseconds duration_of(const Copy& copy) const;
  [[nodiscard]] Nanoseconds duration_in_device(std::size_t bytes) const;

  // --- For the entries: all with the lock held ---
  [[nodiscard]] int device_count() const noexcept { return static_cast<int>(devices.size()); }
  [[nodiscard]] bool is_device(CUdevice device) const noexcept { return device >= 0 && device < device_count(); }
  [[nodiscard]] SimulatedDevice& device(int index) { return devices[static_cast<std::size_t>(index)]; }
  [[nodiscard]] CUcontext context_of(int device) const noexcept;
  // The device of a context; -1 if there is no such context.
  [[nodiscard]] int device_of(CUcontext context) const noexcept;
  // CUDA_SUCCESS if the context of a device can be used: it was retained, and has not failed.
  [[nodiscard]] CUresult context_status(int device);
  // The device whose context is current; an error if there is none or it cannot be used.
  CUresult find_current(int* device);
  CUresult find_stream(CUstream handle, StreamQueue** stream);
  CUresult find_event(CUevent handle, Event** event);
  [[nodiscard]] bool is_device_address(std::uint64_t address) const;
  // The device whose memory is at an address; -1: none's.
  [[nodiscard]] int device_of_memory(std::uint64_t address) const;
  // Whether an operation may touch memory like this. Pageable host memory is nobody's to judge.
  [[nodiscard]] bool may_touch(const Touch& touch, Moment moment) const;
  // Whether no driver knows of the memory, and it is no device's.
  [[nodiscard]] bool is_pageable(std::uint64_t address, std::size_t bytes) const;
  // What callers are told of an address; nothing if it is no memory of this driver's.
  [[nodiscard]] std::optional<MemoryDescription> describe(std::uint64_t address) const;
  // Makes `work` touch memory. Whether it may is asked again when its turn has come: the memory may
  // be gone by then, and the device fails as on an illegal address.
  void add_touches(Work& work, std::vector<Touch> touches);
  // Before a call refuses work for its memory.
  void tell_refused(const StreamQueue& stream, const OperationLabel& label, const std::vector<MemoryAccess>& accesses);
  // The work of a copy or a fill that was checked: to be queued, or to be a node of a graph.
  [[nodiscard]] Work work_of(Copy copy);
  [[nodiscard]] Work work_of(const Fill& fill);
  [[nodiscard]] CUresult check_copy(const StreamQueue& stream, const Copy& copy);
  // A pageable source on its way to a device is read now.
  void stage_pageable(Copy& copy);
  // Before host code touches device memory by its address: false if the host refuses.
  [[nodiscard]] bool show_to_host(std::uint64_t address, std::size_t bytes);
  // Copies and fills of rows, as one operation each, for the calls of libcuda.so.1 that are not the
  // table's (row_calls.cpp). They take the lock. `is_synchronous`: the host waits as cuMemcpy does.
  CUresult copy_rows(const RowCopy& rows, CUstream stream, bool is_synchronous);
  CUresult fill_rows(const RowFill& rows, CUstream stream);
  // Makes the host wait for all work of a stream, and completes its device's events.
  CUresult wait_for_stream(Lock& lock, StreamQueue& stream);

  // --- The doors through which a stream takes work: it runs or, where the stream captures,
  // becomes a node of the graph (capture_calls.cpp). A refused call leaves `work` as it is. ---
  // It also runs behind the targets; `queued` is what it became, if it did not become a node.
  CUresult submit(StreamQueue& stream, Work&& work, const Targets& behind = {}, Target* queued = nullptr);
  CUresult submit_record(StreamQueue& stream, CUevent handle, Event& event, bool is_external);
  CUresult submit_wait(StreamQueue& stream, CUevent handle, const Event& event, bool is_external);
  CUresult submit_graph(StreamQueue& stream, GraphExec& exec);
  // What an allocation or free node does when its turn has come.
  [[nodiscard]] std::function<CUresult(CUresult)> memory_function(const GraphNode& node);
  // Before a stream goes. What it returns is let go of with no lock held.
  [[nodiscard]] std::shared_ptr<Graph> leave_capture(StreamQueue& stream);
  // Whether the host may query the event, or wait for it.
  CUresult check_event_query(const Event& event) const;

  // Makes the host wait for all work of a device, or of the devices in a set of bits, and
  // completes its events. Nothing runs on another thread when it returns.
  CUresult wait_for_device(Lock& lock, int device) { return wait_for_devices(lock, std::uint64_t{1} << device); }
  CUresult wait_for_devices(Lock& lock, std::uint64_t devices);

  const std::uint64_t number = next_driver_number();
  SimulatedDriver* const driver;
  const SimulatedOptions options;
  CallMeter meter;
  FaultPlan faults;
  std::atomic<bool> initialized{false};
  std::atomic<bool> gone{false};  // as after the process began to end
  CallsFromOperations calls_from_operations;
  CurrentDevices current{number};
  DriverApi api;

  std::mutex mutex;
  const std::unique_ptr<SharedDevices> shared_devices;  // null: the devices are this process's alone
  HostPages pages;
  std::deque<SimulatedDevice> devices;
  VirtualMemory virtual_memory;
  std::condition_variable hold_released;  // of a range of virtual memory
  HostMemory host_memory;
  MemoryPools pools;
  GraphMemory graph_memory;
  PeerAccess peers;
  Executor executor;
  Streams streams;
  HandleTable<Event> events;
  const RaceWindows race_windows;             // for the detectors of other drivers
  const std::unique_ptr<RaceDetector> races;  // null when it is off
  GraphTable graphs;
  UserObjects user_objects{this, handle_number()};
  Captures captures;

  IpcState ipc{number};

 private:
  // The device whose window of allocations an address lies in; -1: none's.
  [[nodiscard]] int device_window_at(std::uint64_t address) const;
  CUresult inject(DriverEntryId entry);
  // Whether work of a device can reach another's memory.
  [[nodiscard]] bool can_reach(int from, int to);
  void enable_lazily(int from, int to);
  CUresult map_foreign(int owner, OwnedFile file, IpcState::Mapping* mapping);
  // What a capture that is under way makes of a call of the entry. Takes the lock.
  CUresult check_capture(DriverEntryId entry);
  static CUresult check_end(CaptureSequence& sequence, const StreamQueue& stream);
  // For what cannot be captured: invalidates the stream's sequence.
  static CUresult refuse_in_capture(const StreamQueue& stream);
  // Adds the node behind what the stream has captured.
  void capture_node(StreamQueue& stream, GraphNode node);
  // The nodes' indices in their graph.
  [[nodiscard]] std::vector<std::size_t> places_of(const std::vector<CUgraphNode>& nodes) const;
  CUresult memset_async(CUdeviceptr destination, unsigned value, std::size_t width, std::size_t count, CUstream stream);
  CUresult tell_of_memory(void* value, CUpointer_attribute attribute, CUdeviceptr pointer,
                          const MemoryDescription& memory) const;
  // How kernels of the current device may touch an address.
  [[nodiscard]] CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS access_flags(CUdeviceptr pointer) const;
  [[nodiscard]] bool is_between_hosts(const Copy& copy) const;
  // Whether the host may not have mapped it: see HostMappings.
  [[nodiscard]] bool needs_showing(const Touch& touch) const;
  // Runs `access` while the ranges are shown to it. Takes the lock.
  CUresult touch(const std::vector<Touch>& touches, const std::function<void()>& access);
  CUresult run_copy(const Copy& copy);
  // The copies of the rows, checked; fewer where rows follow each other without a gap.
  CUresult list_copies(const StreamQueue& stream, const RowCopy& rows, std::vector<Copy>* copies);
  // Makes the copy one with the next, if that follows it without a gap.
  [[nodiscard]] bool extend(Copy& copy, const Copy& next) const;
  [[nodiscard]] Work work_of(std::vector<Copy> copies);
  CUresult allocate_in_stream(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, StreamQueue& stream);
  // Of an allocation that is withdrawn, or that cuMemAlloc made.
  void free_in_stream(const PoolAllocation& allocation, StreamQueue& stream);
  void free_in_stream(CUdeviceptr pointer, int owner, StreamQueue& stream);
  CUresult free_managed(Lock& lock, CUdeviceptr pointer);
  CUresult free_pool_allocation(Lock& lock, CUdeviceptr pointer);
  // Memory of graphs (graph_memory_calls.cpp): as nodes, on streams, at once, and at a launch.
  CUresult capture_allocation(CUdeviceptr* pointer, std::size_t bytes, const MemoryPool& pool, StreamQueue& stream);
  CUresult capture_free(CUdeviceptr pointer, StreamQueue& stream);
  void capture_memory_node(StreamQueue& stream, OperationKind kind, const GraphAllocationPtr& allocation);
  CUresult check_graph_free(const GraphAllocation& allocation, const char* entry);
  void free_in_stream(const GraphAllocationPtr& allocation, StreamQueue& stream, const Targets& behind = {});
  CUresult free_graph_allocation(Lock& lock, const GraphAllocationPtr& allocation);
  CUresult prepare_memory(StreamQueue& stream, const GraphExec& exec);
  void launched_memory(const GraphExec& exec, const std::vector<MemoryNode>& nodes, const Targets& queued);
  // Writes a range of memory, part by part where the host cannot have all of it mapped at once. Takes
  // the lock, but not for the writing.
  using WritePart = std::function<void(std::size_t offset, std::size_t bytes)>;
  CUresult write_in_parts(const Touch& writes, const WritePart& write);
  CUresult run_fill(const Fill& fill);
  [[nodiscard]] std::uint16_t handle_number() const noexcept { return static_cast<std::uint16_t>(number); }
};

// The table whose entries are the members of `state`.
[[nodiscard]] DriverApi make_driver_api(DriverState& state);
// The driver that an entry of a table belongs to; nullptr if it is not a live simulated driver's.
[[nodiscard]] DriverState* find_driver_state(const DriverApi& api) noexcept;
// Fills the notes about blocks, which only the race detector hears.
void listen_to_block_notes(DriverState& state);
// Drops what the live drivers keep for a thread that ended, by its number.
void forget_thread(std::uint64_t thread) noexcept;

}  // namespace cistern::simulated
