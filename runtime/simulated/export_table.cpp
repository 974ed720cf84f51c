#include "runtime/simulated/export_table.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <ctime>
#include <utility>

namespace cistern::simulated {
namespace {

constexpr std::uint64_t kExportMark = 0x32545058'54534943;  // "CISTXPT2"
constexpr std::uint64_t kRecords = 2 * ExportTable::kPendingRecords;
// How soon the death of a process is noticed that others wait for.
constexpr long kPatienceNanoseconds = 50'000'000;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

template <class Slots>
std::uint32_t take_slot(std::vector<std::uint32_t>& idle, std::uint32_t& used, const Slots& slots) {
  if (!idle.empty()) {
    const std::uint32_t slot = idle.back();
    idle.pop_back();
    return slot;
  }
  if (used == slots.size()) return ExportTable::kNone;
  idle.reserve(used + 1);  // so that giving it back needs no memory
  return used++;
}

}  // namespace

struct ExportTable::Record {
  Word state;    // twice its number, and 1 when it is done
  Word process;  // that made it
  Word started;
  Word driver;
};

// All zero when the file is new.
struct ExportTable::Layout {
  struct EventSlot {
    Word serial;
    Word begun;   // numbers given out
    Word latest;  // the highest number whose record is written
    std::array<Record, kRecords> records;
  };
  Word mark;
  std::atomic<std::uint32_t> changes;
  std::array<Word, kMemorySlots> memory;
  std::array<EventSlot, kEventSlots> events;
};

ExportTable::ExportTable(OwnedFile file, Address address, Layout* layout)
    : file_(std::move(file)), address_(address), layout_(layout) {}

ExportTable::~ExportTable() { ::munmap(layout_, sizeof(Layout)); }

std::shared_ptr<ExportTable> ExportTable::create() {
  OwnedFile file(::memfd_create("cistern simulated exports", MFD_CLOEXEC));
  struct stat status {};
  if (!file || ::ftruncate(file.get(), sizeof(Layout)) != 0 || ::fstat(file.get(), &status) != 0) return nullptr;
  void* mapped = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* layout = static_cast<Layout*>(mapped);
  layout->mark.store(kExportMark, std::memory_order_release);
  const Address address{this_process(), file.get(), status.st_ino};
  return std::shared_ptr<ExportTable>(new ExportTable(std::move(file), address, layout));
}

std::shared_ptr<ExportTable> ExportTable::open(const Address& address) {
  OwnedFile file(open_file_of(address.process, address.file, address.inode));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(sizeof(Layout)))
    return nullptr;
  void* mapped = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* layout = static_cast<Layout*>(mapped);
  auto table = std::shared_ptr<ExportTable>(new ExportTable(std::move(file), address, layout));
  return layout->mark.load(std::memory_order_acquire) == kExportMark ? table : nullptr;
}

// --- Slots ------------------------------------------------------------------------------

std::uint32_t ExportTable::add_memory(std::uint64_t serial) {
  const std::uint32_t slot = take_slot(idle_memory_, memory_used_, layout_->memory);
  if (slot != kNone) layout_->memory[slot].store(serial, std::memory_order_release);
  return slot;
}

void ExportTable::remove_memory(std::uint32_t slot) noexcept {
  layout_->memory[slot].store(0, std::memory_order_release);
  idle_memory_.push_back(slot);
}

std::uint32_t ExportTable::add_event(std::uint64_t serial) {
  const std::uint32_t slot = take_slot(idle_events_, events_used_, layout_->events);
  if (slot == kNone) return kNone;
  Layout::EventSlot& event = layout_->events[slot];
  event.begun.store(0, std::memory_order_relaxed);
  event.latest.store(0, std::memory_order_relaxed);
  for (Record& record : event.records) record.state.store(0, std::memory_order_relaxed);
  event.serial.store(serial, std::memory_order_release);
  return slot;
}

