#pragma once

// TextTable: the texts that users attach to a history's entries, each once, for as long as an
// entry or the user refers to it.
//
// Not thread-safe: the heap that writes holds its lock around every call.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cistern {

using TextId = std::uint16_t;  // 0: none
inline constexpr TextId kNoText = 0;

class TextTable {
 public:
  // The text's number, counted once more; kNoText for an empty one, or where 65,535 others are held.
  // Throws std::bad_alloc, unchanged.
  [[nodiscard]] TextId intern(std::string_view text);
  void keep(TextId id) noexcept { ++texts_[id].references; }
  void let_go(TextId id) noexcept;
  [[nodiscard]] const std::string& text(TextId id) const noexcept { return texts_[id].text; }

  // All texts by number; "" for one that is free. Throws std::bad_alloc.
  [[nodiscard]] std::vector<std::string> copy() const;

 private:
  struct Text {
    std::string text;
    std::uint64_t references = 0;
  };
  std::vector<Text> texts_ = std::vector<Text>(1);  // by number
  std::vector<TextId> free_;
  std::unordered_map<std::string, TextId> numbers_;
};

}  // namespace cistern
