// Paged memory that nobody used for as long as `decay_ms` says goes back to the driver, with the requests that come: a
// look every now and then tells which handles are free and how long they were unused; events tell when the work is
// done that used them before. The host waits for nothing. What the driver refuses to take stays free memory, and is
// asked for again.

#include "allocator/device_allocator.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {
namespace {

constexpr std::int64_t kNanosecondsOfMs = 1000000;
// Looks in the time: what is to go does so at most two of these later.
constexpr std::int64_t kLooks = 4;

std::int64_t age_of(const AllocatorOptions& options) {
  return static_cast<std::int64_t>(options.decay_ms) * kNanosecondsOfMs;
}

}  // namespace

// May give the lock up.
void DeviceAllocator::decay_paged(Lock& lock) noexcept {
  PagedMemory::Decay& decay = paged_->decay;
  if (decay.is_under_way) return;
  const std::int64_t now = api_.host_clock();
  if (now < decay.next_look) return;
  const std::int64_t age = age_of(options_);
  decay.next_look = now + std::max(age / kLooks, kNanosecondsOfMs);
  paged_->placement.look_for_idle(now);
  if (!may_decay()) return;
  decay.is_under_way = true;
  try {
    if (!decay.round && paged_->placement.has_idle(now - age)) begin_decay(now, lock);
    if (decay.round && may_decay()) end_decay(now, lock);
  } catch (const std::bad_alloc&) {  // it is looked at again later
  }
  decay.is_under_way = false;
}

// Handles must neither come nor go while others map or unmap them all, and in a capture no event is asked for.
bool DeviceAllocator::may_decay() const noexcept {
  return !grants_access_ && !paged_->retirement.is_under_way && !capture_under_way();
}

// Where a stream has no event its memory stays. Throws std::bad_alloc.
void DeviceAllocator::begin_decay(std::int64_t now, Lock& lock) {
  PagedWork work = work_of_paged_streams();
  PagedMemory::Decay::Round round;
  round.since = now - age_of(options_);
  round.began = now;
  round.can_tell.resize(static_cast<std::size_t>(work.orders.back().number) + 1);
  record(work, lock);
  for (const PagedMemory::StreamWork& one : work.ends) round.can_tell[static_cast<std::size_t>(one.stream)] = true;
  round.awaited.swap(work.ends);
  paged_->decay.round = std::move(round);
}

// All streams are awaited, for in an unmap a driver may wait for the device. One that takes as long again keeps what is
// its own. What was used meanwhile stays. Throws std::bad_alloc.
void DeviceAllocator::end_decay(std::int64_t now, Lock& lock) {
  std::optional<PagedMemory::Decay::Round>& current = paged_->decay.round;
  if (!is_work_over(current->awaited) && now - current->began < age_of(options_)) return;
  PagedMemory::Decay::Round round = *std::exchange(current, std::nullopt);
  for (const PagedMemory::StreamWork& one : round.awaited) round.can_tell[static_cast<std::size_t>(one.stream)] = false;
  PagePlacement& placement = paged_->placement;
  Departure departure = placement.leave_idle(round.since, round.can_tell);
  if (departure.empty()) return;
  std::vector<PlanOrder> orders;
  try {
    orders = orders_of(departure);
  } catch (const std::bad_alloc&) {
    placement.left(departure);
    throw;
  }
  for (PlanOrder& order : orders) order.is_done = true;
  DevicePages::Outcome refusal;
  static_cast<void>(send_back(departure, orders, refusal, lock));
}

}  // namespace cistern
