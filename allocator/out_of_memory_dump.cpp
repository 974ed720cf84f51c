#include "allocator/out_of_memory_dump.h"

#include "stats/descriptor_output.h"
#include "stats/fixed_text_format.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>

namespace cistern {
namespace {

// Snapshots that one process keeps: a program that looks for what fits may fail for ever.
constexpr unsigned kKeptSnapshots = 16;

// One dump at a time: a pipe takes it in pieces.
std::mutex writing;

bool put(int descriptor, std::string_view text, std::string_view summary) noexcept {
  FixedText<OutOfMemoryError::Text::capacity() + SummaryText::capacity() + 16> all;
  all.append("cistern: ").append(text).append("\n").append(summary);
  const std::lock_guard lock(writing);
  return write_all(descriptor, all);
}

bool is_pipe(const char* path) noexcept {
  struct stat kind {};
  return ::stat(path, &kind) == 0 && S_ISFIFO(kind.st_mode);
}

}  // namespace

OutOfMemoryDump::OutOfMemoryDump(const DumpPlace& where) noexcept : place_(where) {
  if (where == "off") return;
  descriptor_ = where == "stdout" ? STDOUT_FILENO : STDERR_FILENO;
  if (where == "stdout") std::fflush(stdout);  // what the program printed before comes before
  if (where != "stdout" && where != "stderr") open_file();
}

// Without waiting: a pipe may never get a reader.
void OutOfMemoryDump::open_file() noexcept {
  const int file = ::open(place_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0) return complain("append to", errno);
  descriptor_ = file;
  is_file_ = true;
  open_snapshot();
}

void OutOfMemoryDump::complain(std::string_view what, int error) const noexcept {
  FixedText<4352> complaint;
  append(complaint, "cistern: oom_dump: cannot {} '{}': ", what, place_);
  if ((error == ENXIO || error == EPIPE) && is_pipe(place_.c_str()))
    complaint.append("it is a pipe that nobody reads\n");
  else if (error == ETIMEDOUT)
    complaint.append("its reader made no room for it\n");
  else
    append(complaint, "error {}\n", error);
  static_cast<void>(write_all(STDERR_FILENO, complaint));
}

OutOfMemoryDump::~OutOfMemoryDump() {
  if (is_file_) ::close(descriptor_);
  if (snapshot_ >= 0) ::close(snapshot_);
}

// Not beside a device or a pipe, whose directory is no place for it. Never through somebody's link.
void OutOfMemoryDump::open_snapshot() noexcept {
  static std::atomic<unsigned> dumps{0};
  struct stat kind {};
  if (::fstat(descriptor_, &kind) != 0 || !S_ISREG(kind.st_mode)) return;
  const unsigned number = dumps.fetch_add(1);
  append(snapshot_path_, "{}.{}.{}.json", place_, ::getpid(), number % kKeptSnapshots);
  append(unfinished_path_, "{}.{}.{}.part", place_, ::getpid(), number);
  snapshot_ = ::open(unfinished_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (snapshot_ < 0) tell("cannot create", unfinished_path_, "", errno);
}

void OutOfMemoryDump::name_snapshot(OutOfMemoryError::Text& text) const noexcept {
  if (has_snapshot_) text.append(" A snapshot is in ").append(snapshot_path_).append(".");
}

void OutOfMemoryDump::write(OutOfMemoryError::Text& text, std::string_view summary) noexcept {
  if (descriptor_ < 0) return;
  if (is_file_) {
    OutOfMemoryError::Text naming = text;
    naming.append(" The memory summary is in ").append(place_).append(".");
    if (put(descriptor_, naming, summary)) {
      text = naming;
      return;
    }
    complain("write to", errno);
    ::close(descriptor_);
    is_file_ = false;
    descriptor_ = STDERR_FILENO;
  }
  // There is nobody to tell of a failure.
  static_cast<void>(put(descriptor_, text, summary));
}

void OutOfMemoryDump::write_snapshot(SnapshotSource& source) noexcept {
  if (snapshot_ < 0) return;
  int error = 0;
  const SnapshotSource::Written written = source.write_snapshot(snapshot_, &error);
  if (written == SnapshotSource::Written::not_all) {
    tell("cannot write", snapshot_path_, "", error);
  } else if (::rename(unfinished_path_.c_str(), snapshot_path_.c_str()) != 0) {
    tell("cannot rename a file to", snapshot_path_, "", errno);
  } else {
    has_snapshot_ = true;
    const bool has_names = written == SnapshotSource::Written::whole;
    tell("a snapshot is in", snapshot_path_,
         has_names ? ""
                   : ", written while other threads waited, and with addresses in place of functions' names, for there "
                     "was no host memory for a copy",
         0);
  }
  if (!has_snapshot_) static_cast<void>(::unlink(unfinished_path_.c_str()));
}

void OutOfMemoryDump::tell(std::string_view what, const SnapshotPath& path, std::string_view more, int error) noexcept {
  FixedText<SnapshotPath::capacity() + 256> line;
  append(line, "cistern: oom_dump: {} '{}'{}", what, path, more);
  if (error != 0) append(line, ": error {}", error);
  append(line, "\n");
  static_cast<void>(write_all(descriptor_, line));
}

}  // namespace cistern
