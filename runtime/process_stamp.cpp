#include "runtime/process_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

namespace cistern {
namespace {

struct ProcessState {
  char state = 'X';
  std::uint64_t started = 0;
};

// What proc(5) calls fields 3 and 22 of /proc/PID/stat; nothing if there is no such process.
std::optional<ProcessState> state_of(std::uint32_t id) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/stat", id);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  char buffer[1024];
  const ssize_t size = ::read(file, buffer, sizeof buffer);
  ::close(file);
  if (size <= 0) return std::nullopt;
  std::string_view text(buffer, static_cast<std::size_t>(size));
  // The second field is a name in parentheses that may hold anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return std::nullopt;
  text.remove_prefix(name_end + 2);
  ProcessState found{text.front(), 0};
  for (int field = 3; field < 22; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    text.remove_prefix(space + 1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found.started);
  if (error != std::errc()) return std::nullopt;
  return found;
}

}  // namespace

ProcessStamp this_process() noexcept {
  const auto id = static_cast<std::uint32_t>(::getpid());
  const auto state = state_of(id);
  return {id, state ? state->started : 0};
}

bool is_alive(const ProcessStamp& process) noexcept {
  const auto state = state_of(process.id);
  return state && (process.started == 0 || state->started == process.started) && state->state != 'Z' &&
         state->state != 'X';
}

int open_file_of(const ProcessStamp& process, int number, std::uint64_t inode) noexcept {
  if (!is_alive(process)) {
    errno = ESRCH;
    return -1;
  }
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%d", process.id, number);
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return -1;
  // The number may name another file by now, and the id another process.
  struct stat status {};
  if (::fstat(file, &status) == 0 && status.st_ino == inode && is_alive(process)) return file;
  ::close(file);
  errno = ESTALE;
  return -1;
}

}  // namespace cistern
