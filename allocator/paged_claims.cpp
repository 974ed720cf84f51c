// Frees that other streams' work precedes, claimed before that is done: the request's stream waits for it on the
// device, and the bytes are its own. So what comes again is placed as before, however late events are, and memory is
// not created for bytes that are free but for a wait.

#include "allocator/device_allocator.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace cistern {

// A thread's hold on the blocks that it claims: nobody completes them meanwhile.
struct DeviceAllocator::Claim {
  std::vector<Block*> blocks;
  PagePlan bytes;  // as a plan has those of others
  std::vector<PlanOrder> orders;
  PendingFrees::Batch events;
  bool is_held_up = false;
};

bool DeviceAllocator::may_claim(const PageRequest& wanted) const noexcept {
  return claims_ && wanted.may_take_others && !pending_.empty() && !capture_under_way();
}

// Pending frees whose events are all at hand, the oldest first. Throws std::bad_alloc.
std::vector<Block*> DeviceAllocator::claimable_frees() const {
  constexpr std::size_t kMost = 256;  // each is looked at, with the lock held
  std::vector<Block*> found;          // each once for each event
  pending_.for_each_queued([&](const PendingFrees::Entry& entry) {
    const Segment& segment = *entry.block->segment;
    const bool is_ordered = !segment.owner->is_ended || segment.owner->end != nullptr;
    if (segment.is_paged() && is_ordered && entry.device == device_) found.push_back(entry.block);
  });
  std::sort(found.begin(), found.end(), [](const Block* a, const Block* b) {
    return a->freed_at != b->freed_at ? a->freed_at < b->freed_at : a->address < b->address;
  });
  std::vector<Block*> whole;
  for (auto first = found.begin(); first != found.end() && whole.size() < kMost;) {
    const auto last = std::find_if(first, found.end(), [first](const Block* block) { return block != *first; });
    if (last - first == static_cast<std::ptrdiff_t>((*first)->pending_events)) whole.push_back(*first);
    first = last;
  }
  return whole;
}

// Where only pending frees keep the request from a place that is known for it. Throws std::bad_alloc, unchanged.
void DeviceAllocator::claim_known_place(const Request& request, const PageRequest& wanted, Lock& lock) {
  if (!may_claim(wanted)) return;
  const auto address = paged_->placement.taken_place(wanted);
  if (!address) return;
  std::vector<Block*> blocks = claimable_frees();
  keep_blocks_at(blocks, paged_->placement.in_the_way(*address, wanted, places_of(blocks)));
  if (!blocks.empty()) static_cast<void>(claim(std::move(blocks), request, wanted.stream, lock));
}

// For a request that the plan takes new memory for beyond what was ever live, or that the limit refuses; the plan is
// given up. Whether some frees were claimed: it is to be planned anew. Throws std::bad_alloc.
bool DeviceAllocator::claim_for(const PagePlan& plan, const Request& request, Lock& lock) {
  const PageRequest& wanted = plan.request;
  if (plan.kind == PlanKind::placed) paged_->placement.abandon(plan);
  if (!may_claim(wanted)) return false;
  std::vector<Block*> blocks = claimable_frees();
  if (plan.kind == PlanKind::placed) {
    keep_blocks_at(blocks, paged_->placement.worth_a_wait(wanted, places_of(blocks)));
  } else {  // at the limit any bytes help
    std::size_t count = 0;
    for (std::size_t bytes = 0; count < blocks.size() && bytes < request.rounded; ++count)
      bytes += blocks[count]->bytes;
    blocks.resize(count);
  }
  return !blocks.empty() && claim(std::move(blocks), request, wanted.stream, lock);
}

std::vector<KnownPlaces::Number> DeviceAllocator::places_of(const std::vector<Block*>& blocks) {
  std::vector<KnownPlaces::Number> places;
  places.reserve(blocks.size());
  for (const Block* block : blocks) places.push_back(PagedMemory::place_of(*block));
  return places;
}

