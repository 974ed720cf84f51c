// Paged memory goes back to the driver: wholly free handles are unmapped wherever they show, behind the last work of
// the streams whose bytes they were, which an unmap must not overtake.

#include "allocator/device_allocator.h"
#include "runtime/driver_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cistern {

// Gives back wholly free handles, as few as hold `most` bytes. Returns the bytes. What the driver refuses stays free
// memory, the rest goes, and the refusal is thrown. Without host memory nothing goes.
std::size_t DeviceAllocator::release_paged(std::size_t most, Lock& lock) {
  if (paged_ == nullptr) return 0;
  if (most == kUnlimited) {
    paged_->hand_overs.share_anew();
    paged_->parting.come_together();
    paged_->placement.begin_peaks();
  }
  wait_for_grants(lock);
  reclaimed_.wait(lock, [this] { return !paged_->retirement.is_under_way; });
  const std::int64_t pages =
      most == kUnlimited ? PagePlacement::kNoLimit
                         : static_cast<std::int64_t>(whole_pages(most, paged_->bytes_of(1)) / paged_->bytes_of(1));
  Departure departure;
  std::vector<PlanOrder> orders;
  try {
    departure = paged_->placement.leave(pages);
    orders = orders_of(departure);
  } catch (const std::bad_alloc&) {
    paged_->placement.left(departure);
    return 0;
  }
  DevicePages::Outcome outcome;
  const std::size_t released = send_back(departure, orders, outcome, lock);
  if (outcome.result != CUDA_SUCCESS)
    throw_driver_error(api_, outcome.result, outcome.call, fmt::format("free paged memory on device {}", device_));
  return released;
}

// Returns the bytes that went.
std::size_t DeviceAllocator::send_back(Departure& departure, std::vector<PlanOrder>& orders,
                                       DevicePages::Outcome& outcome, Lock& lock) noexcept {
  std::size_t released = 0;
  if (!departure.empty() || paged_->driver.has_debts()) {
    for (const PlanOrder& order : orders) ++order.heap->waiters;
    ++reclaims_in_flight_;
    ++range_operations_;
    const bool during_capture = !routing_.empty();
    PagedMemory::UnderWay taken{&departure.taken, nullptr};
    paged_->begin(taken);
    lock.unlock();
    outcome = carry_out(departure, orders, during_capture);
    lock.lock();
    paged_->end(taken);
    --range_operations_;
    for (const PlanOrder& order : orders) --order.heap->waiters;
    released = take_out(departure, lock);
    --reclaims_in_flight_;
    reclaimed_.notify_all();
  }
  free_empty_arenas(lock);
  drop_idle_paged_streams([](const StreamHeap&) { return true; });
  return released;
}

// Whose work the unmaps must not overtake. Throws std::bad_alloc.
std::vector<DeviceAllocator::PlanOrder> DeviceAllocator::orders_of(const Departure& departure) const {
  std::vector<PlanOrder> orders;
  for (const FreeRun& piece : departure.taken) {
    StreamHeap* heap = paged_->stream(piece.stream).heap;
    const bool is_known =
        std::any_of(orders.begin(), orders.end(), [heap](const PlanOrder& order) { return order.heap == heap; });
    if (!is_known) orders.push_back({StreamUse{heap->stream, device_, nullptr}, heap, heap->end, piece.stream});
  }
  return orders;
}

