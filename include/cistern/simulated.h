#pragma once

// The simulated driver: GPU memory, streams and events in process, at CPU speed.
//
// Device addresses are host addresses, so copies move real bytes and host code can be a
// kernel. Event records and waits take no step: they are done with the last work that they wait
// for, at once if there is none.
// Queued work moves in one of two ways, see Drive. Stepped, everything is deterministic.
// Time is virtual. Work starts when what it waits for has ended, and no earlier than the latest
// end of anything that had run when it was queued (with Drive::free: that the host had waited
// for or found done). Copies, fills and host functions take none.
// A copy reads pageable host memory on its way to a device at the call; all else is read and written when it runs.
// Memory is handed out at the lowest free address, first fit.
// Thread safety: any member may be called from any thread; functions that are run as
// kernels run with no lock held. They may call nothing of their driver: entries
// answer CUDA_ERROR_NOT_PERMITTED, the controls that queue or run work throw DriverError.
// A function that throws fails its device as a kernel that crashes does: what is queued there
// is dropped, and its later calls return CUDA_ERROR_LAUNCH_FAILED.

#include <cistern/export.h>
#include <cistern/race_report.h>
#include <cistern/stream.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cistern {

struct DriverApi;

// What keeps the bytes of simulated device memory.
enum class Backing {
  memory,  // host memory, in pages made when they are first touched
  none,    // nothing: only accounts are kept, and nothing may be dereferenced
};

// Who moves queued work, and when.
enum class Drive {
  // Whoever waits for it or steps it, on their thread, one operation at a time; nothing moves
  // otherwise. The same program runs the same way every time, and a test chooses any order of
  // completion. The default, also of CISTERN_DEVICE=simulated: what was seen once can be seen
  // again. A program that never waits, but asks until an event is done, asks for ever.
  stepped,
  // Threads of the driver, at once, as a device does: functions of different streams run at the
  // same time, so one that blocks holds up its own stream only; queries answer by what has
  // really been done. There are at most as many threads as streams, as many as were ever busy at
  // once. Of two streams that are ready the one with the higher priority is taken first.
  free,
};

struct SimulatedOptions {
  int devices = 1;                                     // at least 1
  std::size_t capacity_bytes = std::size_t{80} << 30;  // of each device
  Backing backing = Backing::memory;
  Drive drive = Drive::stepped;  // free needs a backing: accounts alone keep no threads
  // An event completes at the later of its stream's work and this many ticks after its
  // record (see SimulatedDriver::tick), as the host sees it; work that waits for it on the device
  // is not held up. Freeing device memory, or synchronising, completes all that the device has
  // recorded so far. 0: with its stream's work.
  std::uint64_t event_lag_ticks = 0;
  // The race detector (docs/race-detector.md): work that is unordered by what the driver
  // promises, and accesses to memory that is not the operation's. It slows the driver down; off,
  // it costs nothing.
  RaceMode races = RaceMode::off;
  // Frames of each call stack that it keeps, the innermost ones, from 0 to kMostRaceFrames. To gather them is most of
  // what an operation costs then. Conflicts whose frames that are kept are the same are one report.
  static constexpr int kMostRaceFrames = 128;
  int race_frames = 48;
  // Processes with the same name share the devices' capacity: cuMemGetInfo and refusals see what all of
  // them hold, and what a killed one held comes back. Empty: the devices are this process's alone. All
  // must have as many devices of as much memory.
  std::string shared = {};
  // Bytes per second of virtual time, of one operation: what copies between two devices take, those to, from and
  // within the host's memory, and copies, fills and the kernels of cistern within a device. Operations that run at
  // the same time do not slow each other down. 0: none takes any time.
  std::uint64_t peer_bandwidth = 0;
  std::uint64_t host_bandwidth = 0;
  std::uint64_t memory_bandwidth = 0;
  int compute_capability_major = 9;
  int compute_capability_minor = 0;
  // Which of the devices the driver shows, and in what order: CUDA_VISIBLE_DEVICES, resolved.
  // Unset: all. With none, cuInit finds no device.
  std::optional<std::vector<int>> visible_devices = {};
  // Which pairs of devices can reach each other's memory, in both directions, by their numbers
  // before visible_devices. Unset: all.
  std::optional<std::vector<std::pair<int, int>>> peers = {};

