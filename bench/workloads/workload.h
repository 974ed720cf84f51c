#pragma once

// Workloads: generated allocation traces, so that everyone can repeat every benchmark.
//
// A workload allocates as a published model or program does; its source file opens with
// the shapes and where they are from, and the trace's header lines repeat them. The same
// name and seed give the same trace on every machine.
// Thread safety: a generator keeps no state of its own; a sink belongs to one thread.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace cistern {

// Where a generator writes its operations, in order: the lines of a trace.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // A header line. Generators write all of theirs before the first operation.
  virtual void comment(std::string_view text) = 0;
  // A block of `bytes` bytes on `stream`. Returns its id, which is never used again.
  virtual std::uint64_t allocate(std::uint64_t bytes, unsigned stream) = 0;
  // The live block is now used on `stream` too.
  virtual void record(std::uint64_t id, unsigned stream) = 0;
  // Never throws, so that what owns a block may free it when it ends.
  virtual void free(std::uint64_t id) noexcept = 0;
  // An iteration, batch or round of requests ends here.
  virtual void step() = 0;

 protected:
  TraceSink() = default;
  TraceSink(const TraceSink&) = default;
  TraceSink& operator=(const TraceSink&) = default;
};

// Writes the trace format's text. What it holds back is written by flush and at its end.
class TextTraceWriter final : public TraceSink {
 public:
  // `out` must outlive the writer and throw nothing: its state tells whether all was written.
  explicit TextTraceWriter(std::ostream& out);
  ~TextTraceWriter() override;
  TextTraceWriter(const TextTraceWriter&) = delete;
  TextTraceWriter& operator=(const TextTraceWriter&) = delete;

  void comment(std::string_view text) override;
  std::uint64_t allocate(std::uint64_t bytes, unsigned stream) override;
  void record(std::uint64_t id, unsigned stream) override;
  void free(std::uint64_t id) noexcept override;
  void step() override;
  void flush() noexcept;

 private:
  void write_line(char kind, std::initializer_list<std::uint64_t> fields) noexcept;

  std::ostream& out_;
  std::string text_;
  std::uint64_t next_id_ = 1;
};

struct Workload {
  const char* name;         // as `cistern workload NAME` takes it
  const char* description;  // one line
  // Writes the whole trace to `sink`; every block is freed at its end.
  void (*generate)(std::uint64_t seed, TraceSink& sink);
};

// All workloads, in the order in which they are listed.
[[nodiscard]] std::span<const Workload> workloads();
// The workload of that name, or nullptr.
[[nodiscard]] const Workload* find_workload(std::string_view name);
// The seed that benchmarks use when none is given.
inline constexpr std::uint64_t kDefaultWorkloadSeed = 1;

}  // namespace cistern