// Notes in the departure what is gone, and returns the first refusal. A stream that is captured cannot be waited for,
// and what was its memory stays.
DevicePages::Outcome DeviceAllocator::carry_out(Departure& departure, std::vector<PlanOrder>& orders,
                                                bool during_capture) noexcept {
  DevicePages::Outcome refusal;
  const auto note = [&refusal](const DevicePages::Outcome& outcome) {
    const bool is_refused = outcome.result != CUDA_SUCCESS && outcome.result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (is_refused && refusal.result == CUDA_SUCCESS) refusal = outcome;
    return outcome.result == CUDA_SUCCESS;
  };
  try {
    const DriverScope scope(api_, context_, during_capture);
    for (PlanOrder& order : orders)
      if (!order.is_done)
        order.is_done = note({wait_for_owner(*order.heap, during_capture), DriverEntryId::stream_synchronize});
    const auto is_idle = [&](const Departure::Leaving& leaving) {
      const FreeRun* piece = departure.taken.data() + leaving.first_piece;
      return std::all_of(piece, piece + leaving.pieces, [&](const FreeRun& one) {
        return std::any_of(orders.begin(), orders.end(),
                           [&](const PlanOrder& order) { return order.number == one.stream && order.is_done; });
      });
    };
    for (Departure::Leaving& leaving : departure.handles) {
      if (!is_idle(leaving)) continue;
      leaving.is_gone = true;
      for (std::size_t i = 0; i < leaving.mappings && leaving.is_gone; ++i) {
        Departure::Mapping& mapping = departure.mappings[leaving.first_mapping + i];
        mapping.is_gone = leaving.is_gone = note(paged_->driver.unmap(mapping.address, leaving.pages));
      }
      if (leaving.is_gone) paged_->driver.release(leaving.handle);
    }
    if (paged_->driver.has_debts()) note(paged_->driver.settle_debts());
  } catch (...) {  // no context: nothing was unmapped
    refusal = {CUDA_ERROR_INVALID_CONTEXT, DriverEntryId::ctx_set_current};
  }
  return refusal;
}

// What went is gone, and what did not is free memory as before. Returns the bytes that went.
std::size_t DeviceAllocator::take_out(const Departure& departure, const Lock& lock) noexcept {
  std::size_t released = 0;
  for (const Departure::Leaving& leaving : departure.handles) {
    if (!leaving.is_gone) continue;
    const std::size_t bytes = paged_->bytes_of(leaving.pages);
    const Segment& segment = *paged_->stream(departure.taken[leaving.first_piece].stream).segment;
    TracePoint at = point_of(segment, lock);
    at.address = paged_->address_of(departure.mappings[leaving.first_mapping + leaving.mappings - 1].address);
    at.size = as_signed(bytes);
    recorder_.range_unmapped(segment.kind, at.size, at);
    held_bytes_ -= bytes;
    released += bytes;
  }
  paged_->placement.left(departure);
  return released;
}

// Addresses without memory go back; what the driver refuses to take is tried again with the next release.
void DeviceAllocator::free_empty_arenas(Lock& lock) noexcept {
  std::vector<PageTable::Arena>& unfreed = paged_->unfreed_arenas();
  while (unfreed.size() < unfreed.capacity()) {
    const auto arena = paged_->placement.take_empty_arena();
    if (!arena) break;
    unfreed.push_back(*arena);
    if (*arena >= paged_->known_arenas()) continue;
    stream_heaps_.remove_pages(paged_->base_of(*arena), paged_->found_bytes(*arena));
    // Before the driver has them back: they may be another arena's at once.
    paged_->forget(*arena);
  }
  for (std::size_t left = unfreed.size(); left != 0 && !unfreed.empty(); --left) {
    const PageTable::Arena arena = unfreed.front();
    unfreed.erase(unfreed.begin());
    const bool during_capture = !routing_.empty();
    lock.unlock();
    DevicePages::Outcome outcome{CUDA_ERROR_INVALID_CONTEXT, DriverEntryId::ctx_set_current};
    try {
      const DriverScope scope(api_, context_, during_capture);
      outcome = paged_->driver.free_arena(arena);
    } catch (...) {  // no context: it stays reserved
    }
    lock.lock();
    if (outcome.result != CUDA_SUCCESS) {
      unfreed.push_back(arena);
      continue;
    }
    paged_->placement.give_arena(arena);
  }
}

// Streams without bytes: what stands for them goes, so that they can be forgotten.
void DeviceAllocator::drop_idle_paged_streams(bool (*chosen)(const StreamHeap&)) noexcept {
  paged_->for_each_stream([&](StreamNumber number, const PagedMemory::Stream& stream) {
    const bool is_alone = stream.heap->references == 1 && stream.heap->waiters == 0;
    if (!chosen(*stream.heap) || !is_alone || stream.segment->first != nullptr ||
        paged_->placement.free_runs().has_any_of(number))
      return;
    Segment* const segment = stream.segment;
    --stream.heap->references;
    paged_->remove(number);
    unlink_segment(segment);
    arena_.give_back(segment);
  });
}

}  // namespace cistern
