#pragma once

// Elements that lie apart: copied to where they lie otherwise, or added to what is there.
//
// Read by the host's compilers and by the one that makes the kernels (strided_kernels.cu): no more than
// plain data and constexpr functions, so that both do the same bit for bit.

#include <cstdint>

namespace cistern {

enum class StridedOperation : std::uint32_t { copy, add };

// What an element is to the sum. Copies know the four unsigned ones alone.
enum class Element : std::uint32_t { u8, u16, u32, u64, f16, bf16, f32, f64, boolean };
inline constexpr std::uint32_t kElementCount = 9;

constexpr std::uint32_t size_of(Element element) {
  constexpr std::uint32_t sizes[kElementCount] = {1, 2, 4, 8, 2, 2, 4, 8, 1};
  return sizes[static_cast<std::uint32_t>(element)];
}

// 64 dimensions, and one more for numbers that are two elements.
inline constexpr std::uint32_t kMaxRank = 65;

// Element i of the destination becomes, or is increased by, element i of the source: i counts through the
// extents, the last one fastest. Strides are in elements. No two elements of the destination are one.
struct StridedWork {
  StridedOperation operation = StridedOperation::copy;
  Element element = Element::u8;
  std::uint32_t rank = 0;
  std::uint64_t count = 0;  // of all elements
  std::uint64_t destination = 0;
  std::uint64_t source = 0;
  std::uint64_t extents[kMaxRank] = {};
  std::int64_t destination_strides[kMaxRank] = {};
  std::int64_t source_strides[kMaxRank] = {};
};

struct StridedOffsets {
  std::int64_t destination = 0;
  std::int64_t source = 0;
};

constexpr StridedOffsets offsets_at(const StridedWork& work, std::uint64_t index) {
  StridedOffsets offsets;
  for (std::uint32_t d = work.rank; d > 1; --d) {
    const std::uint64_t whole = index / work.extents[d - 1];
    const auto rest = static_cast<std::int64_t>(index - whole * work.extents[d - 1]);
    offsets.destination += rest * work.destination_strides[d - 1];
    offsets.source += rest * work.source_strides[d - 1];
    index = whole;
  }
  if (work.rank > 0) {
    offsets.destination += static_cast<std::int64_t>(index) * work.destination_strides[0];
    offsets.source += static_cast<std::int64_t>(index) * work.source_strides[0];
  }
  return offsets;
}

// Halves are added as floats and rounded to the nearest, ties to even; in integers, for every machine.
constexpr float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  std::uint32_t exponent = half >> 10 & 0x1fU;
  std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1f) return __builtin_bit_cast(float, sign | 0x7f800000U | fraction << 13);
  if (exponent == 0) {
    if (fraction == 0) return __builtin_bit_cast(float, sign);
    for (exponent = 1; (fraction & 0x400U) == 0; --exponent) fraction <<= 1;
    fraction &= 0x3ffU;
  }
  return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
}

// The upper part of `bits`, without its lowest `shift`, to the nearest, ties to even.
constexpr std::uint32_t rounded_off(std::uint32_t bits, std::uint32_t shift) {
  const std::uint32_t kept = bits >> shift;
  return (bits + (std::uint32_t{1} << (shift - 1)) - 1 + (kept & 1U)) >> shift;
}

constexpr std::uint16_t half_of_float(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // from 65,520 on: infinity
  if (magnitude >= 0x38800000U) return static_cast<std::uint16_t>(sign | rounded_off(magnitude - 0x38000000U, 13));
  if (magnitude < 0x33000000U) return static_cast<std::uint16_t>(sign);  // below half of the smallest
  const std::uint32_t shift = 126 - (magnitude >> 23);
  return static_cast<std::uint16_t>(sign | rounded_off((magnitude & 0x7fffffU) | 0x800000U, shift));
}

constexpr float float_of_bfloat(std::uint16_t value) { return __builtin_bit_cast(float, std::uint32_t{value} << 16); }

constexpr std::uint16_t bfloat_of_float(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// Sums of each element; Value is how it lies in memory. Integers wrap; truths are joined by "or".
struct PlainSum {
  template <class Value>
  constexpr Value operator()(Value a, Value b) const {
    return static_cast<Value>(a + b);
  }
};
struct HalfSum {
  constexpr std::uint16_t operator()(std::uint16_t a, std::uint16_t b) const {
    return half_of_float(float_of_half(a) + float_of_half(b));
  }
};
struct BfloatSum {
  constexpr std::uint16_t operator()(std::uint16_t a, std::uint16_t b) const {
    return bfloat_of_float(float_of_bfloat(a) + float_of_bfloat(b));
  }
};
struct AnyOf {
  constexpr std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a != 0 || b != 0 ? 1 : 0; }
};
struct TheSecond {
  template <class Value>
  constexpr Value operator()(Value, Value b) const {
    return b;
  }
};

}  // namespace cistern
