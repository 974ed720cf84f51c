#include "stats/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace cistern {

// proc(5): a line each, "begin-end permissions offset major:minor inode path".
std::optional<FileIdentity> mapped_file_at(std::uint64_t address) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
  if (maps == nullptr) return std::nullopt;
  char* line = nullptr;
  std::size_t room = 0;
  std::optional<FileIdentity> found;
  while (!found && ::getline(&line, &room, maps.get()) > 0) {
    std::uint64_t begin = 0, end = 0, inode = 0;
    unsigned major_number = 0, minor_number = 0;
    const int read = std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %x:%x %" SCNu64, &begin, &end, &major_number,
                                 &minor_number, &inode);
    if (read == 5 && begin <= address && address < end) found = {makedev(major_number, minor_number), inode};
  }
  std::free(line);
  return found && found->inode != 0 ? found : std::nullopt;
}

// Not blocking: what a name leads to may be a pipe that nobody writes to.
OpenFile::OpenFile(const std::string& path) noexcept : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (file_ < 0 || ::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) return;
  size_ = static_cast<std::uint64_t>(status.st_size);
  identity_ = {status.st_dev, status.st_ino};
}

OpenFile::~OpenFile() {
  if (file_ >= 0) ::close(file_);
}

std::size_t OpenFile::read(std::uint64_t offset, char* to, std::size_t count) const noexcept {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(file_, to + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace cistern
