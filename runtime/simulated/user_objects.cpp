#include "runtime/simulated/user_objects.h"

#include <utility>

#include "runtime/simulated/handle_table.h"
#include "runtime/simulated/inside_operation.h"

namespace cistern::simulated {
namespace {

std::uint64_t number_of(CUuserObject handle) { return reinterpret_cast<std::uint64_t>(handle); }

}  // namespace

UserObject::~UserObject() {
  const InsideOperation inside(driver_);
  destroy_(pointer_);
}

CUuserObject UserObjects::create(void* pointer, CUhostFn destroy, unsigned references) {
  drop_expired();
  ++created_;
  const std::uint64_t handle = make_handle(HandleKind::user_object, number_, 0, 0) | created_;
  Entry& entry = entries_[handle];
  try {
    entry.owned = std::make_shared<const UserObject>(driver_, pointer, destroy);
  } catch (...) {
    entries_.erase(handle);
    throw;
  }
  entry.object = entry.owned;
  entry.references = references;
  return reinterpret_cast<CUuserObject>(handle);
}

std::shared_ptr<const UserObject> UserObjects::find(CUuserObject handle) const {
  const auto entry = entries_.find(number_of(handle));
  return entry == entries_.end() ? nullptr : entry->second.object.lock();
}

bool UserObjects::owns(CUuserObject handle, unsigned count) const {
  const auto entry = entries_.find(number_of(handle));
  return entry != entries_.end() && entry->second.references >= count;
}

std::shared_ptr<const UserObject> UserObjects::release(CUuserObject handle, unsigned count) {
  Entry& entry = entries_.at(number_of(handle));
  entry.references -= count;
  return entry.references == 0 ? std::exchange(entry.owned, nullptr) : nullptr;
}

// Graphs let go of objects with no lock held, so their entries are found later; looked for when
// they have doubled, so that an object costs constant time.
void UserObjects::drop_expired() {
  if (entries_.size() < sweep_at_) return;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->second.object.expired() ? entries_.erase(entry) : std::next(entry);
  }
  sweep_at_ = 2 * entries_.size() + 64;
}

}  // namespace cistern::simulated
