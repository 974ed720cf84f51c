#include "stats/atomic_file.h"

#include <cistern/error.h>

#include <fmt/format.h>

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <system_error>

namespace cistern {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::error_code& reason) {
  throw InvalidArgument(fmt::format("cannot write '{}': {}", path, reason.message()));
}

// Streams say only that something failed; the reason is the last system call's.
std::error_code last_error() { return {errno != 0 ? errno : EIO, std::generic_category()}; }

void write_whole(const fs::path& target, const std::string& path, const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream file(target, std::ios::binary | std::ios::trunc);
  if (!file) refuse(path, last_error());
  write(file);
  file.close();
  if (!file) refuse(path, last_error());
}

// Beside the target, since only a rename within one file system is a single step.
fs::path temporary_beside(const fs::path& target) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}.{}-{}.tmp", target.string(), ::getpid(), count.fetch_add(1));
}

// Removes the temporary unless it has taken its place.
class Temporary {
 public:
  explicit Temporary(fs::path path) : path_(std::move(path)) {}
  ~Temporary() {
    std::error_code ignored;  // nothing to remove is the usual case; else there is nobody to tell
    fs::remove(path_, ignored);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (path.empty()) throw InvalidArgument("cannot write '': the name is empty");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) refuse(path, std::make_error_code(std::errc::is_a_directory));
  const bool exists = fs::exists(status);
  // Renaming over a device or a pipe would replace it.
  if (exists && !fs::is_regular_file(status)) return write_whole(path, path, write);

  // A link keeps pointing at the file, whose contents change.
  fs::path target = path;
  if (exists) {
    target = fs::canonical(path, error);
    if (error) refuse(path, error);
  }
  const Temporary temporary(temporary_beside(target));
  write_whole(temporary.path(), path, write);
  fs::rename(temporary.path(), target, error);
  if (error) refuse(path, error);
}

}  // namespace cistern
