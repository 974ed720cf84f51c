#pragma once

// RaceDetector: finds what is unordered or out of place, from what the driver's calls tell it.
//
// A driver has one when the option `races` is on, else none. Each call that submits work,
// orders it, waits for it, or begins and ends the life of memory tells it in one line, when
// it is made: nothing is judged by what has run meanwhile.
// Thread safety: the driver holds its lock around every call but `current_operation`.

#include <cistern/race_report.h>

#include "runtime/simulated/operation.h"
#include "runtime/simulated/race_memory.h"
#include "runtime/simulated/race_operation.h"
#include "runtime/simulated/race_order.h"
#include "runtime/simulated/race_reports.h"
#include "runtime/simulated/race_shadow.h"
#include "runtime/simulated/race_stack.h"
#include "runtime/simulated/virtual_memory.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cistern::simulated {

struct GraphOperation;

class RaceDetector {
 public:
  // `driver`: its number. `virtual_memory` tells which mapped addresses are the same bytes.
  RaceDetector(const SimulatedOptions& options, std::uint64_t driver, int devices, const VirtualMemory& virtual_memory);

  // --- Work: submitted now, on a stream ---
  // Its function becomes one whose own accesses, told while it runs, belong to the operation.
  // A stream-ordered allocation begins lives, a stream-ordered free ends them.
  RaceOperationPtr submitted(const StreamQueue& queue, Work& work);
  // Work that the driver refuses because its device may not touch one of the ranges.
  void refused(const StreamQueue& queue, const OperationLabel& label, const std::vector<MemoryAccess>& accesses);
  // Work that a capture takes instead of the stream, and the launch of an executable graph.
  void captured(const StreamQueue& queue, Work& work);
  // The addresses of an allocation node: what they were before is over.
  void graph_allocation_captured(std::uint64_t address, std::size_t bytes) { memory_.forget(address, address + bytes); }
  void launched(const StreamQueue& queue, std::vector<GraphOperation>& nodes, const void* exec);
  // The stream is about to launch it: what it is given from now on comes behind earlier launches.
  void launching(const StreamQueue& queue, const void* exec) { order_.end_launch(queue, launches_[exec]); }
  void exec_destroyed(const void* exec) { launches_.erase(exec); }
  // A capture ends on the stream with forked work that never joined it.
  void join_lost(const StreamQueue& queue);
  // The host's own accesses; inside a running operation's function: that operation's.
  void host_access(const std::vector<MemoryAccess>& ranges);
  // A call of an entry, by its name, from inside an operation.
  void driver_called_inside(const char* entry);

  // --- Order ---
  void recorded(const Event& event, const StreamQueue& queue) { order_.record(&event, queue); }
  // `is_foreign`: recorded by another process, perhaps.
  void waited(const StreamQueue& queue, const Event& event, bool is_foreign);
  void event_destroyed(const Event& event) { order_.forget(&event); }
  void stream_destroyed(const StreamQueue& queue);
  void host_waited_for(const StreamQueue& queue) { order_.host_waited_for(queue); }
  void host_waited_for(const Event& event) { order_.host_waited_for(&event); }
  void host_waited_for_device(int device) { order_.host_waited_for_device(device); }
  // The host waited for this one operation (a synchronous copy).
  void host_waited_for(const RaceOperationPtr& operation) { order_.host_waited_for(operation->moment); }

