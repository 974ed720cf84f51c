#include "runtime/simulated/shared_event.h"

namespace cistern::simulated {

std::uint64_t SharedEvent::latest_foreign() const noexcept {
  const std::uint64_t number = latest();
  return is_done(number) || table_->is_by(slot_, number, self_, driver_) ? 0 : number;
}

bool SharedEvent::has_room(std::uint64_t records) noexcept {
  if (!exists()) return true;
  if (records > ExportTable::kPendingRecords) return false;
  while (!table_->has_room(slot_, records)) {
    if (!check_abandoned(table_->oldest_pending(slot_))) return false;
  }
  return true;
}

bool SharedEvent::check_abandoned(std::uint64_t number) noexcept {
  if (is_done(number)) return true;
  if (table_->is_by(slot_, number, self_, driver_)) return false;
  if (!table_->is_abandoned(slot_, number)) return false;
  complete(number);
  return is_done(number);
}

void SharedEvent::wait(std::uint64_t number) noexcept {
  for (;;) {
    const std::uint32_t seen = table_->changes();
    if (check_abandoned(number)) return;
    table_->wait_for_change(seen);
  }
}

}  // namespace cistern::simulated
