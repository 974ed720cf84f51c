#pragma once

// TextTable: the texts that users attach to a history's entries, each once, for as long as an
// entry or the user refers to it.
//
// Not thread-safe: the heap that writes holds its lock around every call. The texts themselves never
// change: a snapshot shares them, and reads them without the lock.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cistern {

using TextId = std::uint16_t;  // 0: none
inline constexpr TextId kNoText = 0;

// Never empty; null is no text.
using SharedText = std::shared_ptr<const std::string>;
// Throws std::bad_alloc.
[[nodiscard]] inline SharedText share_text(std::string_view text) {
  return text.empty() ? nullptr : std::make_shared<const std::string>(text);
}

class TextTable {
 public:
  // The text's number, counted once more; kNoText for none, or where 65,535 others are held.
  // Throws std::bad_alloc, unchanged.
  [[nodiscard]] TextId intern(const SharedText& text);
  void keep(TextId id) noexcept { ++texts_[id].references; }
  void let_go(TextId id) noexcept;
  // "" of kNoText.
  [[nodiscard]] std::string_view text(TextId id) const noexcept {
    const SharedText& text = texts_[id].text;
    return text == nullptr ? std::string_view() : std::string_view(*text);
  }

  // Verifies what is counted. `held`: by number how often each text is referred to, but for as many
  // references as `others` says, each to any text. Throws std::logic_error naming what differs.
  void check(const std::vector<std::uint64_t>& held, std::uint64_t others) const;

  // All texts by number; null for one that is free. Throws std::bad_alloc; allocates nothing where
  // `texts` has capacity for size() of them.
  void copy_to(std::vector<SharedText>& texts) const;
  [[nodiscard]] std::size_t size() const noexcept { return texts_.size(); }

 private:
  struct Text {
    SharedText text;
    std::uint64_t references = 0;
  };
  std::vector<Text> texts_ = std::vector<Text>(1);  // by number
  std::vector<TextId> free_;
  std::unordered_map<std::string_view, TextId> numbers_;  // keys in `texts_`
};

}  // namespace cistern