  // Reads "devices=2,capacity=80GiB,backing=none,event_lag=64,compute_capability=9.0" or
  // "drive=free,races=report".
  // Throws InvalidArgument naming the setting and what was expected.
  [[nodiscard]] CISTERN_EXPORT static SimulatedOptions parse(std::string_view text);

  // Sets visible_devices from the text of CUDA_VISIBLE_DEVICES, by the driver's rules: numbers or
  // "GPU-" and the first digits of a UUID, separated by commas. The first entry that names no
  // device ends the list, and a device named twice makes it empty; so does an empty text.
  CISTERN_EXPORT void set_visible_devices(std::string_view text);
};

// A range of device memory that an operation reads or writes.
struct MemoryRange {
  const void* address = nullptr;
  std::size_t bytes = 0;
};

class CISTERN_EXPORT SimulatedDriver {
 public:
  explicit SimulatedDriver(SimulatedOptions options = {});
  // Drops queued work without running it, and all memory. Waits for functions that run.
  ~SimulatedDriver();
  SimulatedDriver(const SimulatedDriver&) = delete;
  SimulatedDriver& operator=(const SimulatedDriver&) = delete;

  // The table to give to a CachingAllocator; it lives as long as the driver.
  [[nodiscard]] const DriverApi& api() const noexcept;
  // The driver behind a table; nullptr if the table is not a simulated driver's.
  [[nodiscard]] static SimulatedDriver* behind(const DriverApi& api) noexcept;

  // A non-blocking stream of a device, whose primary context the driver holds from then on.
  // Destroyed with the driver, or by destroy_stream.
  [[nodiscard]] StreamHandle create_stream(int device = 0, int priority = 0);
  void destroy_stream(StreamHandle stream);

  // Queues `function` on `stream` as a kernel that takes `duration` of virtual time and touches
  // the ranges named. Default streams are those of the current device, or of the first.
  // Throws InvalidArgument for a range that is not device memory at this moment. One that no
  // longer is when the work's turn comes fails the device with CUDA_ERROR_ILLEGAL_ADDRESS.
  // Reports call it by `name`.
  void launch(StreamHandle stream, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes,
              std::chrono::nanoseconds duration, std::function<void()> function, std::string name = {});
  // Keeps `stream` busy for `duration` of virtual time.
  void occupy(StreamHandle stream, std::chrono::nanoseconds duration);

  // Runs one operation: the one that is ready first in virtual time, then by priority, then
  // by stream; with `stream`, that stream's next one and what it needs. False: nothing to run.
  // Throws NotSupported with Drive::free.
  bool step();
  bool step(StreamHandle stream, int device = 0);
  // Runs everything that is queued, or all that `stream` needs to be idle; with Drive::free,
  // waits for it.
  void run_until_idle();
  void run_until_idle(StreamHandle stream, int device = 0);
  // Ends one tick of the event lag (the replayer ticks once an operation).
  void tick();
  // Changes the event lag for events recorded from now on.
  void set_event_lag(std::uint64_t ticks);
  // Virtual time: the latest end of any operation that has run on the device.
  [[nodiscard]] std::chrono::nanoseconds virtual_time(int device = 0) const;

  // Calls made so far: of all entries, of one ("cuMemAlloc"), of each.
  [[nodiscard]] std::uint64_t calls() const;
  [[nodiscard]] std::uint64_t calls(std::string_view entry) const;
  [[nodiscard]] std::map<std::string, std::uint64_t> calls_by_name() const;
  // Calls that made the host wait for the device: synchronisations, frees and unmaps that found
  // unfinished work or lagging events.
  [[nodiscard]] std::uint64_t host_synchronizations() const;
  // The accounted cost of all calls, by the cost model: nothing is slept.
  [[nodiscard]] std::chrono::nanoseconds modelled_cost() const;
  // Replaces an entry's modelled cost. Throws InvalidArgument for an unknown entry, or a cost below 0.
  void set_cost(std::string_view entry, std::chrono::nanoseconds cost);

