#include "tests/conformance/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

extern char** environ;

namespace cistern::conformance {
namespace {

void require(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

struct Pipe {
  Pipe() { require(pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno, "pipe"); }
  int ends[2] = {-1, -1};
};

}  // namespace

bool read_all(int descriptor, void* bytes, std::size_t count) {
  for (auto* next = static_cast<char*>(bytes); count != 0;) {
    const ssize_t got = read(descriptor, next, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int descriptor, const void* bytes, std::size_t count) {
  for (const auto* next = static_cast<const char*>(bytes); count != 0;) {
    const ssize_t put = write(descriptor, next, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    next += put;
    count -= static_cast<std::size_t>(put);
  }
  return true;
}

ChildProcess::ChildProcess(std::optional<int> descriptor) {
  // A child that died is an error of `send`, not the end of this process.
  static const auto ignores_broken_pipes = std::signal(SIGPIPE, SIG_IGN);
  static_cast<void>(ignores_broken_pipes);
  const Pipe in, out;
  posix_spawn_file_actions_t actions;
  require(posix_spawn_file_actions_init(&actions), "posix_spawn");
  int error = posix_spawn_file_actions_adddup2(&actions, in.ends[0], STDIN_FILENO);
  if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, out.ends[1], STDOUT_FILENO);
  if (error == 0 && descriptor) error = posix_spawn_file_actions_adddup2(&actions, *descriptor, kInheritedDescriptor);
  char program[] = "/proc/self/exe", role[] = "--ipc-peer";
  char* const arguments[] = {program, role, nullptr};
  if (error == 0) error = posix_spawn(&pid_, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in.ends[0]);
  close(out.ends[1]);
  to_child_ = in.ends[1];
  from_child_ = out.ends[0];
  if (error != 0) {
    close(to_child_);
    close(from_child_);
    require(error, "posix_spawn");
  }
}

ChildProcess::~ChildProcess() {
  close(to_child_);
  close(from_child_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool ChildProcess::send(const void* bytes, std::size_t count) { return write_all(to_child_, bytes, count); }
bool ChildProcess::receive(void* bytes, std::size_t count) { return read_all(from_child_, bytes, count); }

}  // namespace cistern::conformance
