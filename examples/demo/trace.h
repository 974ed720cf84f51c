#pragma once

// The demo's own allocation trace: what it asked the allocator for, in order, as text that
// `cistern replay` reads ("a id bytes stream", "r id stream", "f id", "i").
//
// Not thread-safe: the thread that queues the work writes the trace.

#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <utility>

namespace cistern::demo {

class AllocationTrace {
 public:
  // One live allocation; writes its free when it ends. The trace must outlive it.
  class Entry {
   public:
    Entry() noexcept = default;
    ~Entry() { end(); }
    Entry(Entry&& other) noexcept : trace_(std::exchange(other.trace_, nullptr)), id_(other.id_) {}
    Entry& operator=(Entry&& other) noexcept;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // The allocation is used on `stream` too.
    void used_on(const Stream& stream) const;

   private:
    friend class AllocationTrace;
    Entry(AllocationTrace& trace, std::uint64_t id) noexcept : trace_(&trace), id_(id) {}
    void end() noexcept;

    AllocationTrace* trace_ = nullptr;
    std::uint64_t id_ = 0;
  };

  // Writes to `out`, which must outlive the trace. `header` becomes comment lines.
  AllocationTrace(std::ostream& out, const char* header);

  [[nodiscard]] Entry allocated(std::size_t bytes, const Stream& stream);
  // A training step ends here.
  void end_step();

 private:
  // Streams are numbered in the order in which they appear; 0 is the default stream.
  int number_of(const Stream& stream);

  std::ostream& out_;
  std::map<Stream, int> streams_;
  std::uint64_t next_id_ = 1;
};

}  // namespace cistern::demo
