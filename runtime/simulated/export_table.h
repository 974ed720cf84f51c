#pragma once

// ExportTable: what a driver tells other processes of its exports, in memory that they map.
//
// An unnamed file with one word for each exported allocation and one slot for each exported
// event. A word or slot is in use while it holds the serial number of what was exported:
// handles carry it, so that a handle of what is gone is told from one of what came later.
// An event's slot counts records: each has a number, the process that made it and whether it is
// done. Either process may record. Waiters sleep on one futex for the whole table.
// Thread safety, also between processes: all members but the constructor may be called from any
// thread; slots are given out by one thread at a time of the owning process.

#include "runtime/process_stamp.h"
#include "runtime/simulated/owned_file.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cistern::simulated {

class ExportTable {
 public:
  static constexpr std::uint32_t kMemorySlots = 65536;
  static constexpr std::uint32_t kEventSlots = 4096;

  // Where another process finds a table.
  struct Address {
    ProcessStamp process;
    int file = -1;
    std::uint64_t inode = 0;
  };

  // A table of this process; null if the host has no memory for it.
  [[nodiscard]] static std::shared_ptr<ExportTable> create();
  // Another process's; null if it is gone or must not be looked at.
  [[nodiscard]] static std::shared_ptr<ExportTable> open(const Address& address);
  ~ExportTable();
  ExportTable(const ExportTable&) = delete;
  ExportTable& operator=(const ExportTable&) = delete;

  [[nodiscard]] const Address& address() const noexcept { return address_; }

  // --- Slots; the owner gives them out. kNone if all are in use ---
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  [[nodiscard]] std::uint32_t add_memory(std::uint64_t serial);
  void remove_memory(std::uint32_t slot) noexcept;
  [[nodiscard]] std::uint32_t add_event(std::uint64_t serial);
  void remove_event(std::uint32_t slot) noexcept;
  [[nodiscard]] bool has_memory(std::uint32_t slot, std::uint64_t serial) const noexcept;
  [[nodiscard]] bool has_event(std::uint32_t slot, std::uint64_t serial) const noexcept;

  // --- Records of an event. Requires: slot < kEventSlots ---
  // Records of one event that may be unfinished at once.
  static constexpr std::uint64_t kPendingRecords = 256;
  // Whether so many more records may be begun. The answer may be old when they are, if another
  // process begins records meanwhile: the table has places for twice as many as it promises.
  [[nodiscard]] bool has_room(std::uint32_t slot, std::uint64_t records) const noexcept;
  // The lowest number of a record that is not done; 0: all are.
  [[nodiscard]] std::uint64_t oldest_pending(std::uint32_t slot) const noexcept;
  // The number of a new record by `process` and a driver in it.
  [[nodiscard]] std::uint64_t begin_record(std::uint32_t slot, const ProcessStamp& process,
                                           std::uint64_t driver) noexcept;
  void complete_record(std::uint32_t slot, std::uint64_t number) noexcept;
  [[nodiscard]] std::uint64_t latest_record(std::uint32_t slot) const noexcept;  // 0: none
  // True of one that later records have pushed out, which has_room prevents.
  [[nodiscard]] bool is_done(std::uint32_t slot, std::uint64_t number) const noexcept;
  [[nodiscard]] bool is_by(std::uint32_t slot, std::uint64_t number, const ProcessStamp& process,
                           std::uint64_t driver) const noexcept;
  // Whether the process that made the record has died.
  [[nodiscard]] bool is_abandoned(std::uint32_t slot, std::uint64_t number) const noexcept;

  // --- Sleeping ---
  [[nodiscard]] std::uint32_t changes() const noexcept;
  // Returns when there was a change since `seen`, or after a while: then the caller looks whether
  // the processes that it waits for still live, which changes nothing here.
  void wait_for_change(std::uint32_t seen) const noexcept;
  void note_change() noexcept;

 private:
  struct Layout;
  struct Record;
  ExportTable(OwnedFile file, Address address, Layout* layout);
  [[nodiscard]] Record& record(std::uint32_t slot, std::uint64_t number) const noexcept;

  OwnedFile file_;
  Address address_;
  Layout* layout_;
  std::uint32_t memory_used_ = 0;  // slots that were ever given out, and those that came back
  std::uint32_t events_used_ = 0;
  std::vector<std::uint32_t> idle_memory_;
  std::vector<std::uint32_t> idle_events_;
};

}  // namespace cistern::simulated
