#pragma once

// Text stored in place: what must be said when there is no host memory to say it with.
//
// Thread safety: as a value's.

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

namespace cistern {

// At most Capacity bytes of text; what does not fit is cut off. Never allocates, never throws.
template <std::size_t Capacity>
class FixedText {
 public:
  FixedText() noexcept = default;
  FixedText(std::string_view text) noexcept { append(text); }
  FixedText(const char* text) noexcept : FixedText(std::string_view(text)) {}
  FixedText(const std::string& text) noexcept : FixedText(std::string_view(text)) {}

  FixedText& append(std::string_view text) noexcept {
    const std::size_t bytes = std::min(text.size(), Capacity - size_);
    std::copy_n(text.data(), bytes, data_ + size_);
    size_ += bytes;
    data_[size_] = '\0';
    return *this;
  }
  void clear() noexcept {
    size_ = 0;
    data_[0] = '\0';
  }

  [[nodiscard]] static constexpr std::size_t capacity() noexcept { return Capacity; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const char* c_str() const noexcept { return data_; }
  [[nodiscard]] std::size_t find(std::string_view part) const noexcept { return view().find(part); }
  [[nodiscard]] std::string_view view() const noexcept { return {data_, size_}; }
  operator std::string_view() const noexcept { return view(); }

  friend bool operator==(const FixedText& a, std::string_view b) noexcept { return a.view() == b; }
  friend bool operator!=(const FixedText& a, std::string_view b) noexcept { return a.view() != b; }
  friend std::ostream& operator<<(std::ostream& out, const FixedText& text) { return out << text.view(); }

 private:
  std::size_t size_ = 0;
  char data_[Capacity + 1] = {};
};

}  // namespace cistern
