#pragma once

// Where the text and the summary go when memory runs out: the option oom_dump.

#include <cistern/error.h>

#include "stats/summary.h"

#include <string_view>

namespace cistern {

// An option's value that can be copied without host memory: a path may be that long.
using DumpPlace = FixedText<4096>;

// One dump, open from its beginning: the error's text names the file only if there is one. Takes
// no host memory, never throws.
class OutOfMemoryDump {
 public:
  // `where`: "stderr", "stdout", "off", or a file's path, to which it appends. What cannot be
  // opened is said on standard error, which gets the dump instead.
  explicit OutOfMemoryDump(const DumpPlace& where) noexcept;
  ~OutOfMemoryDump();
  OutOfMemoryDump(const OutOfMemoryDump&) = delete;
  OutOfMemoryDump& operator=(const OutOfMemoryDump&) = delete;

  // Whether there is a file to look into.
  [[nodiscard]] bool is_file() const noexcept { return is_file_; }
  // In one piece: the dumps of two threads do not mix.
  void write(std::string_view text, std::string_view summary) noexcept;

 private:
  int descriptor_ = -1;  // -1: nothing is to be written
  bool is_file_ = false;
};

}  // namespace cistern