void ExportTable::remove_event(std::uint32_t slot) noexcept {
  layout_->events[slot].serial.store(0, std::memory_order_release);
  idle_events_.push_back(slot);
  note_change();
}

bool ExportTable::has_memory(std::uint32_t slot, std::uint64_t serial) const noexcept {
  return slot < kMemorySlots && serial != 0 && layout_->memory[slot].load(std::memory_order_acquire) == serial;
}

bool ExportTable::has_event(std::uint32_t slot, std::uint64_t serial) const noexcept {
  return slot < kEventSlots && serial != 0 && layout_->events[slot].serial.load(std::memory_order_acquire) == serial;
}

// --- Records ----------------------------------------------------------------------------

ExportTable::Record& ExportTable::record(std::uint32_t slot, std::uint64_t number) const noexcept {
  return layout_->events[slot].records[number % kRecords];
}

std::uint64_t ExportTable::oldest_pending(std::uint32_t slot) const noexcept {
  const std::uint64_t begun = layout_->events[slot].begun.load();
  for (std::uint64_t number = begun < kRecords ? 1 : begun - kRecords + 1; number <= begun; ++number) {
    if (!is_done(slot, number)) return number;
  }
  return 0;
}

bool ExportTable::has_room(std::uint32_t slot, std::uint64_t records) const noexcept {
  if (records > kPendingRecords) return false;
  const std::uint64_t oldest = oldest_pending(slot);
  return oldest == 0 || layout_->events[slot].begun.load() + records < oldest + kPendingRecords;
}

std::uint64_t ExportTable::begin_record(std::uint32_t slot, const ProcessStamp& process,
                                        std::uint64_t driver) noexcept {
  Layout::EventSlot& event = layout_->events[slot];
  const std::uint64_t number = event.begun.fetch_add(1) + 1;
  Record& made = record(slot, number);
  made.process.store(process.id);
  made.started.store(process.started);
  made.driver.store(driver);
  made.state.store(number * 2);
  // Seen only now that it is written; a later record may have been faster.
  std::uint64_t latest = event.latest.load();
  while (latest < number && !event.latest.compare_exchange_weak(latest, number)) {
  }
  return number;
}

void ExportTable::complete_record(std::uint32_t slot, std::uint64_t number) noexcept {
  std::uint64_t pending = number * 2;
  if (record(slot, number).state.compare_exchange_strong(pending, number * 2 + 1)) note_change();
}

std::uint64_t ExportTable::latest_record(std::uint32_t slot) const noexcept {
  return layout_->events[slot].latest.load();
}

bool ExportTable::is_done(std::uint32_t slot, std::uint64_t number) const noexcept {
  const std::uint64_t state = record(slot, number).state.load();
  return number == 0 || state / 2 != number || state % 2 == 1;
}

bool ExportTable::is_by(std::uint32_t slot, std::uint64_t number, const ProcessStamp& process,
                        std::uint64_t driver) const noexcept {
  const Record& made = record(slot, number);
  return ProcessStamp{static_cast<std::uint32_t>(made.process.load()), made.started.load()} == process &&
         made.driver.load() == driver;
}

bool ExportTable::is_abandoned(std::uint32_t slot, std::uint64_t number) const noexcept {
  const Record& made = record(slot, number);
  return !is_alive({static_cast<std::uint32_t>(made.process.load()), made.started.load()});
}

// --- Sleeping ---------------------------------------------------------------------------

std::uint32_t ExportTable::changes() const noexcept { return layout_->changes.load(); }

void ExportTable::wait_for_change(std::uint32_t seen) const noexcept {
  const timespec patience{0, kPatienceNanoseconds};
  ::syscall(SYS_futex, &layout_->changes, FUTEX_WAIT, seen, &patience, nullptr, 0);
}

void ExportTable::note_change() noexcept {
  layout_->changes.fetch_add(1);
  ::syscall(SYS_futex, &layout_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace cistern::simulated