  // --- Lives of memory ---
  struct BlockBirth {
    bool in_private_pool = false;
    bool in_capture = false;  // a capture was under way
  };
  void block_allocated(std::uint64_t address, std::size_t bytes, const StreamQueue& queue, BlockBirth birth);
  void block_used(std::uint64_t address, const StreamQueue& queue);
  // `named`: the stream that the note names; null if it was destroyed.
  void block_freed(std::uint64_t address, const StreamQueue* named, bool in_capture);
  // Of host memory, which is in no stream's order: handed out, it is the host's at once.
  void host_block_allocated(std::uint64_t address, std::size_t bytes);
  void host_block_freed(std::uint64_t address);
  // `origin`: the entry. Host memory too.
  void allocated(std::uint64_t address, std::size_t bytes, const char* origin);
  void mapped(std::uint64_t address, std::size_t bytes);
  // Before the memory goes: work that touches it, and that the host does not know to be done,
  // is in the way.
  void freed(std::uint64_t address, const char* entry);
  void unmapped(std::uint64_t address, std::size_t bytes) { end_lives(address, bytes, "cuMemUnmap"); }
  void freed_nothing(std::uint64_t address, const char* entry);
  // Host memory that was the program's own before and is again: only work from between the two
  // relied on its being page-locked.
  void registered(std::uint64_t address) { registrations_[address] = ++sequence_; }
  void unregistered(std::uint64_t address, std::size_t bytes);
  // Kernels of `device` may no longer touch the range, where `needs_leave` says that they needed to ask.
  void leave_taken_back(int device, std::uint64_t begin, std::uint64_t end,
                        const std::function<bool(std::uint64_t)>& needs_leave);

  [[nodiscard]] const std::vector<RaceReport>& reports() const noexcept { return reports_.all(); }
  void clear_reports() { reports_.clear(); }

 private:
  RaceOperation describe(const StreamQueue& queue, const char* kind, std::string_view name);
  void wait_in_graph(const RaceOperation& launch, const Event& event, RaceClock* after);
  RaceClock launch_node(const RaceOperation& launch, GraphOperation& node, const RaceClock& after);
  void begin_in_stream(const RaceOperation& operation, const std::vector<MemoryAccess>& ranges);
  void end_in_stream(const RaceOperation& operation, const std::vector<MemoryAccess>& ranges);
  void begin_allocation(std::uint64_t address, std::size_t bytes, const char* origin, RaceStackId stack,
                        std::uint64_t sequence);
  void run_as(const RaceOperationPtr& operation, Work& work) const;
  RaceOperation describe_host(const char* kind, std::string_view name);
  RaceOperation free_of(const RaceLifetime& block, const StreamQueue* named);
  // What the streams that a block's users told of come to, for the free that waits for them.
  [[nodiscard]] RaceClock told_of(const RaceLifetime& block) const;
  // Calls visit(access, begin, end) for work on a block of the host that the host does not know to be done, but for
  // graphs that have a share in the block.
  void for_each_unfinished(const RaceLifetime& block, const RaceShadow::Conflict& visit) const;
  // Judges and notes the operation's accesses.
  void touch(const RaceOperationPtr& operation, const std::vector<MemoryAccess>& ranges);
  void end_lives(std::uint64_t address, std::size_t bytes, const char* entry);
  // Reports what is wrong with the range whatever the order; false if nothing is.
  bool judge(const RaceOperation& operation, const MemoryAccess& range);
  void report_conflict(const RaceAccess& earlier, const RaceAccess& later, std::uint64_t begin, std::uint64_t end);
  // The accesses kept of the addresses, whichever mapping of their bytes they used.
  void for_each_access(std::uint64_t address, std::size_t bytes, const RaceShadow::Conflict& visit) const;
  // Calls visit(place, end, displacement) for the places that hold the bytes.
  void for_each_place(std::uint64_t address, std::size_t bytes,
                      const std::function<void(std::uint64_t, std::uint64_t, std::uint64_t)>& visit) const;
  void clear_shadow(std::uint64_t address, std::size_t bytes);

  const std::uint64_t driver_;
  const VirtualMemory& virtual_memory_;
  RaceOrder order_;
  RaceShadow shadow_;
  RaceMemory memory_;
  RaceStacks stacks_;
  RaceReports reports_;
  std::map<const void*, RaceClock> launches_;             // what the latest launch of each executable graph ends with
  std::map<std::uint64_t, std::uint64_t> registrations_;  // when each range of host memory was registered, by address
  std::uint64_t sequence_ = 0;
};

}  // namespace cistern::simulated
