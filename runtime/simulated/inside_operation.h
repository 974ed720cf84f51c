#pragma once

// InsideOperation: marks the thread while code runs on it that may call nothing of its driver.
//
// Thread safety: each thread has its own mark.

namespace cistern::simulated {

class InsideOperation {
 public:
  // `driver`: any address that names it.
  explicit InsideOperation(const void* driver) noexcept;
  ~InsideOperation();
  InsideOperation(const InsideOperation&) = delete;
  InsideOperation& operator=(const InsideOperation&) = delete;

 private:
  const void* outer_;
};

// Whether an operation of `driver` runs on this thread.
[[nodiscard]] bool is_inside_operation(const void* driver) noexcept;

}  // namespace cistern::simulated
