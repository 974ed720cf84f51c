#pragma once

// What a snapshot copies of its file's texts, in proportion to the file: references of a few bytes each may name
// one long text.
//
// Not thread-safe.

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/document_place.h"

namespace cistern {

class TextCopies {
 public:
  // Of a file of so many bytes. Its own texts are less than it; names that snapshots refer to often are short.
  explicit TextCopies(std::uint64_t file_bytes) : left_((std::uint64_t{1} << 24) + 32 * file_bytes) {}

  // The text at `place`. Throws as DocumentPlace::fail does.
  [[nodiscard]] std::string of(const DocumentPlace& place) {
    const std::string_view text = place.text();
    if (text.size() > left_) place.fail("references to texts that fill out to at most 32 times the file");
    left_ -= text.size();
    return std::string(text);
  }

 private:
  std::uint64_t left_;
};

}  // namespace cistern
