#pragma once

#include <cstdint>
#include <utility>

#include "bench/workloads/workload.h"

namespace cistern {

// A block of the trace that is freed when its Tensor ends, as a framework's tensors are.
class Tensor {
 public:
  Tensor() = default;
  Tensor(TraceSink& sink, std::uint64_t bytes, unsigned stream = 0)
      : sink_(&sink), id_(sink.allocate(bytes, stream)), bytes_(bytes) {}
  ~Tensor() { reset(); }
  Tensor(Tensor&& other) noexcept : sink_(std::exchange(other.sink_, nullptr)), id_(other.id_), bytes_(other.bytes_) {}
  // The old block is freed after the new one was made: `x = Tensor(...)` is an operation's output.
  Tensor& operator=(Tensor&& other) noexcept {
    if (this != &other) {
      reset();
      sink_ = std::exchange(other.sink_, nullptr);
      id_ = other.id_;
      bytes_ = other.bytes_;
    }
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  void reset() noexcept {
    if (sink_ != nullptr) std::exchange(sink_, nullptr)->free(id_);
  }
  void record(unsigned stream) const { sink_->record(id_, stream); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  TraceSink* sink_ = nullptr;  // null: holds no block
  std::uint64_t id_ = 0;
  std::uint64_t bytes_ = 0;
};

inline constexpr std::uint64_t kKiB = std::uint64_t{1} << 10;
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace cistern
