// Bytes that one stream has of another's: what the device orders them behind, and what is counted of it.

#include "allocator/device_allocator.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace cistern {

// Whether the stream's requests may have other streams' bytes now.
bool DeviceAllocator::may_take_others(StreamNumber stream, Growth growth) const noexcept {
  if (options_.stream_hand_over == StreamHandOver::never) return false;
  // Where the driver or a limit refuses more, those of a stream that stands alone, too.
  return options_.stream_hand_over != StreamHandOver::fair || growth == Growth::left ||
         !(paged_->parting.are_apart() || paged_->hand_overs.stands_alone(stream));
}

// Whether a request that would create memory has others' bytes all the same: the streams are apart, and there would be
// more than there is to be then.
bool DeviceAllocator::takes_others_instead(StreamNumber stream) const noexcept {
  const PagePlacement& placement = paged_->placement;
  return paged_->parting.are_apart() && !paged_->hand_overs.stands_alone(stream) &&
         placement.table().pages() >
             paged_->parting.most_pages(placement.table().page().whole(placement.peak_live()), little_pages());
}

// So little that streams need not have each other's bytes to save that.
std::int64_t DeviceAllocator::little_pages() const noexcept {
  constexpr std::size_t kShare = 256;
  return paged_->pages_in(std::min(limit_bytes_, device_total_bytes_) / kShare);
}

// Of a request that its stream's own known places do not serve. What streams that are over left nobody loses.
void DeviceAllocator::consider_parting(const PagePlan& plan) noexcept {
  if (options_.stream_hand_over != StreamHandOver::fair) return;
  const bool has_others = std::any_of(plan.owners.begin(), plan.owners.end(),
                                      [this](StreamNumber owner) { return !paged_->stream(owner).heap->is_ended; });
  if (!paged_->parting.note(has_others)) return;
  const PagePlacement& placement = paged_->placement;
  paged_->parting.end_round(placement.table().pages(), placement.pages_of_peaks(), little_pages());
}

// Throws std::bad_alloc.
std::vector<DeviceAllocator::PlanOrder> DeviceAllocator::orders_of(const PagePlan& plan) {
  EventPool& pool = surroundings_.event_pools.of(device_);
  std::vector<PlanOrder> orders;
  orders.reserve(plan.owners.size());
  for (const StreamNumber owner : plan.owners) {
    StreamHeap* const heap = paged_->stream(owner).heap;
    PlanOrder& order =
        orders.emplace_back(PlanOrder{StreamUse{heap->stream, device_, nullptr}, heap, heap->end, owner});
    order.is_done = is_at_rest(owner);
    if (!heap->is_ended && !order.is_done) order.end = std::make_shared<StreamEnd>(pool, nullptr);
  }
  paged_->hand_overs.provide(plan.request.stream, plan.owners);
  return orders;
}

// Known to be done with what it had queued when it freed last: nothing is to be recorded on it, nor waited for. So
// streams that come to a rest and leave their bytes to others take one event, not one for each block.
bool DeviceAllocator::is_at_rest(StreamNumber owner) const noexcept {
  return paged_->marks(owner).is_done(paged_->placement.last_free_of(owner));
}

