#pragma once

// Four simulated devices under the race detector, and tensors with an independent reference: values in the order
// of rows, which are put to where strides say, and read from there, one by one.

#include <cistern/cistern.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace cistern::comm {

using Shape = std::vector<std::int64_t>;

class CommCase : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=4,capacity=1GiB,races=report", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override {
    driver().clear_faults();
    driver().run_until_idle();
    for (int device = 3; device >= 0; --device) set_stream(default_stream(device));
    EXPECT_TRUE(driver().race_reports().empty());
  }

  static SimulatedDriver& driver() { return simulated::driver(); }
  static std::uint64_t copies_between_devices() { return driver().calls("cuMemcpyPeerAsync"); }
};

// Where each element is, in the order of rows: offsets in elements.
inline std::vector<std::int64_t> offsets(const Shape& shape, const Shape& strides) {
  std::vector<std::int64_t> all{0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t offset : all)
      for (std::int64_t i = 0; i < shape[d]; ++i) next.push_back(offset + i * strides[d]);
    all = std::move(next);
  }
  return all;
}

inline std::size_t span(const Shape& shape, const Shape& strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return 0;
    last += (shape[d] - 1) * strides[d];
  }
  return static_cast<std::size_t>(last) + 1;
}

inline Shape rows(const Shape& shape) { return TensorView(nullptr, DType::uint8, shape, Place::host()).strides; }

template <class Value>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct TypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct TypeOf<std::int8_t> {
  static constexpr DType value = DType::int8;
};
template <>
struct TypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <>
struct TypeOf<std::int16_t> {
  static constexpr DType value = DType::int16;
};
template <>
struct TypeOf<std::uint16_t> {
  static constexpr DType value = DType::uint16;
};
template <>
struct TypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct TypeOf<std::uint32_t> {
  static constexpr DType value = DType::uint32;
};
template <>
struct TypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct TypeOf<std::uint64_t> {
  static constexpr DType value = DType::uint64;
};

// Somebody's tensor, on a device or on the host, with memory of its own.
class Given {
 public:
  // The values, laid by the strides; what lies between is 0xee.
  template <class Value>
  Given(const std::vector<Value>& values, const Shape& shape, const Shape& strides, Place place,
        DType type = TypeOf<Value>::value)
      : bytes_(span(shape, strides) * sizeof(Value), 0xee) {
    const std::vector<std::int64_t> at = offsets(shape, strides);
    for (std::size_t i = 0; i < at.size(); ++i)
      std::memcpy(bytes_.data() + static_cast<std::size_t>(at[i]) * sizeof(Value), &values[i], sizeof(Value));
    if (!place.is_host() && !bytes_.empty()) {
      const DeviceGuard guard(place.device());
      block_ = allocate(bytes_.size());
      copy_async(block_, bytes_.data(), bytes_.size());
    }
    view_ = TensorView(place.is_host() ? bytes_.data() : block_, type, shape, strides, place);
  }
  template <class Value>
  Given(const std::vector<Value>& values, const Shape& shape, Place place) : Given(values, shape, rows(shape), place) {}
  ~Given() { deallocate(block_); }
  Given(Given&& other) noexcept
      : bytes_(std::move(other.bytes_)), block_(std::exchange(other.block_, nullptr)), view_(other.view_) {}
  Given(const Given&) = delete;

  [[nodiscard]] const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }

 private:
  std::vector<unsigned char> bytes_;
  void* block_ = nullptr;
  TensorView view_;
};

// All bytes from the first element to the last, when the current stream of the device is done.
inline std::vector<unsigned char> memory_of(const TensorView& tensor) {
  std::vector<unsigned char> bytes(span(tensor.shape, tensor.strides) * size_of(tensor.dtype));
  if (bytes.empty()) return bytes;
  if (tensor.place.is_host()) {
    std::memcpy(bytes.data(), tensor.first(), bytes.size());
  } else {
    const DeviceGuard guard(tensor.place.device());
    const Stream stream = current_stream();
    copy_async(bytes.data(), tensor.first(), bytes.size(), stream);
    stream.synchronize();
    simulated::host_access({{bytes.data(), bytes.size()}}, {});
  }
  return bytes;
}

// In the order of rows.
template <class Value>
std::vector<Value> values_of(const TensorView& tensor) {
  const std::vector<unsigned char> bytes = memory_of(tensor);
  std::vector<Value> values;
  for (const std::int64_t offset : offsets(tensor.shape, tensor.strides)) {
    values.emplace_back();
    std::memcpy(&values.back(), bytes.data() + static_cast<std::size_t>(offset) * sizeof(Value), sizeof(Value));
  }
  return values;
}

template <class Value = float>
std::vector<Value> counted(std::size_t count, int from = 1) {
  std::vector<Value> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<Value>(from + static_cast<int>(i));
  return values;
}

// The part of row-ordered values with index `first` to `first + length` along `dim`.
template <class Value>
std::vector<Value> part(const std::vector<Value>& values, const Shape& shape, std::size_t dim, std::int64_t first,
                        std::int64_t length) {
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  std::vector<Value> chosen;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t index = static_cast<std::int64_t>(i) / inner % shape[dim];
    if (index >= first && index < first + length) chosen.push_back(values[i]);
  }
  return chosen;
}

// A message of the error, or "" if nothing was thrown.
template <class Error, class Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace cistern::comm
