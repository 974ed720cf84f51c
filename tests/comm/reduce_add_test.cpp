// Sums.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <complex>
#include <limits>
#include <random>

#include "tests/comm/comm_case.h"

namespace cistern::comm {
namespace {

using ::testing::HasSubstr;

class ReduceAdd : public CommCase {
 protected:
  // The sum of three, on devices 0, 1 and 2 and twice on device 2, as `expected` adds two values.
  template <class Value, class Sum>
  static void expect_sums(const std::vector<Value>& pool, DType type, const Sum& sum) {
    std::mt19937 random(7);
    const auto draw = [&](std::size_t count) {
      std::vector<Value> values(count);
      for (Value& value : values) value = pool[random() % pool.size()];
      return values;
    };
    for (const auto& [shape, strides] : {std::pair<Shape, Shape>{{300}, {1}}, {{4, 5, 3}, {40, 2, 12}}, {{}, {}}}) {
      const std::size_t count = offsets(shape, strides).size();
      std::vector<std::vector<Value>> values;
      std::vector<Given> given;
      for (const int device : {1, 0, 2, 2}) {
        values.push_back(draw(count));
        given.emplace_back(values.back(), shape, strides, device, type);
      }
      for (const int destination : {0, 2, 3}) {
        const Tensor total = reduce_add(std::vector<TensorView>(given.begin(), given.end()), destination);
        EXPECT_EQ(total.view().place, Place(destination));
        EXPECT_EQ(total.view().dtype, type);
        const std::vector<Value> found = values_of<Value>(total);
        for (std::size_t i = 0; i < count; ++i) {
          Value expected = values[0][i];
          for (std::size_t k = 1; k < values.size(); ++k) expected = sum(expected, values[k][i]);
          ASSERT_EQ(0, std::memcmp(&found[i], &expected, sizeof expected)) << to_string(type) << " at " << i;
        }
      }
    }
  }
  template <class Value>
  static void expect_plain_sums() {
    std::vector<Value> pool{0, 1, 2, 3, 77, std::numeric_limits<Value>::max(), std::numeric_limits<Value>::min()};
    if constexpr (std::is_signed_v<Value>) pool.push_back(static_cast<Value>(-5));
    expect_sums<Value>(pool, TypeOf<Value>::value, [](Value a, Value b) {
      if constexpr (std::is_integral_v<Value>)
        return static_cast<Value>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));  // modulo 2^n
      else
        return a + b;
    });
  }
};

TEST_F(ReduceAdd, AddsIntegersOfAllSizes) {
  expect_plain_sums<std::int8_t>();
  expect_plain_sums<std::uint8_t>();
  expect_plain_sums<std::int16_t>();
  expect_plain_sums<std::uint16_t>();
  expect_plain_sums<std::int32_t>();
  expect_plain_sums<std::uint32_t>();
  expect_plain_sums<std::int64_t>();
  expect_plain_sums<std::uint64_t>();
}

TEST_F(ReduceAdd, AddsFloatsInTheOrderOfTheInputs) {
  const std::vector<float> floats{0.1F, -0.1F, 1e10F, -1e10F, 1e-40F, 3.25F};
  expect_sums<float>(floats, DType::float32, [](float a, float b) { return a + b; });
  const std::vector<double> doubles{0.1, -0.1, 1e300, -1e300, 1e-310, 3.25};
  expect_sums<double>(doubles, DType::float64, [](double a, double b) { return a + b; });
}

TEST_F(ReduceAdd, AddsComplexNumbersAndTruths) {
  using Complex = std::complex<float>;
  expect_sums<Complex>({{1, 2}, {0.1F, -7}, {1e9F, 0}}, DType::complex64, [](Complex a, Complex b) { return a + b; });
  using Wide = std::complex<double>;
  expect_sums<Wide>({{1, 2}, {0.1, -7}, {1e90, 0}}, DType::complex128, [](Wide a, Wide b) { return a + b; });
  expect_sums<std::uint8_t>({0, 0, 0, 1}, DType::boolean,
                            [](std::uint8_t a, std::uint8_t b) { return static_cast<std::uint8_t>(a | b); });
}

#ifdef __FLT16_MANT_DIG__
TEST_F(ReduceAdd, AddsHalvesAsTheCompilersOwnDo) {
  std::vector<std::uint16_t> pool{0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00,
                                  0x3c01, 0x7bff, 0xfbff, 0x7c00, 0x1234, 0xb456, 0x6800, 0x4248};
  expect_sums<std::uint16_t>(pool, DType::float16, [](std::uint16_t a, std::uint16_t b) {
    _Float16 left = 0;
    _Float16 right = 0;
    std::memcpy(&left, &a, 2);
    std::memcpy(&right, &b, 2);
    const auto sum = static_cast<_Float16>(static_cast<float>(left) + static_cast<float>(right));
    std::uint16_t bits = 0;
    std::memcpy(&bits, &sum, 2);
    return bits;
  });
}
#endif

