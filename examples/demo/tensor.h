#pragma once

// Tensor<T>: a matrix in device memory, shared by its copies and freed with the last of them.
//
// As in the frameworks, a copy is another handle to the same numbers; the memory goes back to
// the allocator, in stream order, when nothing refers to it any more.
// Thread safety: one thread uses the tensors of a context.

#include "context.h"

#include <cistern/buffer.h>
#include <cistern/memory.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

namespace cistern::demo {

template <class T>
class Tensor {
 public:
  Tensor() noexcept = default;
  // Uninitialised numbers for work on the compute stream, or on `stream`.
  // Throws OutOfMemoryError; nothing is changed then.
  Tensor(const Context& context, std::size_t rows, std::size_t columns)
      : Tensor(context, rows, columns, context.compute()) {}
  Tensor(const Context& context, std::size_t rows, std::size_t columns, const Stream& stream)
      : storage_(std::make_shared<Storage>(context, rows * columns, stream)), rows_(rows), columns_(columns) {}

  // Tells the allocator, and the trace, that work on `stream` uses the memory too.
  void record_stream(const Stream& stream) const {
    storage_->buffer.record_stream(stream);
    storage_->entry.used_on(stream);
  }

  // Where the device keeps the numbers: for kernels, which run later.
  [[nodiscard]] T* data() const noexcept { return storage_ ? storage_->buffer.data() : nullptr; }
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }
  [[nodiscard]] std::size_t size() const noexcept { return rows_ * columns_; }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] MemoryRange range() const noexcept { return {data(), size() * sizeof(T)}; }

 private:
  struct Storage {
    Storage(const Context& context, std::size_t count, const Stream& stream) : buffer(count, stream) {
      if (AllocationTrace* trace = context.trace()) entry = trace->allocated(count * sizeof(T), stream);
    }
    DeviceBuffer<T> buffer;
    AllocationTrace::Entry entry;
  };

  std::shared_ptr<Storage> storage_;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
};

// A tensor with these numbers, row by row. Waits until they are on the device.
template <class T>
[[nodiscard]] Tensor<T> upload(const Context& context, const std::vector<T>& numbers, std::size_t rows,
                               std::size_t columns) {
  if (numbers.size() != rows * columns) throw std::invalid_argument("upload: the shape does not match the numbers");
  Tensor<T> tensor(context, rows, columns);
  copy_async(tensor.data(), numbers.data(), numbers.size() * sizeof(T), context.compute());
  context.compute().synchronize();
  return tensor;
}

// The numbers, row by row. Waits for the work that makes them.
template <class T>
[[nodiscard]] std::vector<T> download(const Context& context, const Tensor<T>& tensor) {
  std::vector<T> numbers(tensor.size());
  copy_async(numbers.data(), tensor.data(), numbers.size() * sizeof(T), context.compute());
  context.compute().synchronize();
  return numbers;
}

}  // namespace cistern::demo
