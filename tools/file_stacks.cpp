#include "tools/file_stacks.h"

namespace cistern {

FileStacks::FileStacks(const DocumentPlace& top, std::size_t modules, TextCopies& texts, std::vector<StackInfo>& stacks)
    : stacks_(stacks),
      modules_(modules),
      has_modules_(top.has("modules")),
      frames_name_(top.document().find_string("frames")),
      texts_(texts),
      indices_(top.document().containers(), kNoStack) {
  if (top.has("stacks")) top.member("stacks").for_each([this](const DocumentPlace& stack) { add(stack); });
}

StackIndex FileStacks::index_of(const DocumentPlace& record) {
  const Value* frames = frames_name_ ? record.document().find(record.value(), *frames_name_) : nullptr;
  if (frames == nullptr) return kNoStack;
  const DocumentPlace place = record.inside("frames", *frames);
  if (place.size() == 0) return kNoStack;
  const StackIndex known = indices_[record.document().container_number(*frames)];
  return known != kNoStack ? known : add(place);
}

StackIndex FileStacks::add(const DocumentPlace& frames) {
  StackInfo stack;
  stack.reserve(frames.size());
  frames.for_each([&](const DocumentPlace& frame) { stack.push_back(frame_at(frame)); });
  stacks_.push_back(std::move(stack));
  return indices_[frames.document().container_number(frames.value())] = static_cast<StackIndex>(stacks_.size() - 1);
}

// Stacks of pickles share their frames.
const SharedFrame& FileStacks::frame_at(const DocumentPlace& place) {
  const std::size_t number = place.document().container_number(place.object().value());
  const auto known = frames_.find(number);
  return known != frames_.end() ? known->second : frames_.emplace(number, read_frame(place)).first->second;
}

// Where the code was is told in files with a list of modules, which are ours.
FrameInfo FileStacks::read_frame(const DocumentPlace& place) {
  FrameInfo frame{texts_.of(place.member("filename")), place.member("line").integer(), texts_.of(place.member("name"))};
  if (!has_modules_) return frame;
  if (place.has("address")) frame.address = place.member("address").address();
  if (!place.has("module")) return frame;
  frame.module = static_cast<std::int32_t>(place.member("module").integer(-1, static_cast<std::int64_t>(modules_) - 1));
  if (frame.module >= 0) frame.offset = place.member("offset").address();
  return frame;
}

}  // namespace cistern
