#pragma once

// A process of its own that does what a test tells it, one line at a time.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace cistern::testing {

// Started with posix_spawn; killed and reaped when the object ends.
class PeerProcess {
 public:
  // The driver peer has a simulated driver with these settings; the library peer is a program of
  // the library's users, with CISTERN_DEVICE=simulated:SETTINGS.
  enum class Kind { driver, library };
  PeerProcess(Kind kind, const std::string& settings);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Sends a command and returns the answer. An answer that says no begins with "error".
  std::string ask(const std::string& command);
  // The two halves: what takes long goes on between them.
  void tell(const std::string& command);
  std::string answer();
  // As a number, base 10 or 0x.
  std::uint64_t ask_number(const std::string& command);
  // The process ends at once, with nothing cleaned up, and is reaped.
  void kill();
  [[nodiscard]] pid_t id() const noexcept { return id_; }
  // A Unix socket whose other end is the peer's, for descriptors.
  [[nodiscard]] int socket() const noexcept { return socket_; }

 private:
  pid_t id_ = -1;
  int socket_ = -1;
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
};

std::string to_hex(const void* bytes, std::size_t size);
std::vector<std::uint8_t> from_hex(const std::string& text);

}  // namespace cistern::testing
