// Blocks in paged memory: the ladder of the policy `paged`, which makes its own from the placement's plans.
//
// A plan has what it takes to itself: the lock is given up around the driver's part of it, which is all or nothing.
// Where it takes free bytes of other streams, the request's stream waits on the device for what they had queued, before
// the block is anybody's; the host waits for nothing. Where the driver has no addresses for another mapping, segments
// serve, as under `classic`.

#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {
namespace {

bool creates(const PagePlan& plan) {
  for (const Gather::Step& step : plan.gather.steps)
    if (step.is_new) return true;
  return false;
}

std::int64_t created_pages(const PagePlan& plan) {
  std::int64_t pages = 0;
  for (const Gather::Step& step : plan.gather.steps) pages += step.is_new ? step.pages : 0;
  return pages;
}

}  // namespace

Block* DeviceAllocator::serve_paged(Request& request, Lock& lock) {
  request.segment_bytes = request.rounded;
  if (decays_) {
    const PoolReference keeps(*request.pools, lock);
    decay_paged(lock);
  }
  if (!budgets_.empty()) require_within_budgets(request, nullptr, lock);
  if (Block* block = take_known_place(request, lock)) return block;
  // What segments served since addresses ran out they serve again without the driver.
  if (request.pools->lacks_addresses && find_free_block(request) != nullptr) return nullptr;
  const PoolReference keeps(*request.pools, lock);
  Refusals refusals;
  const std::optional<PagedBlock> place = find_place(request, refusals, lock);
  if (!place && refusals.has_no_addresses) {
    request.pools->lacks_addresses = true;
    ++requests_without_addresses_;
    arena_.reserve(1, 0);
    return nullptr;
  }
  if (!place) {
    Block* block = take_from_overflow(request);
    if (block == nullptr) fail(request, lock);
    return hand_out_overflow(block, request, lock);
  }
  try {
    // The lock may have been given up: others may have used what was reserved, and what is live has changed.
    arena_.reserve(1, 0);
    make_room_for_paged(*request.pools);
    if (!budgets_.empty()) require_within_budgets(request, nullptr, lock);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    paged_->placement.freed(*place);
    paged_->placement.settle(*place);
    throw;
  }
  return hand_out(place->known, request, lock);
}

// A step that comes again: without the driver, and without giving the lock up. Null: what it would take is not known.
// Throws std::bad_alloc, unchanged.
Block* DeviceAllocator::take_known_place(const Request& request, const Lock& lock) {
  const StreamNumber stream = request.pools->paged_stream;
  if (stream < 0) return nullptr;
  arena_.reserve(1, 0);
  make_room_for_paged(*request.pools);
  const auto place = paged_->placement.take_known({PagedMemory::sectors_for(request.rounded), stream, true});
  return place ? hand_out(place->known, request, lock) : nullptr;
}

// For one more block of the stream, wherever it will be. Throws std::bad_alloc, unchanged.
void DeviceAllocator::make_room_for_paged(StreamHeap& heap) {
  stream_heaps_.make_room_for_guest();
  heap.live.make_room();
}

// Nothing: there is no memory for the request, or no addresses.
std::optional<PagedBlock> DeviceAllocator::find_place(const Request& request, Refusals& refusals, Lock& lock) {
  const bool asks = surroundings_.observers.has_free_memory_callbacks();
  const bool may_create = !asks && !collects_garbage();
  if (auto place = try_place(request, may_create ? Growth::allowed : Growth::unasked, refusals, lock)) return place;
  if (refusals.has_no_addresses) return std::nullopt;
  if (!may_create) {
    if (asks) static_cast<void>(call_free_memory_callbacks(request, lock));
    if (collects_garbage()) collect_garbage(lock);
    if (auto place = try_place(request, Growth::allowed, refusals, lock)) return place;
    if (refusals.has_no_addresses) return std::nullopt;
  }
  try {
    // What the driver refused, free handles and fragments may bring, beside what it has left.
    if (auto place = try_place(request, Growth::left, refusals, lock)) return place;
    if (refusals.has_no_addresses || capture_under_way()) return std::nullopt;
    full_flush(lock);
    recorder_.allocation_retried();
    if (auto place = try_place(request, Growth::allowed, refusals, lock)) return place;
    return try_place(request, Growth::left, refusals, lock);
  } catch (const std::bad_alloc&) {  // the device was short of memory first: that is what the caller must hear of
    return std::nullopt;
  }
}

