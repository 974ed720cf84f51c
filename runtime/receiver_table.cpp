#include "runtime/receiver_table.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <new>
#include <utility>

namespace cistern {
namespace {

constexpr std::uint64_t kMark = 0x31435652'54534943;  // "CISTRVC1"
// What a place holds that no process has: nobody yet, and somebody who has left.
constexpr std::uint64_t kOpen = 0;
constexpr std::uint64_t kDone = ~std::uint64_t{0};

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free);

// Over all tables of this process: a slot that is used again is told from what it was.
std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> serial{0};
  return ++serial;
}

}  // namespace

// All zero when the file is new.
struct ReceiverTable::Layout {
  struct Place {
    Word process;
    Word started;  // 0 while the receiver has not written it yet
  };
  struct Slot {
    Word serial;
    Word expected;
    std::array<Place, kReceivers> places;
  };
  Word mark;
  std::array<Slot, kSlots> slots;
};

ReceiverTable::ReceiverTable(FileDescriptor file, std::uint64_t inode, Layout* layout)
    : file_(std::move(file)), inode_(inode), layout_(layout) {}

ReceiverTable::~ReceiverTable() { ::munmap(layout_, sizeof(Layout)); }

std::shared_ptr<ReceiverTable> ReceiverTable::create() {
  FileDescriptor file(::memfd_create("cistern memory sent", MFD_CLOEXEC));
  struct stat status {};
  if (!file || ::ftruncate(file.get(), sizeof(Layout)) != 0 || ::fstat(file.get(), &status) != 0)
    throw std::bad_alloc();
  void* mapped = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* layout = static_cast<Layout*>(mapped);
  layout->mark.store(kMark);
  return std::shared_ptr<ReceiverTable>(new ReceiverTable(std::move(file), status.st_ino, layout));
}

std::shared_ptr<ReceiverTable> ReceiverTable::open(const MemoryHandle::Sender& sender) {
  FileDescriptor file(
      open_file_of({sender.process, sender.started}, static_cast<int>(sender.descriptor), sender.inode));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(sizeof(Layout)))
    return nullptr;
  void* mapped = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* layout = static_cast<Layout*>(mapped);
  auto table = std::shared_ptr<ReceiverTable>(new ReceiverTable(std::move(file), status.st_ino, layout));
  return layout->mark.load() == kMark ? table : nullptr;
}

// --- The sender -------------------------------------------------------------------------

MemoryHandle::Sender ReceiverTable::add(int receivers) {
  MemoryHandle::Sender sender;
  sender.slot = kSlots;
  if (idle_.empty()) {
    if (used_ == kSlots) return sender;
    idle_.reserve(used_ + 1);  // so that giving it back needs no memory
    sender.slot = used_++;
  } else {
    sender.slot = idle_.back();
    idle_.pop_back();
  }
  const ProcessStamp self = this_process();
  sender.process = self.id;
  sender.started = self.started;
  sender.descriptor = static_cast<std::uint32_t>(file_.get());
  sender.inode = inode_;
  sender.serial = next_serial();
  Layout::Slot& slot = layout_->slots[sender.slot];
  for (Layout::Place& place : slot.places) {
    place.process.store(kOpen);
    place.started.store(0);
  }
  slot.expected.store(static_cast<std::uint64_t>(receivers));
  slot.serial.store(sender.serial);
  return sender;
}

void ReceiverTable::remove(std::uint32_t slot) noexcept {
  layout_->slots[slot].serial.store(0);
  idle_.push_back(slot);
}

int ReceiverTable::count_open(std::uint32_t slot) const noexcept {
  const Layout::Slot& sent = layout_->slots[slot];
  const auto expected = static_cast<std::size_t>(sent.expected.load());
  int open = 0;
  for (std::size_t i = 0; i < expected; ++i) {
    const std::uint64_t process = sent.places[i].process.load();
    if (process == kDone) continue;
    const ProcessStamp receiver{static_cast<std::uint32_t>(process), sent.places[i].started.load()};
    if (process == kOpen || is_alive(receiver)) ++open;
  }
  return open;
}

void ReceiverTable::recall(std::uint32_t slot) noexcept {
  for (Layout::Place& place : layout_->slots[slot].places) {
    std::uint64_t open = kOpen;
    place.process.compare_exchange_strong(open, kDone);
  }
}

// --- A receiver -------------------------------------------------------------------------

bool ReceiverTable::has(const MemoryHandle::Sender& sender) const noexcept {
  return sender.slot < kSlots && sender.serial != 0 && layout_->slots[sender.slot].serial.load() == sender.serial;
}

int ReceiverTable::take_place(const MemoryHandle::Sender& sender) noexcept {
  if (!has(sender)) return -1;
  Layout::Slot& sent = layout_->slots[sender.slot];
  const ProcessStamp self = this_process();
  const auto expected = static_cast<int>(sent.expected.load());
  for (int i = 0; i < expected && i < kReceivers; ++i) {
    Layout::Place& place = sent.places[static_cast<std::size_t>(i)];
    std::uint64_t open = kOpen;
    if (!place.process.compare_exchange_strong(open, self.id)) continue;
    place.started.store(self.started);
    return i;
  }
  return -1;
}

void ReceiverTable::leave(const MemoryHandle::Sender& sender, int place) noexcept {
  if (has(sender)) layout_->slots[sender.slot].places[static_cast<std::size_t>(place)].process.store(kDone);
}

}  // namespace cistern
