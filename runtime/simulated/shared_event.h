#pragma once

// SharedEvent: an event that several processes record and wait for, as one driver sees it.
//
// Its state is a slot of the exporting driver's table. What was done to an event that its
// exporter has destroyed is undefined by the driver's documentation (cuIpcOpenEventHandle);
// here such an event is complete, and recording it changes nothing.
// Thread safety: any member may be called from any thread.

#include "runtime/process_stamp.h"
#include "runtime/simulated/export_table.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace cistern::simulated {

class SharedEvent {
 public:
  // `driver` tells the drivers of one process apart.
  SharedEvent(std::shared_ptr<ExportTable> table, std::uint32_t slot, std::uint64_t serial, std::uint64_t driver)
      : table_(std::move(table)), slot_(slot), serial_(serial), driver_(driver), self_(this_process()) {}

  [[nodiscard]] ExportTable& table() const noexcept { return *table_; }
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }

  // Whether so many more records can be begun (ExportTable::kPendingRecords). Those of processes
  // that have died take no room.
  [[nodiscard]] bool has_room(std::uint64_t records = 1) noexcept;
  // The number of a record that this driver makes now; complete tells that its work is done.
  [[nodiscard]] std::uint64_t begin_record() noexcept {
    return exists() ? table_->begin_record(slot_, self_, driver_) : 0;
  }
  void complete(std::uint64_t number) noexcept {
    if (exists() && number != 0) table_->complete_record(slot_, number);
  }
  [[nodiscard]] std::uint64_t latest() const noexcept { return exists() ? table_->latest_record(slot_) : 0; }
  [[nodiscard]] bool is_done(std::uint64_t number) const noexcept {
    return !exists() || table_->is_done(slot_, number);
  }
  // The number of the latest record if it is not done, and not this driver's; else 0.
  [[nodiscard]] std::uint64_t latest_foreign() const noexcept;
  // Completes the record if its process has died: its work will never be done, and nobody is
  // to wait for it for ever. Returns whether the record is done.
  bool check_abandoned(std::uint64_t number) noexcept;
  // Blocks until the record is done or abandoned. No lock may be held.
  void wait(std::uint64_t number) noexcept;

 private:
  [[nodiscard]] bool exists() const noexcept { return table_->has_event(slot_, serial_); }

  std::shared_ptr<ExportTable> table_;
  std::uint32_t slot_;
  std::uint64_t serial_;
  std::uint64_t driver_;
  ProcessStamp self_;
};

}  // namespace cistern::simulated
