#pragma once

// The stacks of a snapshot's file, each read once.
//
// Not thread-safe.

#include <cistern/snapshot.h>

#include <vector>

#include "tools/place.h"

namespace cistern {

class FileStacks {
 public:
  // Fills `stacks` with those that the file at `top` lists, in their order, and with others as index_of() meets them.
  // Both must outlive this. `modules`: how many it lists, which frames name by index.
  FileStacks(const Place& top, std::size_t modules, std::vector<StackInfo>& stacks);

  // The index of a record's `frames`; kNoStack where it has none or an empty list. Throws as Place::fail does.
  [[nodiscard]] StackIndex index_of(const Place& record);

 private:
  StackIndex add(const Place& frames);
  [[nodiscard]] FrameInfo read_frame(const Place& place) const;

  std::vector<StackInfo>& stacks_;
  std::size_t modules_;
  bool has_modules_;
  std::optional<Value> frames_name_;
  std::vector<StackIndex> indices_;  // by the list's number in the document
};

}  // namespace cistern
