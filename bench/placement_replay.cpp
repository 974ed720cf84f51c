#include "bench/placement_replay.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace cistern {
namespace {

// Calls visit(address, sectors) for the part of the range in each page.
template <class Visit>
void for_each_page(PageSize page, Sectors address, Sectors sectors, Visit&& visit) {
  for (const Sectors end = address + sectors; address < end;) {
    const Sectors until = std::min(end, page.down(address) + page.sectors());
    visit(address, until - address);
    address = until;
  }
}

}  // namespace

ByteOracle::Parts& ByteOracle::parts_of(const PageTable& table, Sectors address) {
  const PageTable::Slot slot = table.slot_at(address);
  std::vector<Parts>& pages = handles_[slot.handle];
  pages.resize(static_cast<std::size_t>(table.pages_of(slot.handle)));
  return pages[static_cast<std::size_t>(slot.page)];
}

void ByteOracle::arrive(const PageTable& table, Sectors address, Sectors sectors) {
  for_each_page(table.page(), address, sectors, [&](Sectors at, Sectors count) {
    Parts& parts = parts_of(table, at);
    const Sectors begin = table.page().offset(at);
    const auto next = parts.lower_bound(begin);
    if ((next != parts.end() && next->first < begin + count) ||
        (next != parts.begin() && std::prev(next)->second > begin))
      throw std::logic_error("two live blocks share a byte");
    parts.emplace(begin, begin + count);
  });
}

void ByteOracle::leave(const PageTable& table, Sectors address, Sectors sectors) {
  for_each_page(table.page(), address, sectors, [&](Sectors at, Sectors count) {
    Parts& parts = parts_of(table, at);
    const auto part = parts.find(table.page().offset(at));
    if (part == parts.end() || part->second - part->first != count)
      throw std::logic_error("a live block has not the bytes that it was given");
    parts.erase(part);
  });
}

PlacementReplay::PlacementReplay(const Trace& trace, const Settings& settings)
    : settings_(settings), placement_(PageSize(), settings.page_limit), live_(trace.id_count) {
  numbers_.emplace(0, 0);
  for (const TraceOperation& operation : trace.operations)
    if (operation.kind == TraceOperation::allocate || operation.kind == TraceOperation::record)
      numbers_.emplace(operation.stream, static_cast<StreamNumber>(numbers_.size()));
}

bool PlacementReplay::pass(std::span<const TraceOperation> operations) {
  for (const TraceOperation& operation : operations) {
    switch (operation.kind) {
      case TraceOperation::allocate:
        if (operation.bytes != 0 && !allocate(operation)) return false;
        break;
      case TraceOperation::record:
        record(operation);
        break;
      case TraceOperation::free:
        free(operation.id);
        break;
      case TraceOperation::step:
        continue;
    }
    ++now_;
  }
  for (std::uint32_t id = 0; id < live_.size(); ++id) free(id);
  return true;
}

bool PlacementReplay::allocate(const TraceOperation& operation) {
  settle_due(false);
  PageRequest request;
  request.sectors = (static_cast<Sectors>(operation.bytes) + kSectorBytes - 1) / kSectorBytes;
  request.stream = number_of(operation.stream);
  if (const auto known = placement_.take_known(request)) {
    hand_out(operation, *known);
    return true;
  }
  auto again = placement_.plan_known(request);
  PagePlan plan = again ? *std::move(again) : placement_.plan(request);
  if (plan.kind != PlanKind::placed) return false;
  if (!plan.gather.empty() && !carry_out(plan.gather, driver_)) {
    placement_.abandon(plan);
    return false;
  }
  if (!plan.owners.empty()) ++waits_;
  hand_out(operation, placement_.commit(plan));
  return true;
}

void PlacementReplay::hand_out(const TraceOperation& operation, const PagedBlock& block) {
  if (settings_.checks_bytes) oracle_.arrive(placement_.table(), block.address, block.sectors);
  live_[operation.id] = Live{block, false};
}

void PlacementReplay::record(const TraceOperation& operation) {
  if (std::optional<Live>& live = live_[operation.id])
    live->is_used_elsewhere = live->is_used_elsewhere || number_of(operation.stream) != live->block.stream;
}

void PlacementReplay::free(std::uint32_t id) {
  const std::optional<Live> live = std::exchange(live_[id], std::nullopt);
  if (!live) return;
  placement_.freed(live->block);
  if (settings_.checks_bytes) oracle_.leave(placement_.table(), live->block.address, live->block.sectors);
  if (live->is_used_elsewhere && settings_.event_lag > 0)
    pending_.push_back({now_ + settings_.event_lag, live->block});
  else
    placement_.settle(live->block);
}

void PlacementReplay::settle_due(bool all) {
  while (!pending_.empty() && (all || pending_.front().due <= now_)) {
    placement_.settle(pending_.front().block);
    pending_.pop_front();
  }
}

}  // namespace cistern
