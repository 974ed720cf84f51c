#pragma once

// Marks and ranges for profilers, by the NVIDIA Tools Extension (NVTX 3): torch.cuda.nvtx.
//
// A tool attaches when the process starts (NVTX_INJECTION64_PATH, which Nsight Systems and Compute Sanitizer
// set); where none does, a call costs a few instructions. A tool that follows the extension for memory
// also learns of every block that the allocator hands out on CUDA devices, so that Compute Sanitizer
// sees blocks and not whole segments.
// Messages are ASCII and end at their first null byte; null is "". Other bytes are handed on as they
// are, without being read: what becomes of them, UTF-8 for one, is the tool's matter.
// Thread safety: any function may be called from any thread. Ranges that are pushed are a thread's own.

#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstdint>

namespace cistern::nvtx {

// Something that happens at this moment.
CISTERN_EXPORT void mark(const char* message) noexcept;
// Begins a range that nests in this thread's others, and returns its depth: 0 for the outermost.
CISTERN_EXPORT int range_push(const char* message) noexcept;
// Ends the innermost range of this thread, and returns its depth; -1, and nothing else, if range_push
// began none. The depths count the ranges of these two functions, with a tool or without.
CISTERN_EXPORT int range_pop() noexcept;

// A range that ends with the scope, on the thread that began it.
class CISTERN_EXPORT ScopedRange {
 public:
  explicit ScopedRange(const char* message) noexcept { range_push(message); }
  ~ScopedRange() { range_pop(); }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;
};

// What tools call a stream. The default streams have no name of their own to change: InvalidArgument.
CISTERN_EXPORT void name_stream(const Stream& stream, const char* name);

// Marks and ranges that tools tell apart from those of others: those of a library, say. As the
// functions above, with ranges that nest among the domain's own.
class CISTERN_EXPORT Domain {
 public:
  explicit Domain(const char* name);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  void mark(const char* message) const noexcept;
  int range_push(const char* message) const;
  int range_pop() const noexcept;

 private:
  void* handle_;          // the tool's; null where none is attached
  std::uint64_t number_;  // never used again
};

}  // namespace cistern::nvtx
