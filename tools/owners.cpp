#include "tools/owners.h"

#include <fmt/format.h>

namespace cistern {
namespace {

// Texts of a file may hold any character: their lengths part them.
std::string key_of(const FrameInfo& frame) {
  return fmt::format("{}:{}{}:{}{}", frame.name.size(), frame.name, frame.filename.size(), frame.filename, frame.line);
}

}  // namespace

std::uint32_t OwnerTable::frame_number(const SharedFrame& frame) {
  const auto [found, is_new] = frame_numbers_.emplace(key_of(frame), static_cast<std::uint32_t>(frames_.size()));
  if (is_new) frames_.push_back(frame);
  return found->second;
}

std::uint32_t OwnerTable::number_of(const StackInfo& stack) {
  if (stack.empty()) return 0;
  FrameNumbers frames;
  frames.reserve(stack.size());
  for (const SharedFrame& frame : stack) frames.push_back(frame_number(frame));
  const auto [found, is_new] =
      stack_numbers_.emplace(std::move(frames), static_cast<std::uint32_t>(stacks_.size() + 1));
  if (is_new) stacks_.push_back(&found->first);
  return found->second;
}

std::uint32_t OwnerTable::number_of(std::string_view tag) {
  if (tag.empty()) return 0;
  const auto [found, is_new] = tag_numbers_.emplace(tag, static_cast<std::uint32_t>(tags_.size() + 1));
  if (is_new) tags_.push_back(&found->first);
  return found->second;
}

StackInfo OwnerTable::stack(std::uint32_t number) const {
  StackInfo stack;
  if (number == 0) return stack;
  for (const std::uint32_t frame : *stacks_[number - 1]) stack.push_back(frames_[frame]);
  return stack;
}

std::string_view OwnerTable::tag(std::uint32_t number) const {
  return number == 0 ? std::string_view() : *tags_[number - 1];
}

std::uint32_t SnapshotOwners::stack_number(StackIndex stack) {
  if (stack == kNoStack) return 0;
  const auto index = static_cast<std::size_t>(stack);
  if (!stacks_[index].known) stacks_[index] = {true, table_.number_of(snapshot_.stacks[index])};
  return stacks_[index].number;
}

std::uint32_t SnapshotOwners::tag_number(TagIndex tag) {
  if (tag == kNoTag) return 0;
  const auto index = static_cast<std::size_t>(tag);
  if (!tags_[index].known) tags_[index] = {true, table_.number_of(std::string_view(snapshot_.tags[index]))};
  return tags_[index].number;
}

}  // namespace cistern
