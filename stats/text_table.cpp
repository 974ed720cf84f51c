#include "stats/text_table.h"

#include <limits>

namespace cistern {

TextId TextTable::intern(const SharedText& text) {
  if (text == nullptr) return kNoText;
  if (const auto known = numbers_.find(*text); known != numbers_.end()) {
    keep(known->second);
    return known->second;
  }
  if (free_.empty()) {
    if (texts_.size() > std::numeric_limits<TextId>::max()) return kNoText;
    // So that every number can be given back.
    if (free_.capacity() <= texts_.size()) free_.reserve(2 * texts_.size() + 1);
    texts_.emplace_back();
    free_.push_back(static_cast<TextId>(texts_.size() - 1));
  }
  const TextId id = free_.back();
  numbers_.emplace(*text, id);
  texts_[id] = {text, 1};
  free_.pop_back();
  return id;
}

void TextTable::let_go(TextId id) noexcept {
  Text& text = texts_[id];
  if (--text.references != 0) return;
  numbers_.erase(*text.text);
  text.text.reset();
  free_.push_back(id);
}

void TextTable::copy_to(std::vector<SharedText>& texts) const {
  texts.clear();
  texts.reserve(texts_.size());
  for (const Text& text : texts_) texts.push_back(text.text);
}

}  // namespace cistern
