// What a history counts of stacks and texts, recomputed by walking.

#include "stats/history.h"
#include "stats/invariant.h"

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

namespace cistern {
namespace {

[[noreturn]] void fail(std::string_view what, std::size_t number, std::uint64_t counted, std::uint64_t walked) {
  throw std::logic_error(fmt::format("cistern: broken invariant: {} {} is counted {} times, a walk finds {}", what,
                                     number, counted, walked));
}

}  // namespace

void RawStackTable::check(const std::vector<std::uint64_t>& held, std::uint64_t others) const {
  std::uint64_t more = 0;
  std::size_t known = 0, bytes = 0, unused_bytes = 0;
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    const Stack& stack = stacks_[i];
    const std::uint64_t walked = i < held.size() ? held[i] : 0;
    if (stack.references < walked) fail("stack", i + 1, stack.references, walked);
    more += stack.references - walked;
    if (more > others) fail("stack", i + 1, stack.references, walked);
    if (!stack.frames) {
      require(stack.references == 0, "a stack that is gone is not referred to");
      continue;
    }
    ++known;
    bytes += bytes_of(stack);
    if (stack.references == 0) unused_bytes += bytes_of(stack);
    require(index_[place_of({stack.frames.get(), stack.depth, stack.hash})] == i + 1, "a stack is found by its frames");
  }
  require(more == others, "requests under way refer to their stacks");
  require(known + free_.size() == stacks_.size(), "every stack's number is in use or free");
  require(known == known_ && bytes == bytes_, "what all stacks take");
  require(unused_bytes == unused_bytes_, "what stacks take that nothing refers to");
}

void TextTable::check(const std::vector<std::uint64_t>& held, std::uint64_t others) const {
  std::uint64_t more = 0;
  std::size_t known = 0;
  for (std::size_t id = 1; id < texts_.size(); ++id) {
    const Text& text = texts_[id];
    if (text.references < held[id]) fail("text", id, text.references, held[id]);
    more += text.references - held[id];
    if (more > others) fail("text", id, text.references, held[id]);
    if (text.references == 0) continue;
    ++known;
    const auto number = numbers_.find(*text.text);
    require(number != numbers_.end() && number->second == id, "a text is found by what it says");
  }
  require(more == others, "texts that are prepared are held");
  require(known == numbers_.size() && known + free_.size() + 1 == texts_.size(),
          "every text's number is in use or free");
}

void DeviceHistory::check(std::vector<std::uint64_t> held, std::uint64_t requests) const {
  std::vector<std::uint64_t> texts(texts_.size());
  require(text_ < texts.size(), "the current text is in the table");
  if (text_ != kNoText) ++texts[text_];
  held.resize(std::max(held.size(), stack_count()));
  ring_.for_each([&](const HistoryEntry& entry) {
    require(entry.stack <= held.size() && entry.text < texts.size(), "entries refer to what the tables have");
    if (entry.stack != kNoStackId) ++held[entry.stack - 1];
    if (entry.text != kNoText) ++texts[entry.text];
  });
  require(held.size() == stack_count(), "blocks and segments refer to what the table of stacks has");
  // Of a ring that is being given up, entries still hold what they refer to.
  if (retiring_ != 0) return;
  stacks_.check(held, requests);
  texts_.check(texts, prepared_texts_);
}

}  // namespace cistern
