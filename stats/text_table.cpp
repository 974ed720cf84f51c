#include "stats/text_table.h"

#include <limits>
#include <utility>

namespace cistern {

TextId TextTable::intern(std::string_view text) {
  if (text.empty()) return kNoText;
  std::string key(text);
  if (const auto known = numbers_.find(key); known != numbers_.end()) {
    keep(known->second);
    return known->second;
  }
  if (free_.empty()) {
    if (texts_.size() > std::numeric_limits<TextId>::max()) return kNoText;
    free_.reserve(texts_.size() + 1);  // so that every number can be given back
    texts_.emplace_back();
    free_.push_back(static_cast<TextId>(texts_.size() - 1));
  }
  const TextId id = free_.back();
  std::string kept = key;
  numbers_.emplace(std::move(key), id);
  texts_[id] = {std::move(kept), 1};
  free_.pop_back();
  return id;
}

void TextTable::let_go(TextId id) noexcept {
  Text& text = texts_[id];
  if (--text.references != 0) return;
  numbers_.erase(text.text);
  text.text = std::string();
  free_.push_back(id);
}

std::vector<std::string> TextTable::copy() const {
  std::vector<std::string> texts;
  texts.reserve(texts_.size());
  for (const Text& text : texts_) texts.push_back(text.text);
  return texts;
}

}  // namespace cistern
