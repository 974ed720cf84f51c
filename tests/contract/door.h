#pragma once

// A door: one of the interfaces that memory is asked for and given back by, as the contract suite sees it.

#include <cistern/allocator.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace cistern::contract {

// What a door said: by an exception, a status, or a line on standard error.
enum class Fault { none, invalid_argument, out_of_memory, driver, other };
struct Outcome {
  Fault fault = Fault::none;
  std::string words;
  std::size_t reported_bytes = 0;  // of an out of memory: what its report says was asked for
};

class Door {
 public:
  virtual ~Door() = default;
  [[nodiscard]] virtual void* allocate(std::size_t bytes, const Stream& stream) = 0;
  // The block was allocated with `bytes` and used on `stream` last.
  virtual Outcome free(void* pointer, std::size_t bytes, const Stream& stream) = 0;
  // A request that may fail.
  [[nodiscard]] virtual Outcome refused(std::size_t bytes, const Stream& stream);
  // A request on a device that is not there.
  [[nodiscard]] virtual Outcome on_device(int device);
  // A free whose last stream is a handle that is none of the driver's; nothing where handles are not taken.
  virtual Outcome free_on_handle(void* /*pointer*/, std::size_t /*bytes*/, StreamHandle /*stream*/) { return {}; }
  // A request without a place for its result.
  virtual Outcome without_result() { return {}; }
  [[nodiscard]] virtual MemoryStats stats() const { return memory_stats(0); }
};

struct DoorKind {
  std::string name;
  std::function<std::unique_ptr<Door>()> open;
  bool frees_any_pointer = true;  // false: it keeps the pointers to itself
  bool has_sizes = false;         // its frees have the size of the request
  bool takes_handles = false;     // and a driver's handle
  bool has_results = false;       // requests write to a place of the caller's
  bool is_of_process = true;      // over the process's heaps
  bool waits = false;             // requests wait for the default stream, and memory comes back when it is not used

  friend void PrintTo(const DoorKind& kind, std::ostream* out) { *out << kind.name; }
};

// Those of the program.
[[nodiscard]] std::vector<DoorKind> doors();

// What `call` throws.
template <class Call>
Outcome thrown_by(Call&& call) {
  try {
    call();
  } catch (const OutOfMemoryError& error) {
    return {Fault::out_of_memory, error.what(), error.report().requested_bytes};
  } catch (const InvalidArgument& error) {
    return {Fault::invalid_argument, error.what()};
  } catch (const DriverError& error) {
    return {Fault::driver, error.what()};
  } catch (const std::exception& error) {
    return {Fault::other, error.what()};
  }
  return {};
}

// What `call`, which cannot throw, says on standard error.
template <class Call>
Outcome said_by(Call&& call) {
  ::testing::internal::CaptureStderr();
  call();
  Outcome outcome;
  outcome.words = ::testing::internal::GetCapturedStderr();
  if (!outcome.words.empty()) outcome.fault = Fault::invalid_argument;
  return outcome;
}

inline Outcome Door::refused(std::size_t bytes, const Stream& stream) {
  return thrown_by([&] { static_cast<void>(allocate(bytes, stream)); });
}
inline Outcome Door::on_device(int device) {
  return thrown_by([&] { static_cast<void>(allocate(1024, Stream::external(nullptr, device))); });
}

}  // namespace cistern::contract
