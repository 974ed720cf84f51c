#pragma once

// Allocation traces: what an application asked its allocator for, in order, as a text of
// one operation a line, plain or gzip'd. Fields are decimal integers, one space before each:
//
//   # TEXT              a comment
//   a ID BYTES STREAM   allocate BYTES on STREAM (0: the default stream) as block ID
//   r ID STREAM         block ID is now used on STREAM, too
//   f ID                free block ID; the ID may come again after this
//   i                   a step (iteration, batch, round of requests) ends here
//
// Thread safety: values and functions of their arguments alone.

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

struct TraceOperation {
  enum Kind : std::uint8_t { allocate, record, free, step };

  std::uint64_t bytes = 0;   // of allocate: as requested; may be 0
  std::uint32_t id = 0;      // of all but step: the block; see Trace::id_count
  std::uint32_t stream = 0;  // of allocate and record; 0: the default stream
  Kind kind = step;

  friend bool operator==(const TraceOperation&, const TraceOperation&) = default;
};

struct Trace {
  std::string name;                   // the file's path, as it was given
  std::vector<std::string> comments;  // the comment lines, without the leading "# "
  std::vector<TraceOperation> operations;

  // Ids are below this. A block has one id while it lives; after its free the next allocation
  // gets it, so that a table of id_count entries holds what lives at any moment.
  std::uint32_t id_count = 0;
  std::vector<std::uint32_t> streams;  // those that occur, ascending
  std::uint64_t allocations = 0;
  std::uint64_t records = 0;
  std::uint64_t frees = 0;
  std::uint64_t steps = 0;
  // The most requested bytes that live at once: less memory than this cannot serve the trace.
  std::uint64_t peak_live_bytes = 0;

  // Requests to the allocator: every operation but the steps.
  [[nodiscard]] std::uint64_t requests() const noexcept { return allocations + records + frees; }
};

// Reads the trace at `path`; gzip'd data are told by their first bytes. Throws InvalidArgument
// "PATH:LINE: 'text': expected ..." if the file cannot be read or breaks a rule of the format.
[[nodiscard]] Trace read_trace(const std::string& path);
// The same of a text in memory, called `name` in errors.
[[nodiscard]] Trace parse_trace(std::string_view text, std::string_view name);

// Writes the comments, then the operations. What is read back has equal operations.
void write_trace(const Trace& trace, std::ostream& out);

}  // namespace cistern