  // Makes the k-th call from now (1: the next) of `entry`, or of any entry if it is empty, fail
  // with `error` (a CUresult) and change nothing. Failures that are set up are independent.
  // Throws InvalidArgument for an unknown entry, k = 0 or an `error` that is none.
  void fail_call(std::string_view entry, std::uint64_t k, int error);
  // As fail_call, and the error sticks as one of the device does: every later call in the context
  // that is current on the thread of that call answers it too.
  void fail_call_for_good(std::string_view entry, std::uint64_t k, int error);
  // Makes each call from now fail with a probability from 0 to 1. The same seed, entry and
  // sequence of calls fail the same calls. Throws as fail_call, and for another probability.
  void fail_at_random(std::string_view entry, double probability, std::uint64_t seed, int error);
  // Makes requests for at least `bytes` of device memory (cuMemAlloc, cuMemCreate and the stream-
  // ordered ones) fail with CUDA_ERROR_OUT_OF_MEMORY, whatever is free. The latest call counts.
  void refuse_requests_from(std::size_t bytes);
  // The device fails now, for good, as by an error of a kernel: work queued there is dropped, but
  // for callbacks, which learn of it, and every later call in its context answers `error`.
  void fail_device(int device, int error);
  // The driver is gone, as when the process ends: every entry answers CUDA_ERROR_DEINITIALIZED
  // from now on and changes nothing.
  void shut_down() noexcept;
  // Calls that functions of operations (kernels, host functions, callbacks) made of their driver, which
  // are not allowed and were refused, and the name of the first: "cuMemAlloc"; empty if none.
  [[nodiscard]] std::uint64_t calls_from_operations() const;
  [[nodiscard]] std::string first_call_from_operations() const;
  // How many calls were failed so far. clear_faults drops those still to come; a device that
  // failed and a driver that is gone stay so.
  [[nodiscard]] std::uint64_t faults_injected() const;
  void clear_faults();

  // Bytes of device memory in use, in whole granules, as cuMemGetInfo sees it, and its peak.
  [[nodiscard]] std::size_t used_bytes(int device = 0) const;
  [[nodiscard]] std::size_t peak_used_bytes(int device = 0) const;

  // What the race detector has found so far, each pair of places once; nothing when it is off.
  [[nodiscard]] std::vector<RaceReport> race_reports() const;
  void clear_race_reports();
  // Tells that the host reads and writes these ranges now: host memory that copies name, or
  // device memory, which the simulation lets the host touch. The race detector judges it; called by
  // a host function or a kernel while it runs, the accesses are that operation's. Virtual memory is
  // made touchable, which it is by itself only while there is little of it (docs/simulated-driver.md);
  // throws DriverError if the host refuses.
  void host_access(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);

  struct Implementation;

 private:
  std::unique_ptr<Implementation> implementation_;
};

// Controls of the process's own device, when it is simulated: by CISTERN_DEVICE=simulated, or
// behind our libcuda.so.1. All but host_access throw NotSupported when it is not.
namespace simulated {

// Whether `launch` can queue work on the device.
[[nodiscard]] CISTERN_EXPORT bool is_active() noexcept;
// Throws NotSupported also when the driver is that of our libcuda.so.1, whose objects are its own:
// it has the controls in simulated_controls.h.
[[nodiscard]] CISTERN_EXPORT SimulatedDriver& driver();

// As SimulatedDriver::launch, on a Stream of the process's driver.
CISTERN_EXPORT void launch(const Stream& stream, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes,
                           std::chrono::nanoseconds duration, std::function<void()> function, std::string name = {});

// As SimulatedDriver::host_access. Nothing when the device is not simulated, so that a program
// may keep its declarations when it runs on a real one.
CISTERN_EXPORT void host_access(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);

}  // namespace simulated
}  // namespace cistern
