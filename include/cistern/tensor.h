#pragma once

// Tensors, as far as it takes to move them: where the elements are and how they lie. See comm.h.
//
// Thread safety: values: different objects from different threads.
// Units: sizes and strides are in elements, unless they say bytes.
// Errors: InvalidArgument, naming what is wrong and what was expected.

#include <cistern/device.h>
#include <cistern/dlpack.h>
#include <cistern/export.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace cistern {

enum class DType : std::uint8_t {
  boolean,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,   // two float32
  complex128,  // two float64
};
[[nodiscard]] CISTERN_EXPORT std::size_t size_of(DType type) noexcept;  // bytes of one element
[[nodiscard]] CISTERN_EXPORT const char* to_string(DType type) noexcept;

// Where a tensor is: on a device, or on the host.
class CISTERN_EXPORT Place {
 public:
  Place(Device device = {}) noexcept : device_(device) {}  // NOLINT(google-explicit-constructor): a device is a place
  Place(int device) : device_(Device(device)) {}           // NOLINT(google-explicit-constructor)
  // "cpu", or a text that Device takes.
  Place(std::string_view text)  // NOLINT(google-explicit-constructor)
      : device_(text == "cpu" ? std::optional<Device>() : std::optional<Device>(Device(text))) {}
  Place(const char* text)  // NOLINT(google-explicit-constructor)
      : Place(text == nullptr ? std::string_view("(null)") : std::string_view(text)) {}
  [[nodiscard]] static Place host() noexcept {
    Place place;
    place.device_.reset();
    return place;
  }

  [[nodiscard]] bool is_host() const noexcept { return !device_.has_value(); }
  // Of a place on the host, the current one.
  [[nodiscard]] Device device() const noexcept { return device_.value_or(Device()); }
  friend bool operator==(const Place& a, const Place& b) noexcept { return a.device_ == b.device_; }
  friend bool operator!=(const Place& a, const Place& b) noexcept { return !(a == b); }

 private:
  std::optional<Device> device_;
};

// Somebody's elements: the memory stays theirs. Element (i, j, ...) is at
// data + byte_offset + (i * strides[0] + j * strides[1] + ...) * size_of(dtype).
struct CISTERN_EXPORT TensorView {
  TensorView() = default;
  // Rows one after the other: the last size counts fastest.
  TensorView(void* data, DType dtype, std::vector<std::int64_t> shape, Place place);
  TensorView(void* data, DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, Place place,
             std::size_t byte_offset = 0);

  // Where the elements lie, or what they are a part of. May be null if there are no elements.
  void* data = nullptr;
  std::size_t byte_offset = 0;  // of the first element
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  Place place;

  [[nodiscard]] std::size_t dimensions() const noexcept { return shape.size(); }
  [[nodiscard]] std::int64_t elements() const noexcept;  // 1 if it has no dimensions
  [[nodiscard]] std::size_t bytes() const noexcept;      // of the elements, without what lies between them
  [[nodiscard]] void* first() const noexcept { return static_cast<char*>(data) + byte_offset; }
  // Whether the elements are one run, rows one after the other.
  [[nodiscard]] bool is_contiguous() const noexcept;
  // The part from `start` on along a dimension. Negative dimensions count from the last one, -1.
  [[nodiscard]] TensorView narrow(int dim, std::int64_t start, std::int64_t length) const;
  // The same elements with two dimensions changed for each other.
  [[nodiscard]] TensorView transpose(int a, int b) const;
};

// Elements of one's own, on a device in memory of this allocator: freed, in stream order, with the last
// tensor that shares it. A tensor that was moved from is empty.
class CISTERN_EXPORT Tensor {
 public:
  Tensor() = default;
  // Uninitialised, rows one after the other; on a device for work on `stream`, by default the current one there.
  // Throws as allocate does; InvalidArgument for a negative size, more than 64 dimensions, or another device's stream.
  [[nodiscard]] static Tensor empty(std::vector<std::int64_t> shape, DType dtype, Place place = {},
                                    const std::optional<Stream>& stream = std::nullopt);
  // Elements that somebody else keeps, alive as long as `owner`.
  Tensor(TensorView view, std::shared_ptr<void> owner) noexcept : view_(std::move(view)), owner_(std::move(owner)) {}

  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  [[nodiscard]] const TensorView& view() const noexcept { return view_; }
  operator const TensorView&() const noexcept { return view_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] void* data() const noexcept { return view_.first(); }
  [[nodiscard]] const std::shared_ptr<void>& owner() const noexcept { return owner_; }

 private:
  TensorView view_;
  std::shared_ptr<void> owner_;
};

// The elements of a DLTensor, which keeps them. Throws InvalidArgument for a type or a device that is none of the
// above, for lanes, for strides below 0 and for more than 64 dimensions.
[[nodiscard]] CISTERN_EXPORT TensorView from_dlpack(const dlpack::DLTensor& tensor);
// The same, with the tensor's deleter called when the last tensor that shares it is gone. If this throws, the
// tensor is still the caller's.
[[nodiscard]] CISTERN_EXPORT Tensor from_dlpack(dlpack::DLManagedTensor* tensor);
// Points into `view`, which must outlive it. Simulated devices are CUDA devices to it. `data` is the first element and
// byte_offset 0: PyTorch (its issue 168177) and others do not read byte_offset.
[[nodiscard]] CISTERN_EXPORT dlpack::DLTensor to_dlpack(TensorView& view);
// Whose deleter gives the elements back; it may be called on any thread.
[[nodiscard]] CISTERN_EXPORT dlpack::DLManagedTensor* to_dlpack(Tensor tensor);

}  // namespace cistern
