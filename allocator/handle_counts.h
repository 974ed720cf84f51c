#pragma once

// How many handles of each size there are, as a free run has them: a handle has a power of two of pages.
//
// Complexity: O(classes that there are). Thread safety: values.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cistern {

class HandleCounts {
 public:
  // A class is the logarithm of the pages; a bit for each.
  using Classes = std::uint32_t;
  static constexpr int kClasses = 31;

  [[nodiscard]] static int class_of(std::int32_t pages) { return std::countr_zero(static_cast<std::uint32_t>(pages)); }

  [[nodiscard]] Classes classes() const { return classes_; }
  [[nodiscard]] std::int32_t of(int size_class) const { return (classes_ >> size_class & 1) != 0 ? at(size_class) : 0; }
  void add(int size_class, std::int32_t count) {
    const std::int32_t sum = of(size_class) + count;
    counts_[static_cast<std::size_t>(size_class)] = sum;
    const Classes bit = Classes{1} << size_class;
    classes_ = sum != 0 ? classes_ | bit : classes_ & ~bit;
  }
  HandleCounts& operator+=(const HandleCounts& other) {
    other.for_each([this](int size_class, std::int32_t count) { add(size_class, count); });
    return *this;
  }
  HandleCounts& operator-=(const HandleCounts& other) {
    other.for_each([this](int size_class, std::int32_t count) { add(size_class, -count); });
    return *this;
  }
  // Calls visit(class, count) for each that there is.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (Classes left = classes_; left != 0; left &= left - 1) {
      const int size_class = std::countr_zero(left);
      visit(size_class, at(size_class));
    }
  }
  friend bool operator==(const HandleCounts& a, const HandleCounts& b) {
    bool is_equal = a.classes_ == b.classes_;
    a.for_each([&](int size_class, std::int32_t count) { is_equal = is_equal && b.of(size_class) == count; });
    return is_equal;
  }

 private:
  [[nodiscard]] std::int32_t at(int size_class) const { return counts_[static_cast<std::size_t>(size_class)]; }

  Classes classes_ = 0;
  std::array<std::int32_t, kClasses> counts_;  // of `classes_` alone
};

}  // namespace cistern
