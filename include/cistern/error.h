#pragma once

// The errors that cistern throws.
//
// Every one derives from cistern::Error and from a standard exception, so both
// `catch (const cistern::Error&)` and `catch (const std::exception&)` see all of
// them. The text names the value that was wrong and what was expected.
// Thread safety: values; safe to copy and to read from any thread.

#include <cistern/export.h>
#include <cistern/fixed_text.h>

#include <cstddef>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

namespace cistern {

// The common base of all of cistern's errors. Not itself a std::exception, so
// that a class can be an Error and a std::bad_alloc without an ambiguous base.
class CISTERN_EXPORT Error {
 public:
  Error() = default;
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  virtual ~Error();
  [[nodiscard]] virtual const char* what() const noexcept = 0;
};

// An argument, option or file that cannot be accepted.
class CISTERN_EXPORT InvalidArgument : public Error, public std::invalid_argument {
 public:
  explicit InvalidArgument(const std::string& text) : std::invalid_argument(text) {}
  ~InvalidArgument() override;
  [[nodiscard]] const char* what() const noexcept override { return std::invalid_argument::what(); }
};

// A result that does not exist yet, such as the time of an event that is still pending.
class CISTERN_EXPORT NotReady : public Error, public std::runtime_error {
 public:
  explicit NotReady(const std::string& text) : std::runtime_error(text) {}
  ~NotReady() override;
  [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }
};

// Something that this build, driver or device does not offer: a missing driver,
// a device without the needed capability.
class CISTERN_EXPORT NotSupported : public Error, public std::runtime_error {
 public:
  explicit NotSupported(const std::string& text) : std::runtime_error(text) {}
  ~NotSupported() override;
  [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }
};

// A driver call that failed: which call, on what object, and the driver's own words.
class CISTERN_EXPORT DriverError : public Error, public std::runtime_error {
 public:
  DriverError(int code, std::string call, const std::string& text)
      : std::runtime_error(text), code_(code), call_(std::move(call)) {}
  ~DriverError() override;
  [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }
  // The driver's result (a CUresult) and the name of the entry point, e.g. "cuMemFree".
  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] const std::string& call() const noexcept { return call_; }

 private:
  int code_;
  std::string call_;
};

// A call of a CUDA library beside the driver, cuRAND or cuBLAS, that failed.
class CISTERN_EXPORT LibraryError : public Error, public std::runtime_error {
 public:
  LibraryError(int code, std::string call, const std::string& text)
      : std::runtime_error(text), code_(code), call_(std::move(call)) {}
  ~LibraryError() override;
  [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }
  // The library's own status and the name of the function, e.g. "curandGenerateUniform".
  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] const std::string& call() const noexcept { return call_; }

 private:
  int code_;
  std::string call_;
};

// Why a request could not be served, after everything that may be released was.
enum class OutOfMemoryCause {
  device_full,     // the device has less free memory than the request needs
  fragmented,      // enough bytes are free here, but in no single usable block
  limit,           // the memory fraction forbids it, the device has room
  pending_frees,   // freed memory is still awaited by other streams
  driver_refusal,  // the driver refused although it reports enough free memory
  too_large,       // the request alone exceeds the device's total memory
  graph_pools,     // enough is free, but in private pools that do not serve this request
  address_space,   // the device has memory, but there are no addresses left to map it at
};
[[nodiscard]] CISTERN_EXPORT const char* to_string(OutOfMemoryCause cause) noexcept;

// A free block that is large enough for a request, and why it does not serve it.
struct UnusableBlock {
  enum class Reason {
    found_late,      // it came with the last flush, after which nothing is searched (research_after_flush)
    kept_whole,      // max_split_size_mb or max_non_split_rounding_mb keep it for larger requests
    expandable_off,  // it lies in an expandable segment, and expandable_segments is off by now
    other_stream,    // it belongs to another stream
    other_size,      // it is in the pool for smaller or larger requests
  };
  Reason reason = Reason::found_late;
  std::size_t bytes = 0;
};

// The hard limit of a Budget (see scope.h) that a request would have passed. Bytes.
struct BudgetRefusal {
  FixedText<255> tag;           // whose budget; empty: the whole device's
  std::size_t hard_bytes = 0;   // the limit
  std::size_t live_bytes = 0;   // what of it was in use
  std::size_t block_bytes = 0;  // of the block that the request would have got
};

// The state of one device at the moment a request failed. All sizes in bytes.
// It adds up: total = free + outside + reserved, and
// reserved = allocated + pending_free + free_split + free_whole + private_pools_free. The heap's figures are of one
// moment, and so are the driver's with them: they are asked for again if the heap has changed meanwhile. What
// other threads' requests are getting from the driver at that moment is in `outside`.
struct OutOfMemoryReport {
  int device = 0;
  OutOfMemoryCause cause = OutOfMemoryCause::device_full;
  std::size_t requested_bytes = 0;  // what the caller asked for
  std::size_t rounded_bytes = 0;    // after the size policy's rounding
  std::size_t segment_bytes = 0;    // what the driver was asked for
  std::size_t device_total_bytes = 0;
  // False: the driver did not say what is free, which and `outside` are 0 then, and the total is that of
  // the heap's beginning. The first of the two sums does not hold.
  bool has_device_figures = true;
  std::size_t device_free_bytes = 0;
  std::size_t outside_bytes = 0;           // in use on the device, but not held by this allocator
  std::optional<std::size_t> limit_bytes;  // the memory fraction's limit, if one is set
  std::size_t reserved_bytes = 0;
  std::size_t allocated_bytes = 0;
  std::size_t pending_free_bytes = 0;
  std::size_t free_split_bytes = 0;  // free, in segments that are partly in use
  std::size_t free_whole_bytes = 0;  // free, in segments that are wholly free
  // Of the two above, what the private pool has free that the request is of.
  std::size_t own_pool_free_split_bytes = 0;
  std::size_t own_pool_free_whole_bytes = 0;
  // Free in private pools (of graphs, of MemPools) other than the request's; not in the two above.
  std::size_t private_pools_free_bytes = 0;
  std::size_t largest_free_block_bytes = 0;
  // Of `fragmented`, if a free block is large enough: the one of the earliest reason above, and the largest of these.
  std::optional<UnusableBlock> unusable;
  std::optional<BudgetRefusal> budget;  // the one that refused, if one did; the cause is `limit` then
  FixedText<320> advice;                // the option or step that would have helped; empty if none would
};

// No memory for a request. The allocator stays usable, and every live block is
// untouched. what() keeps the forms that programs search for: "out of memory" and
// "Tried to allocate <n> <unit>". It holds its text in place: it can be made and thrown when the
// host has no memory either.
class CISTERN_EXPORT OutOfMemoryError : public Error, public std::bad_alloc {
 public:
  using Text = FixedText<3072>;
  OutOfMemoryError(const OutOfMemoryReport& report, const Text& text) noexcept : report_(report), text_(text) {}
  ~OutOfMemoryError() override;
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const OutOfMemoryReport& report() const noexcept { return report_; }

 private:
  OutOfMemoryReport report_;
  Text text_;
};

}  // namespace cistern