void DeviceAllocator::keep_blocks_at(std::vector<Block*>& blocks, const std::vector<KnownPlaces::Number>& places) {
  std::erase_if(blocks, [&](const Block* block) {
    return std::find(places.begin(), places.end(), PagedMemory::place_of(*block)) == places.end();
  });
}

// Whether the blocks' bytes are the stream's now. The lock is given up. Throws std::bad_alloc, unchanged.
bool DeviceAllocator::claim(std::vector<Block*> blocks, const Request& request, StreamNumber stream, Lock& lock) {
  Claim claim;
  claim.blocks = std::move(blocks);
  std::sort(claim.blocks.begin(), claim.blocks.end());
  claim.bytes.request.stream = stream;
  for (const Block* block : claim.blocks) {
    const KnownPlace& place = paged_->placement.place(PagedMemory::place_of(*block));
    claim.bytes.taken.push_back({place.address, place.sectors, place.stream});
  }
  claim.bytes.list_owners();
  claim.orders = orders_of(claim.bytes);
  find_last_uses(claim);
  for (PlanOrder& order : claim.orders) ++order.heap->waiters;
  for (Block* block : claim.blocks) ++block->pending_events;
  pending_.take(claim.blocks, claim.events);
  ++reclaims_in_flight_;
  const bool during_capture = !routing_.empty();
  const StreamUse user{request.pools->stream, device_, nullptr};
  lock.unlock();
  const CUresult result = order_behind(claim, user, during_capture);
  lock.lock();
  for (const PlanOrder& order : claim.orders) --order.heap->waiters;
  finish(claim, result == CUDA_SUCCESS, lock);
  --reclaims_in_flight_;
  reclaimed_.notify_all();
  return result == CUDA_SUCCESS;
}

// What the owners queued after the frees need not be waited for: see order_behind of a plan.
void DeviceAllocator::find_last_uses(Claim& claim) noexcept {
  for (PlanOrder& order : claim.orders) {
    PagePlacement::Mark last = PagePlacement::kFirstMark;
    for (const Block* block : claim.blocks)
      if (block->segment->paged_stream == order.number)
        last = std::max(last, paged_->placement.place(PagedMemory::place_of(*block)).left_at);
    find_last_use(last, order);
  }
  set_marks(claim.orders);
}

// Behind the owners' last uses, and behind what the frees wait for.
CUresult DeviceAllocator::order_behind(Claim& claim, const StreamUse& user, bool during_capture) noexcept {
  try {
    const DriverScope scope(api_, context_, during_capture);
    if (is_captured_in_context(user.stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = record_ends(claim.orders, during_capture);
    for (PlanOrder& order : claim.orders)
      if (result == CUDA_SUCCESS && !order.is_done) result = order_behind(order, user, Behind::queued);
    for (const PendingFrees::Node* node = claim.events.first; node != nullptr; node = node->next) {
      if (result != CUDA_SUCCESS) return result;
      result = api_.event_query(node->event);
      if (result != CUDA_ERROR_NOT_READY) continue;
      claim.is_held_up = true;
      result = api_.stream_wait_event(user.stream.handle, node->event, 0);
    }
    return result;
  } catch (...) {  // no context
    return CUDA_ERROR_INVALID_CONTEXT;
  }
}

// Ends the hold. What was not ordered stays pending.
void DeviceAllocator::finish(Claim& claim, bool is_ordered, const Lock& lock) noexcept {
  const StreamNumber stream = claim.bytes.request.stream;
  if (is_ordered) {
    while (claim.events.first != nullptr) static_cast<void>(pending_.finish_first(claim.events));
    keep_marks(claim.orders);
    note_hand_overs(claim.bytes, claim.orders, claim.is_held_up);
  }
  pending_.put_back(claim.events);
  for (Block* block : claim.blocks)
    if (--block->pending_events == 0)
      static_cast<void>(complete_paged_free(block, is_ordered ? stream : block->segment->paged_stream, lock));
}

}  // namespace cistern
