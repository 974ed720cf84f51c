#include "allocator/out_of_memory_dump.h"

#include "stats/descriptor_output.h"
#include "stats/fixed_text_format.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace cistern {
namespace {

// Snapshots that one process keeps: a program that looks for what fits may fail for ever.
constexpr unsigned kKeptSnapshots = 16;

}  // namespace

OutOfMemoryDump::OutOfMemoryDump(const DumpPlace& where) noexcept : place_(where) {
  if (where == "off") return;
  descriptor_ = where == "stdout" ? STDOUT_FILENO : STDERR_FILENO;
  if (where == "stdout") std::fflush(stdout);  // what the program printed before comes before
  if (where == "stdout" || where == "stderr") return;
  const int file = ::open(where.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file >= 0) {
    descriptor_ = file;
    is_file_ = true;
    open_snapshot();
    return;
  }
  FixedText<4352> complaint;
  append(complaint, "cistern: oom_dump: cannot append to '{}': error {}\n", where, errno);
  static_cast<void>(write_all(STDERR_FILENO, complaint));
}

OutOfMemoryDump::~OutOfMemoryDump() {
  if (is_file_) ::close(descriptor_);
  if (snapshot_ >= 0) ::close(snapshot_);
}

// Not beside a device or a pipe, whose directory is no place for it.
void OutOfMemoryDump::open_snapshot() noexcept {
  static std::atomic<unsigned> dumps{0};
  struct stat kind {};
  if (::fstat(descriptor_, &kind) != 0 || !S_ISREG(kind.st_mode)) return;
  append(snapshot_path_, "{}.{}.{}.json", place_, ::getpid(), dumps.fetch_add(1) % kKeptSnapshots);
  snapshot_ = ::open(snapshot_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

void OutOfMemoryDump::name_files(OutOfMemoryError::Text& text) const noexcept {
  if (!is_file_) return;
  text.append(" The memory summary is in ").append(place_);
  if (snapshot_ >= 0) text.append(" and a snapshot in ").append(snapshot_path_);
  text.append(".");
}

void OutOfMemoryDump::write(std::string_view text, std::string_view summary) noexcept {
  if (descriptor_ < 0) return;
  FixedText<OutOfMemoryError::Text::capacity() + SummaryText::capacity() + 16> all;
  all.append("cistern: ").append(text).append("\n").append(summary);
  // There is nobody to tell of a failure.
  static_cast<void>(write_all(descriptor_, all));
}

void OutOfMemoryDump::write_snapshot(SnapshotSource& source) noexcept {
  if (snapshot_ < 0) return;
  FixedText<DumpPlace::capacity() + 256> note;
  int error = 0;
  switch (source.write_snapshot(snapshot_, &error)) {
    case SnapshotSource::Written::whole:
      return;
    case SnapshotSource::Written::without_names:
      append(note,
             "cistern: there was no host memory for a copy: {} was written while other threads waited, and has "
             "addresses in place of functions' names\n",
             snapshot_path_);
      break;
    case SnapshotSource::Written::not_all:
      static_cast<void>(::unlink(snapshot_path_.c_str()));
      append(note, "cistern: oom_dump: cannot write '{}': error {}\n", snapshot_path_, error);
      break;
  }
  static_cast<void>(write_all(descriptor_, note));
}

}  // namespace cistern