// The nearest of the two bfloat16 next to a double, the even one of two as near.
std::uint16_t nearest_bfloat(double value) {
  const auto narrowed = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrowed, 4);
  const auto as_double = [](std::uint32_t upper) {
    const std::uint32_t whole = upper << 16;
    float number = 0;
    std::memcpy(&number, &whole, 4);
    return static_cast<double>(number);
  };
  const std::uint32_t below = bits >> 16;  // towards 0
  const double under = std::abs(narrowed - as_double(below));
  const double over = std::abs(as_double(below + 1) - narrowed);
  return static_cast<std::uint16_t>(under < over || (under == over && below % 2 == 0) ? below : below + 1);
}

TEST_F(ReduceAdd, AddsBfloatsToTheNearest) {
  const std::vector<std::uint16_t> pool{0x0000, 0x3f80, 0x3f81, 0xbf80, 0x4000, 0x4049, 0x3dcd, 0xc2f7, 0x0012, 0x4b00};
  expect_sums<std::uint16_t>(pool, DType::bfloat16, [](std::uint16_t a, std::uint16_t b) {
    const auto number = [](std::uint16_t upper) {
      const std::uint32_t whole = std::uint32_t{upper} << 16;
      float value = 0;
      std::memcpy(&value, &whole, 4);
      return value;
    };
    return nearest_bfloat(number(a) + number(b));
  });
}

TEST_F(ReduceAdd, KeepsTheOrderOfDimensionsWithoutGaps) {
  const Given first(counted(6), {2, 3}, {2, 10}, 0);
  const Given second(counted(6), {2, 3}, {2, 10}, 1);
  const Tensor sum = reduce_add({first, second});
  EXPECT_EQ(sum.view().strides, (Shape{1, 2}));
  EXPECT_EQ(values_of<float>(sum), (std::vector<float>{2, 4, 6, 8, 10, 12}));
}

TEST_F(ReduceAdd, GoesToTheCurrentDeviceByDefaultAndLeavesTheInputs) {
  const Given first(counted(5), {5}, 0);
  const Given second(counted(5, 10), {5}, 1);
  const DeviceGuard guard(1);
  const Tensor sum = reduce_add({first, second});
  EXPECT_EQ(sum.view().place, Place(1));
  EXPECT_EQ(values_of<float>(sum), (std::vector<float>{11, 13, 15, 17, 19}));
  EXPECT_EQ(values_of<float>(first), counted(5));
  EXPECT_EQ(values_of<float>(second), counted(5, 10));
  const Tensor alone = reduce_add({second}, 1);
  EXPECT_NE(alone.data(), second.view().data);
  EXPECT_EQ(values_of<float>(alone), counted(5, 10));
  const TensorView none(nullptr, DType::float32, {0}, 0);
  EXPECT_EQ(reduce_add({none, none}).view().elements(), 0);
}

TEST_F(ReduceAdd, RefusesInputsThatDiffer) {
  const Given first(counted(6), {2, 3}, 0);
  const Given shaped(counted(6), {3, 2}, 1);
  const Given typed(counted<std::int32_t>(6), {2, 3}, 1);
  const Given turned(counted(6), {2, 3}, {1, 2}, 1);
  const Given on_host(counted(6), {2, 3}, Place::host());
  const auto refused = [](const std::vector<TensorView>& inputs) {
    return error_of<InvalidArgument>([&] { static_cast<void>(reduce_add(inputs)); });
  };
  EXPECT_THAT(refused({}), HasSubstr("no inputs"));
  EXPECT_THAT(refused({first, shaped}), HasSubstr("input 1 of shape [3, 2]: expected [2, 3]"));
  EXPECT_THAT(refused({first, typed}), HasSubstr("input 1 of int32: expected float32"));
  EXPECT_THAT(refused({first, turned}), HasSubstr("input 1 of strides [1, 2]: expected the layout of input 0, [3, 1]"));
  EXPECT_THAT(refused({first, on_host}), HasSubstr("input 1 is on the host"));
  EXPECT_THROW(static_cast<void>(reduce_add({first}, 4)), InvalidArgument);
  const TensorView column(first.view().data, DType::float32, {2, 1}, {3, 1}, 0);
  const TensorView other(first.view().data, DType::float32, {2, 1}, {3, 77}, 0);  // a size of 1 has no stride
  EXPECT_EQ(values_of<float>(reduce_add({column, other})), (std::vector<float>{2, 8}));
}

}  // namespace
}  // namespace cistern::comm