// One attempt. Nothing: the limit forbids it, or the driver has no memory; any other failure of the driver is thrown.
std::optional<PagedBlock> DeviceAllocator::try_place(const Request& request, Growth growth, Refusals& refusals,
                                                     Lock& lock) {
  // A plan for more than there can be would take host memory for its addresses before the driver says no.
  if (request.rounded > device_total_bytes_) return std::nullopt;
  retire_mappings(lock);
  PagePlacement& placement = paged_->placement;
  const StreamNumber stream = paged_stream(*request.pools);
  PageRequest wanted{PagedMemory::sectors_for(request.rounded), stream, may_take_others(stream, growth),
                     !paged_->parting.are_apart()};
  claim_known_place(request, wanted, lock);
  bool may_claim_more = true;
  bool was_refused = false;  // others' bytes
  bool has_inherited = false;
  const bool must_be_done = options_.stream_hand_over == StreamHandOver::done && growth != Growth::left;
  for (;;) {
    wait_for_grants(lock);  // whenever the lock was given up, and while no plan is out
    set_page_limit(growth, refusals.pages_left);
    auto known = placement.plan_known(wanted);
    PagePlan plan = known ? *std::move(known) : placement.plan(wanted);
    const bool is_placed = plan.kind == PlanKind::placed;
    if (may_claim_more && (!is_placed || (plan.exceeds_peak && creates(plan)))) {
      may_claim_more = claim_for(plan, request, lock);
      if (may_claim_more || is_placed) continue;
    }
    // Bytes of nobody, whatever streams may have of each other. Where memory can be created as much as is asked for,
    // once, for what there is may be none that serves it.
    const bool lacks_memory =
        !wanted.may_take_others && (!is_placed || (creates(plan) && !std::exchange(has_inherited, true)));
    if (lacks_memory && inherit_idle_bytes(stream, wanted.sectors)) {
      if (is_placed) placement.abandon(plan);
      continue;
    }
    if (!is_placed) return std::nullopt;
    if (!wanted.may_take_others && !was_refused && creates(plan) && takes_others_instead(stream)) {
      placement.abandon(plan);
      wanted.may_take_others = may_claim_more = true;
      continue;
    }
    if (plan.gather.empty() && plan.owners.empty()) return commit(plan, lock);
    if (growth == Growth::unasked && creates(plan)) {
      placement.abandon(plan);
      return std::nullopt;
    }
    DevicePages::Outcome outcome;
    try {
      if (!plan.gather.empty()) paged_->provide_for(PageTable::arena_of(plan.gather.address));
      std::vector<PlanOrder> orders = orders_of(plan);
      outcome = carry_out(plan, orders, request, must_be_done ? Behind::done : Behind::queued, lock);
      if (outcome.result == CUDA_SUCCESS) note_hand_overs(plan, orders, false);
    } catch (...) {
      placement.abandon(plan);
      throw;
    }
    if (outcome.result == CUDA_SUCCESS) return commit(plan, lock);
    placement.abandon(plan);
    out_of_addresses_ = refusals.has_no_addresses =
        outcome.result == CUDA_ERROR_OUT_OF_MEMORY && outcome.call == DriverEntryId::mem_address_reserve;
    if (outcome.call == DriverEntryId::stream_wait_event && wanted.may_take_others) {
      wanted.may_take_others = false;  // they are at work, or it cannot be ordered behind them, as in a capture
      was_refused = true;
      continue;
    }
    if (outcome.result == CUDA_ERROR_OUT_OF_MEMORY) {
      placement.end_room_to_settle();  // or each miss would ask in vain
      const bool has_less = outcome.call == DriverEntryId::mem_create && outcome.created < refusals.pages_left;
      refusals.pages_left = outcome.call == DriverEntryId::mem_create ? outcome.created : 0;
      if (growth == Growth::left && has_less) continue;
      return std::nullopt;
    }
    throw_driver_error(api_, outcome.result, outcome.call,
                       fmt::format("{} bytes of paged memory on device {}", request.rounded, device_));
  }
}

// The stream's number, which it has as long as it has bytes. Throws std::bad_alloc, unchanged.
StreamNumber DeviceAllocator::paged_stream(StreamHeap& heap) {
  if (heap.paged_stream >= 0) return heap.paged_stream;
  arena_.reserve(1, 1);
  const StreamNumber number = paged_->add({&heap, nullptr});
  Segment* segment = arena_.take_segment();
  segment->stream = heap.stream;
  segment->kind = PoolKind::large;  // paged memory has one kind of blocks
  segment->owner = &heap;
  segment->pool = &heap.of(PoolKind::large);
  segment->paged_stream = number;
  paged_->set_segment(number, segment);
  link_segment(segment);
  ++heap.references;
  return number;
}

void DeviceAllocator::set_page_limit(Growth growth, std::int64_t pages_left) noexcept {
  PagePlacement& placement = paged_->placement;
  std::int64_t limit = PagePlacement::kNoLimit;
  if (limit_bytes_ != kUnlimited) {
    const std::size_t others = held_bytes_ + arriving_bytes_ - paged_->bytes_of(placement.table().pages());
    limit = others < limit_bytes_ ? paged_->pages_in(limit_bytes_ - others) : 0;
  }
  if (growth == Growth::left) limit = std::min(limit, placement.table().pages() + pages_left);
  placement.set_page_limit(limit);
}

