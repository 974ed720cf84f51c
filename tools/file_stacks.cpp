#include "tools/file_stacks.h"

namespace cistern {
namespace {

FrameInfo read_frame(const Place& place) {
  static_cast<void>(place.object());
  return {std::string(place.member("filename").text()), place.member("line").integer(),
          std::string(place.member("name").text())};
}

}  // namespace

FileStacks::FileStacks(const Place& top, std::vector<StackInfo>& stacks)
    : stacks_(stacks),
      frames_name_(top.document().find_string("frames")),
      indices_(top.document().containers(), kNoStack) {
  if (top.has("stacks")) top.member("stacks").for_each([this](const Place& stack) { add(stack); });
}

StackIndex FileStacks::index_of(const Place& record) {
  const Value* frames = frames_name_ ? record.document().find(record.value(), *frames_name_) : nullptr;
  if (frames == nullptr) return kNoStack;
  const Place place = record.inside("frames", *frames);
  if (place.size() == 0) return kNoStack;
  const StackIndex known = indices_[record.document().container_number(*frames)];
  return known != kNoStack ? known : add(place);
}

StackIndex FileStacks::add(const Place& frames) {
  StackInfo stack;
  stack.reserve(frames.size());
  frames.for_each([&stack](const Place& frame) { stack.push_back(read_frame(frame)); });
  stacks_.push_back(std::move(stack));
  return indices_[frames.document().container_number(frames.value())] = static_cast<StackIndex>(stacks_.size() - 1);
}

}  // namespace cistern
