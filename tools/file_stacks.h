#pragma once

// The stacks of a snapshot's file, each read once.
//
// Not thread-safe.

#include <cistern/snapshot.h>

#include <unordered_map>
#include <vector>

#include "tools/document_place.h"
#include "tools/seeded_hash.h"
#include "tools/text_copies.h"

namespace cistern {

class FileStacks {
 public:
  // Fills `stacks` with those that the file at `top` lists, in their order, and with others as index_of() meets them.
  // All must outlive this. `modules`: how many it lists, which frames name by index.
  FileStacks(const DocumentPlace& top, std::size_t modules, TextCopies& texts, std::vector<StackInfo>& stacks);

  // The index of a record's `frames`; kNoStack where it has none or an empty list. Throws as DocumentPlace::fail does.
  [[nodiscard]] StackIndex index_of(const DocumentPlace& record);

 private:
  StackIndex add(const DocumentPlace& frames);
  [[nodiscard]] const SharedFrame& frame_at(const DocumentPlace& place);
  [[nodiscard]] FrameInfo read_frame(const DocumentPlace& place);

  std::vector<StackInfo>& stacks_;
  std::size_t modules_;
  bool has_modules_;
  std::optional<Value> frames_name_;
  TextCopies& texts_;
  std::vector<StackIndex> indices_;                                  // by the list's number in the document
  std::unordered_map<std::size_t, SharedFrame, SeededHash> frames_;  // by the object's
};

}  // namespace cistern
