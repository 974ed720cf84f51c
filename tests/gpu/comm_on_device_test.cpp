// The kernels of cistern against the host's arithmetic, bit for bit, on one device; and the collectives on all there
// are.

#include <cistern/cistern.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "integrations/comm/exchange.h"
#include "runtime/strided_values.h"

namespace cistern {
namespace {

constexpr std::int64_t kElements = 20000;

// Random bits, but no NaN: which one a sum of two is, is the machine's affair.
std::vector<unsigned char> random_elements(DType type, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(kElements) * size_of(type));
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  if (type == DType::boolean)
    for (unsigned char& byte : bytes) byte &= 1;
  const bool is_half = type == DType::float16 || type == DType::bfloat16;
  const bool is_double = type == DType::float64 || type == DType::complex128;
  const bool is_float = type == DType::float32 || type == DType::complex64;
  const std::size_t size = is_half ? 2 : is_double ? 8 : 4;
  if (is_half || is_float || is_double)  // one bit of the exponent is 0: finite, and so is any sum of two
    for (std::size_t i = size - 1; i < bytes.size(); i += size) bytes[i] &= 0xbf;
  return bytes;
}

TEST(CommOnDevice, SumsAndCopiesAreTheHosts) {
  for (int t = 0; t <= static_cast<int>(DType::complex128); ++t) {
    const auto type = static_cast<DType>(t);
    std::vector<unsigned char> left = random_elements(type, 1);
    const std::vector<unsigned char> right = random_elements(type, 2);
    const std::vector<std::int64_t> shape{100, 8, 25};
    const std::vector<std::int64_t> turned{8, 1, 800};
    TensorView host[] = {{left.data(), type, shape, turned, Place::host()},
                         {const_cast<unsigned char*>(right.data()), type, shape, turned, Place::host()}};
    const Tensor first = Tensor::empty({kElements}, type);
    const Tensor second = Tensor::empty({kElements}, type);
    copy_async(first.data(), left.data(), left.size());
    copy_async(second.data(), right.data(), right.size());
    const TensorView views[] = {{first.view().data, type, shape, turned, Device(0)},
                                {second.view().data, type, shape, turned, Device(0)}};
    const Tensor sum = comm::reduce_add({views[0], views[1]});
    const Tensor rows = comm::gather({sum}, 1, "cpu");  // packed by the device
    StridedWork work = comm::work_of(StridedOperation::add, host[0], host[1]);
    run_strided(work);
    std::vector<unsigned char> expected(left.size());
    work = comm::work_of(StridedOperation::copy, TensorView(expected.data(), type, shape, Place::host()), host[0]);
    run_strided(work);
    EXPECT_EQ(0, std::memcmp(rows.data(), expected.data(), expected.size())) << to_string(type);
  }
}

TEST(CommOnDevice, AllDevicesTakePart) {
  std::vector<float> values(6000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const TensorView host(values.data(), DType::float32, {60, 100}, Place::host());
  std::vector<Device> devices;
  for (int device = 0; device < device_count(); ++device) devices.emplace_back(device);
  const std::vector<Tensor> copies = comm::broadcast(host, devices);
  const Tensor sum = comm::reduce_add({copies.begin(), copies.end()});
  const std::vector<Tensor> parts = comm::scatter(sum, devices, std::nullopt, 1);
  const Tensor joined = comm::gather({parts.begin(), parts.end()}, 1, "cpu");
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(static_cast<const float*>(joined.data())[i], values[i] * static_cast<float>(devices.size()));
}

}  // namespace
}  // namespace cistern
