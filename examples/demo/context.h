#pragma once

// What all tensors and kernels of one run share: the two streams they use, what a kernel is
// said to cost, and the trace of their allocations.
//
// Not thread-safe: one thread queues the work of a context.

#include "trace.h"

#include <cistern/simulated.h>
#include <cistern/stream.h>

#include <functional>
#include <vector>

namespace cistern::demo {

class Context {
 public:
  // Two new streams of the current device. `trace`, if given, must outlive the context.
  // Throws NotSupported unless the device is the simulated one: the kernels are host code.
  explicit Context(AllocationTrace* trace = nullptr);

  [[nodiscard]] const Stream& compute() const noexcept { return compute_; }
  [[nodiscard]] const Stream& copies() const noexcept { return copies_; }
  [[nodiscard]] AllocationTrace* trace() const noexcept { return trace_; }

  // Queues a kernel of so many floating-point operations on the compute stream. In virtual time
  // it takes 2 microseconds and what the operations take at 10 TFLOP/s: a round figure, of the
  // order of what small kernels reach on a data-centre GPU.
  void launch(double operations, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes,
              std::function<void()> kernel) const;

 private:
  Stream compute_;
  Stream copies_;
  AllocationTrace* trace_;
};

}  // namespace cistern::demo
