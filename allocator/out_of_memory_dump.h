#pragma once

// Where the text, the summary and the snapshot go when memory runs out: the option oom_dump.

#include <cistern/error.h>

#include "stats/summary.h"

#include <string_view>

namespace cistern {

// An option's value that can be copied without host memory: a path may be that long.
using DumpPlace = FixedText<4096>;

// Who can write the snapshot of all heaps.
class SnapshotSource {
 public:
  enum class Written { whole, without_names, not_all };
  // Writes it, as write_json does, to a file that is open and empty. Without host memory for a copy it
  // is written while other threads wait, with addresses in place of the names of stacks.
  // `not_all`: the system refused to write, as `error` says. Called without a lock.
  [[nodiscard]] virtual Written write_snapshot(int descriptor, int* error) noexcept = 0;

 protected:
  ~SnapshotSource() = default;
};

// One dump, open from its beginning: the error's text names the files only if they were written. Takes
// no host memory, never throws.
//
// A pipe is opened without waiting for a reader: with none it is refused like any path that cannot be
// opened. While it is written the reader has kOutputPatience to make room each time it is full; a reader
// that goes away, or makes none, is refused as well. What is refused is said on standard error, which gets
// the dump instead. The dumps of this process's threads do not mix, wherever they go; those of several
// processes do not in a regular file, and may in a pipe, which takes 4 KiB in one piece.
class OutOfMemoryDump {
 public:
  // `where`: "stderr", "stdout", "off", or the path of a file or pipe, to which it appends. Beside a
  // regular file there is one for the snapshot, named after it, the process and the dump; the seventeenth
  // takes the first one's place.
  explicit OutOfMemoryDump(const DumpPlace& where) noexcept;
  ~OutOfMemoryDump();
  OutOfMemoryDump(const OutOfMemoryDump&) = delete;
  OutOfMemoryDump& operator=(const OutOfMemoryDump&) = delete;

  // Adds a sentence on the file to look into, if there is one.
  void write(OutOfMemoryError::Text& text, std::string_view summary) noexcept;
  // After it, since it takes longer. Adds a line to the dump on what became of it.
  void write_snapshot(SnapshotSource& source) noexcept;
  // Adds a sentence on the snapshot, if it was written whole.
  void name_snapshot(OutOfMemoryError::Text& text) const noexcept;

 private:
  using SnapshotPath = FixedText<DumpPlace::capacity() + 48>;
  void open_file() noexcept;
  void open_snapshot() noexcept;
  void complain(std::string_view what, int error) const noexcept;
  void tell(std::string_view what, const SnapshotPath& path, std::string_view more, int error) noexcept;

  DumpPlace place_;
  SnapshotPath snapshot_path_;
  SnapshotPath unfinished_path_;  // where it is until it is whole
  int descriptor_ = -1;           // -1: nothing is to be written
  int snapshot_ = -1;             // likewise
  bool is_file_ = false;
  bool has_snapshot_ = false;
};

}  // namespace cistern
