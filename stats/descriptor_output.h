#pragma once

// A stream's buffer over an open file, past stdio and std::fstream, whose buffers need host memory.

#include <chrono>
#include <streambuf>
#include <string_view>

namespace cistern {

// How long the other end of a pipe or socket may take to make room.
inline constexpr std::chrono::milliseconds kOutputPatience{5000};

// Writes all of it, in as many calls as it takes, whatever interrupts them. Where the descriptor does not
// block, waits for room, at most `patience` each time; one that blocks is waited for as by any writer. A
// pipe that nobody reads is refused without the signal. False: the system refused, as errno says
// (ETIMEDOUT: there was no room), after a part may have been written. Takes no host memory.
[[nodiscard]] bool write_all(int descriptor, std::string_view text,
                             std::chrono::milliseconds patience = kOutputPatience) noexcept;

// Hands on what it gets at once: for a JsonWriter, which gathers. After a refusal nothing more is
// written, and the stream is bad. Does not close the file. Not thread-safe.
class DescriptorOutput final : public std::streambuf {
 public:
  explicit DescriptorOutput(int descriptor) : descriptor_(descriptor) {}
  // The first refusal's errno; 0: there was none.
  [[nodiscard]] int error() const noexcept { return error_; }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize bytes) override;
  int_type overflow(int_type character) override;

 private:
  const int descriptor_;
  int error_ = 0;
};

}  // namespace cistern
