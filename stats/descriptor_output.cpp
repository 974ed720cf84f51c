#include "stats/descriptor_output.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <ctime>

namespace cistern {
namespace {

// A write to a pipe that nobody reads would end the process. The signal is the writing thread's own: it is
// held back there, and taken away unless the thread had one before.
class PipeSignalBlocked {
 public:
  PipeSignalBlocked() noexcept {
    sigset_t pending;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    was_pending_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlocked() {
    const int error = errno;
    const std::timespec at_once{};
    if (error == EPIPE && !was_pending_)
      while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  PipeSignalBlocked(const PipeSignalBlocked&) = delete;
  PipeSignalBlocked& operator=(const PipeSignalBlocked&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

bool wait_for_room(int descriptor, std::chrono::milliseconds patience) noexcept {
  pollfd room{descriptor, POLLOUT, 0};
  int ready = 0;
  do ready = ::poll(&room, 1, static_cast<int>(patience.count()));
  while (ready < 0 && errno == EINTR);
  if (ready == 0) errno = ETIMEDOUT;
  return ready > 0;
}

}  // namespace

bool write_all(int descriptor, std::string_view text, std::chrono::milliseconds patience) noexcept {
  const PipeSignalBlocked blocked;
  errno = 0;
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0) {
      errno = EIO;
      return false;
    } else if (errno == EAGAIN) {
      if (!wait_for_room(descriptor, patience)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::streamsize DescriptorOutput::xsputn(const char* text, std::streamsize bytes) {
  if (error_ != 0) return 0;
  if (write_all(descriptor_, {text, static_cast<std::size_t>(bytes)})) return bytes;
  error_ = errno == 0 ? EIO : errno;
  return 0;
}

DescriptorOutput::int_type DescriptorOutput::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  const char text = traits_type::to_char_type(character);
  return xsputn(&text, 1) == 1 ? character : traits_type::eof();
}

}  // namespace cistern