// Orders later work of `user` behind the last use of what the plan has of others, or sees that it is over. What was
// waited for stays so: a wait keeps what the event had recorded. The host waits for nothing, which would also break a
// capture that nobody told us of: where a stream's handle is not to be used its bytes are not had.
// Requires: the lock is given up.
CUresult DeviceAllocator::order_behind(const PagePlan& plan, std::vector<PlanOrder>& orders, const StreamUse& user,
                                       bool during_capture, Behind behind, Lock& lock) noexcept {
  if (orders.empty()) return CUDA_SUCCESS;
  if (is_captured_in_context(user.stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (are_done(orders)) return CUDA_SUCCESS;
  CUresult result = record_ends(orders, during_capture);
  if (result != CUDA_SUCCESS) return result;
  lock.lock();
  keep_marks(orders);
  if (!are_done(orders)) find_last_uses(plan, orders);
  lock.unlock();
  for (PlanOrder& order : orders)
    if (!order.is_done && result == CUDA_SUCCESS) result = order_behind(order, user, behind);
  return result;
}

// Of the events that are to be recorded.
void DeviceAllocator::set_marks(std::vector<PlanOrder>& orders) noexcept {
  const auto takes_one = [](const PlanOrder& order) { return !order.is_done && order.last_use == nullptr; };
  if (std::none_of(orders.begin(), orders.end(), takes_one)) return;
  const PagePlacement::Mark mark = paged_->placement.set_mark();
  for (PlanOrder& order : orders)
    if (takes_one(order)) order.mark = mark;
}

bool DeviceAllocator::are_done(const std::vector<PlanOrder>& orders) noexcept {
  return std::all_of(orders.begin(), orders.end(), [](const PlanOrder& order) { return order.is_done; });
}

// Events behind all that the owners have queued, and whether they are done with that.
CUresult DeviceAllocator::record_ends(std::vector<PlanOrder>& orders, bool during_capture) noexcept {
  for (PlanOrder& order : orders) {
    if (order.is_done || order.last_use != nullptr) continue;
    if (order.heap->is_ended) {
      if (order.end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    } else {
      PendingFrees::Entry entry{nullptr, device_, order.owner.stream, nullptr};
      const CUresult result = record_event(order.owner, &entry.event, during_capture, false);
      order.end->event = entry.event;
      if (result != CUDA_SUCCESS) return result;
    }
    const CUresult result = order.end->event == nullptr ? CUDA_SUCCESS : api_.event_query(order.end->event);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    order.is_done = result == CUDA_SUCCESS;
  }
  return CUDA_SUCCESS;
}

// What was queued behind the last use of the bytes need not be waited for, where an event tells the two apart.
void DeviceAllocator::find_last_uses(const PagePlan& plan, std::vector<PlanOrder>& orders) const noexcept {
  for (PlanOrder& order : orders) {
    if (!order.is_done) find_last_use(paged_->placement.last_free(plan, order.number), order);
  }
}

void DeviceAllocator::find_last_use(PagePlacement::Mark last, PlanOrder& order) const noexcept {
  if (order.heap->is_ended) return;
  const StreamMarks& marks = paged_->stream(order.number).marks;
  order.is_done = marks.is_done(last);
  const StreamMarks::Mark* const mark = marks.behind(last);
  if (order.is_done || mark == nullptr) return;
  order.last_use = mark->event;
  order.last_mark = mark->number;
}

// For later plans.
void DeviceAllocator::keep_marks(const std::vector<PlanOrder>& orders) noexcept {
  for (const PlanOrder& order : orders) {
    if (order.mark == PagePlacement::kNoMark || order.heap->is_ended) continue;
    if (order.is_done)
      paged_->marks(order.number).done(order.mark);
    else
      paged_->marks(order.number).keep(order.mark, order.end);
  }
}

CUresult DeviceAllocator::order_behind(PlanOrder& order, const StreamUse& user, Behind behind) const noexcept {
  const CUevent event = (order.last_use != nullptr ? order.last_use : order.end)->event;
  if (order.last_use != nullptr || behind == Behind::done) {
    const CUresult result = api_.event_query(event);
    order.is_done = result == CUDA_SUCCESS;
    if (result != CUDA_ERROR_NOT_READY || behind == Behind::done) return result;
  }
  order.is_held_up = true;
  return api_.stream_wait_event(user.stream.handle, event, 0);
}

// A request held up by several streams was held up once.
void DeviceAllocator::note_hand_overs(const PagePlan& plan, const std::vector<PlanOrder>& orders,
                                      bool is_held_up) noexcept {
  for (const PlanOrder& order : orders) {
    Sectors sectors = 0;
    for (const FreeRun& piece : plan.taken)
      if (piece.stream == order.number) sectors += piece.sectors;
    paged_->hand_overs.note(plan.request.stream, order.number, sectors * kSectorBytes, order.is_held_up);
    is_held_up = is_held_up || order.is_held_up;
    if (order.is_done && order.last_mark != PagePlacement::kNoMark) paged_->marks(order.number).done(order.last_mark);
  }
  if (!is_held_up || options_.stream_hand_over != StreamHandOver::fair) return;
  const PagePlacement::Turnover turnover = paged_->placement.turnover(plan.request.stream);
  paged_->hand_overs.held_up(plan.request.stream, turnover.came, turnover.went);
}

}  // namespace cistern