// The driver's part of a plan. Meanwhile nobody's stream is destroyed that the plan has bytes of.
DevicePages::Outcome DeviceAllocator::carry_out(const PagePlan& plan, std::vector<PlanOrder>& orders,
                                                const Request& request, Behind behind, Lock& lock) noexcept {
  const std::size_t arriving = paged_->bytes_of(created_pages(plan));
  arriving_bytes_ += arriving;
  ++range_operations_;
  set_marks(orders);
  for (PlanOrder& order : orders) ++order.heap->waiters;
  const bool during_capture = !routing_.empty();
  const bool shareable = !follows_2_4();
  const StreamUse user{request.pools->stream, device_, nullptr};
  PagedMemory::UnderWay taken{&plan.taken, nullptr};
  paged_->begin(taken);
  lock.unlock();
  DevicePages::Outcome outcome{CUDA_ERROR_INVALID_CONTEXT, DriverEntryId::ctx_set_current};
  try {
    const DriverScope scope(api_, context_, during_capture);
    outcome = {order_behind(plan, orders, user, during_capture, behind, lock), DriverEntryId::stream_wait_event};
    if (outcome.result == CUDA_SUCCESS && !plan.gather.empty())
      outcome = paged_->driver.carry_out(plan.gather, peers_, shareable);
  } catch (...) {  // no context: nothing was mapped
  }
  lock.lock();
  paged_->end(taken);
  for (const PlanOrder& order : orders) --order.heap->waiters;
  --range_operations_;
  arriving_bytes_ -= arriving;
  reclaimed_.notify_all();
  return outcome;
}

PagedBlock DeviceAllocator::commit(PagePlan& plan, const Lock& lock) noexcept {
  consider_parting(plan);
  const PagedBlock place = paged_->placement.commit(plan);
  if (plan.gather.empty()) return place;
  const PageTable::Arena arena = PageTable::arena_of(plan.gather.address);
  paged_->learn(arena);
  note_addresses(paged_->base_of(arena), paged_->base_of(arena) + paged_->driver.arena_bytes());
  const std::uint64_t address = paged_->address_of(plan.gather.address);
  const std::size_t bytes = paged_->bytes_of(plan.gather.pages);
  if (stream_heaps_.add_pages(address, bytes, *paged_->stream(plan.request.stream).heap))
    paged_->note_found(arena, address + bytes);
  const std::int64_t pages = created_pages(plan);
  if (pages == 0) return place;
  held_bytes_ += paged_->bytes_of(pages);
  const Segment& segment = *paged_->stream(plan.request.stream).segment;
  TracePoint at = point_of(segment, lock);
  for (const Gather::Step& step : plan.gather.steps) {
    if (!step.is_new) continue;
    at.address = paged_->address_of(step.address);  // of the first: they lie side by side
    break;
  }
  at.size = as_signed(paged_->bytes_of(pages));
  recorder_.range_mapped(segment.kind, at.size, at);
  return place;
}

// A free that nobody waits for, counted as one.
void HeapBlocks::free_paged_at_once(Block* block) noexcept {
  recorder_.freed(block->kind, as_signed(block->bytes), as_signed(block->requested), {}, block->oversize,
                  attribution(*block));
  history_.let_go(block->stack);
  put_free_paged(block, arena_.spares());
}

// Its bytes are free, and the block is a spare one.
void HeapBlocks::put_free_paged(Block* block, BlockSpares& spares) noexcept {
  paged_->placement.freed(PagedMemory::place_of(*block));
  settle_paged(block, spares);
}

// The same of a block whose free was told to the placement before.
void HeapBlocks::settle_paged(Block* block, BlockSpares& spares) noexcept {
  leave_pages(*block);
  paged_->placement.settle(PagedMemory::place_of(*block));
  paged_->detach(*block);
  spares.give(block);
}

// Its bytes are that stream's.
Block* HeapBlocks::complete_paged_free(Block* block, StreamNumber to, const Lock& lock) {
  recorder_.trace(TraceAction::free_completed, [&] { return point_of(*block, lock); });
  const std::size_t bytes = block->bytes;
  const std::size_t requested = block->requested;
  const Attribution of = attribution(*block);
  const PoolKind kind = block->segment->kind;
  const std::uint64_t grant = block->freed_in_grant;
  if (std::exchange(block->has_uses, false)) retire(block->uses, *block->segment->owner);
  history_.let_go(block->stack);
  leave_pages(*block);
  if (to == block->segment->paged_stream)
    paged_->placement.settle(PagedMemory::place_of(*block));
  else
    paged_->placement.settle_for(PagedMemory::place_of(*block), to);
  paged_->detach(*block);
  arena_.give_back(block);
  recorder_.free_completed(kind, as_signed(bytes), as_signed(requested), {}, of, grant);
  return nullptr;
}

}  // namespace cistern
