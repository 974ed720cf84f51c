#include "allocator/out_of_memory_dump.h"

#include "stats/fixed_text_format.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cistern {
namespace {

// Past stdio, whose buffers need host memory. There is nobody to tell of a failure.
void write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

OutOfMemoryDump::OutOfMemoryDump(const DumpPlace& where) noexcept {
  if (where == "off") return;
  descriptor_ = where == "stdout" ? STDOUT_FILENO : STDERR_FILENO;
  if (where == "stdout") std::fflush(stdout);  // what the program printed before comes before
  if (where == "stdout" || where == "stderr") return;
  const int file = ::open(where.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file >= 0) {
    descriptor_ = file;
    is_file_ = true;
    return;
  }
  FixedText<4352> complaint;
  append(complaint, "cistern: oom_dump: cannot append to '{}': error {}\n", where, errno);
  write_all(STDERR_FILENO, complaint);
}

OutOfMemoryDump::~OutOfMemoryDump() {
  if (is_file_) ::close(descriptor_);
}

void OutOfMemoryDump::write(std::string_view text, std::string_view summary) noexcept {
  if (descriptor_ < 0) return;
  FixedText<OutOfMemoryError::Text::capacity() + SummaryText::capacity() + 16> all;
  all.append("cistern: ").append(text).append("\n").append(summary);
  write_all(descriptor_, all);
}

}  // namespace cistern
