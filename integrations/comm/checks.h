#pragma once

// What tensors must be before anything is queued or allocated. All throw InvalidArgument, naming `name`.

#include <cistern/tensor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cistern::comm {

inline constexpr std::size_t kMostDimensions = 64;

// The dimension that a number means: negative ones count from the last.
[[nodiscard]] std::size_t wrapped_dimension(int dim, std::size_t dimensions);
// The index of its device; -1: on the host. Loads the driver.
[[nodiscard]] int device_index(const TensorView& tensor);

// Sizes and strides are as many, not negative, and address no more than there is.
void check_layout(const TensorView& tensor, std::string_view name);
// And its memory is where it says.
void check_tensor(const TensorView& tensor, std::string_view name);
void check_on_device(const TensorView& tensor, std::string_view name);
// What is written: on a device unless the host is allowed, of this type, and no two elements are one.
void check_out(const TensorView& out, DType type, bool may_be_on_host, std::string_view name);
void check_shape(const TensorView& tensor, const std::vector<std::int64_t>& expected, std::string_view name);
// Those of `tensor`, but for that of `dim`.
void check_shape_but(const TensorView& tensor, const std::vector<std::int64_t>& expected, std::size_t dim,
                     std::string_view name);

[[nodiscard]] std::string place_text(int device);  // -1: the host
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);
[[nodiscard]] std::string numbered(std::string_view name, std::size_t index);

}  // namespace cistern::comm
