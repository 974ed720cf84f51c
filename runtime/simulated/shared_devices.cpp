#include "runtime/simulated/shared_devices.h"

#include <cistern/error.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace cistern::simulated {
namespace {

constexpr std::uint64_t kDevicesMark = 0x31444853'54534943;  // "CISTSHD1"
constexpr std::size_t kDevices = 64;
constexpr std::size_t kProcesses = 256;
// Of the file's bytes that locks name: the one for all, then one for each entry.
constexpr off_t kSectionLock = 0;
constexpr off_t kEntryLocks = 1;

// An open file description lock on one byte. Of the kernel's: it goes with its last descriptor.
bool lock_byte(int file, off_t byte, short type, int command) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int result = 0;
  do {
    result = ::fcntl(file, command, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

std::string checked_name(std::string name) {
  constexpr const char* allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name.empty() || name.size() > 64 || name.find_first_not_of(allowed) != std::string::npos) {
    throw InvalidArgument("simulated device: shared=" + name +
                          ": expected a name of 1 to 64 letters, digits and the signs _ . -");
  }
  return name;
}

[[noreturn]] void refuse(const std::string& name, const char* what) {
  throw InvalidArgument("simulated device: shared=" + name + ": " + what + ": " + std::strerror(errno));
}

}  // namespace

// All zero when the file is new.
struct SharedDevices::Layout {
  struct Entry {
    std::atomic<std::uint64_t> process;
    std::array<std::atomic<std::uint64_t>, kDevices> bytes;
  };
  std::atomic<std::uint64_t> mark;
  std::atomic<std::uint64_t> devices;
  std::atomic<std::uint64_t> capacity;
  std::array<Entry, kProcesses> entries;
};

class SharedDevices::Section {
 public:
  explicit Section(const OwnedFile& file) noexcept : file_(file.get()) {
    lock_byte(file_, kSectionLock, F_WRLCK, F_OFD_SETLKW);
  }
  ~Section() { lock_byte(file_, kSectionLock, F_UNLCK, F_OFD_SETLK); }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  int file_;
};

SharedDevices::SharedDevices(std::string name, int devices, std::size_t capacity_bytes)
    : name_(checked_name(std::move(name))), path_("/cistern-" + std::to_string(::getuid()) + "-" + name_) {
  for (;;) {
    file_ = OwnedFile(::shm_open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file_) refuse(name_, "its file in /dev/shm cannot be opened");
    const Section section(file_);
    // The last process may have removed the file before the lock was ours: then there is a new one.
    if (!open_file()) continue;
    attach(devices, capacity_bytes);
    return;
  }
}

bool SharedDevices::open_file() {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) refuse(name_, "its file cannot be asked");
  if (status.st_nlink == 0) return false;
  if (::ftruncate(file_.get(), sizeof(Layout)) != 0) refuse(name_, "its file cannot be made");
  void* mapped = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED) refuse(name_, "its file cannot be mapped");
  layout_ = static_cast<Layout*>(mapped);
  return true;
}

// With the section's lock held. The destructor does not run for what throws here.
void SharedDevices::attach(int devices, std::size_t capacity_bytes) {
  const auto fail = [this](const std::string& text) {
    ::munmap(layout_, sizeof(Layout));
    throw InvalidArgument("simulated device: shared=" + name_ + ": " + text);
  };
  entry_ = kProcesses;
  if (is_alone()) {  // new, or of processes that were killed
    layout_->devices.store(static_cast<std::uint64_t>(devices));
    layout_->capacity.store(capacity_bytes);
    layout_->mark.store(kDevicesMark);
  }
  const std::uint64_t their_devices = layout_->devices.load();
  const std::uint64_t their_capacity = layout_->capacity.load();
  if (layout_->mark.load() != kDevicesMark || their_devices != static_cast<std::uint64_t>(devices) ||
      their_capacity != capacity_bytes) {
    fail("it has " + std::to_string(their_devices) + " devices of " + std::to_string(their_capacity) +
         " bytes, for the processes that are attached; expected the same of this one, not " + std::to_string(devices) +
         " of " + std::to_string(capacity_bytes));
  }
  for (std::size_t entry = 0; entry < kProcesses; ++entry) {
    if (!lock_byte(file_.get(), kEntryLocks + static_cast<off_t>(entry), F_WRLCK, F_OFD_SETLK)) continue;
    for (auto& bytes : layout_->entries[entry].bytes) bytes.store(0);
    layout_->entries[entry].process.store(static_cast<std::uint64_t>(::getpid()));
    entry_ = entry;
    return;
  }
  fail("its " + std::to_string(kProcesses) + " places for processes are taken");
}

SharedDevices::~SharedDevices() {
  {
    const Section section(file_);
    for (auto& bytes : layout_->entries[entry_].bytes) bytes.store(0);
    layout_->entries[entry_].process.store(0);
    if (is_alone()) ::shm_unlink(path_.c_str());
  }
  ::munmap(layout_, sizeof(Layout));
}

bool SharedDevices::is_attached(std::size_t entry) const noexcept {
  if (entry == entry_) return true;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kEntryLocks + static_cast<off_t>(entry);
  lock.l_len = 1;
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool SharedDevices::is_alone() const noexcept {
  for (std::size_t entry = 0; entry < kProcesses; ++entry) {
    if (entry != entry_ && layout_->entries[entry].process.load() != 0 && is_attached(entry)) return false;
  }
  return true;
}

std::size_t SharedDevices::used(int device) const noexcept {
  std::size_t used = 0;
  for (std::size_t entry = 0; entry < kProcesses; ++entry) {
    const std::uint64_t bytes = layout_->entries[entry].bytes[static_cast<std::size_t>(device)].load();
    if (bytes != 0 && is_attached(entry)) used += static_cast<std::size_t>(bytes);
  }
  return used;
}

bool SharedDevices::take(int device, std::size_t bytes) noexcept {
  const Section section(file_);
  const auto capacity = static_cast<std::size_t>(layout_->capacity.load());
  const std::size_t held = used(device);
  if (held > capacity || bytes > capacity - held) return false;
  layout_->entries[entry_].bytes[static_cast<std::size_t>(device)] += bytes;
  return true;
}

void SharedDevices::give_back(int device, std::size_t bytes) noexcept {
  layout_->entries[entry_].bytes[static_cast<std::size_t>(device)] -= bytes;
}

std::vector<GpuProcess> SharedDevices::processes(int device) const {
  std::vector<GpuProcess> attached;
  const Section section(file_);
  for (std::size_t entry = 0; entry < kProcesses; ++entry) {
    const std::uint64_t process = layout_->entries[entry].process.load();
    if (process == 0 || !is_attached(entry)) continue;
    const std::uint64_t bytes = layout_->entries[entry].bytes[static_cast<std::size_t>(device)].load();
    attached.push_back({static_cast<std::uint32_t>(process), static_cast<std::size_t>(bytes)});
  }
  return attached;
}

}  // namespace cistern::simulated
