#include "context.h"

#include <chrono>
#include <utility>

namespace cistern::demo {
namespace {

constexpr double kLaunchNanoseconds = 2000.0;
constexpr double kOperationsPerNanosecond = 10000.0;

}  // namespace

Context::Context(AllocationTrace* trace) : trace_(trace) {
  static_cast<void>(simulated::driver());  // throws, with the reason, on any other device
  compute_ = Stream::create();
  copies_ = Stream::create();
}

void Context::launch(double operations, std::vector<MemoryRange> reads, std::vector<MemoryRange> writes,
                     std::function<void()> kernel) const {
  const double duration = kLaunchNanoseconds + operations / kOperationsPerNanosecond;
  simulated::launch(compute_, std::move(reads), std::move(writes),
                    std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(duration)), std::move(kernel));
}

}  // namespace cistern::demo
