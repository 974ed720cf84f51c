#pragma once

// Formatting into text of fixed size, and such text as an argument of fmt. Neither allocates.

#include <cistern/fixed_text.h>

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace cistern {

// Appends what fits.
template <std::size_t Capacity, class... Arguments>
void append(FixedText<Capacity>& text, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  char piece[Capacity];
  const auto end = fmt::format_to_n(piece, Capacity - text.size(), format, std::forward<Arguments>(arguments)...);
  text.append({piece, static_cast<std::size_t>(end.out - piece)});
}

}  // namespace cistern

template <std::size_t Capacity>
struct fmt::formatter<cistern::FixedText<Capacity>> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const cistern::FixedText<Capacity>& text, Context& context) const {
    return fmt::formatter<std::string_view>::format(text.view(), context);
  }
};
