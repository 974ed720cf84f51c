// Bytes of other streams that a request takes where it took them before: the log knows the place by how its bytes were
// handed over then. Whose bytes are is a part of the sum that the log compares, so that an equal state has them of the
// same streams, and the request's stream is to wait for the same ones.

#include <algorithm>
#include <utility>

#include "allocator/page_placement.h"

namespace cistern {

PagePlacement::KnownHandOver PagePlacement::find_hand_over(const PageRequest& request) const {
  if (!is_open() || !request.may_take_others || !knows_hand_overs_) return {};
  const PlacementLog::Number number = log_.exact(log_.position_among_all(request.stream), request.sectors);
  if (number == PlacementLog::kNone) return {};
  const PlacementLog::Entry& entry = log_.entry(number);
  const HandOvers::Record* const record = hand_overs_.find(entry.known);
  return record != nullptr && is_place_of(entry, record->place) ? KnownHandOver{number, record} : KnownHandOver();
}

std::optional<PagePlan> PagePlacement::plan_known(const PageRequest& request) {
  const auto [number, record] = find_hand_over(request);
  if (record == nullptr) return std::nullopt;
  const PlacementLog::Entry& entry = log_.entry(number);
  PagePlan plan;
  plan.kind = PlanKind::placed;
  plan.address = entry.place.address;
  plan.request = request;
  plan.taken = record->pieces;
  plan.list_owners();
  plan.logged_sectors = entry.place.sectors;
  plan.known = record->place;
  KnownPlace& place = places_[plan.known];
  plan.came_before = place.came_at;
  plan.stream_before = place.stream;
  free_.keep_room(plan.taken.size());
  try {
    come(plan.known, request.stream);
  } catch (...) {
    free_.drop_room(plan.taken.size());
    throw;
  }
  plan.room = plan.taken.size();
  plan.came_at = place.came_at;
  hands_changed_ = true;
  log_.follow(number);
  ++counts_.logged;
  plan.is_out = true;
  ++plans_out_;
  return plan;
}

PagedBlock PagePlacement::commit_known(PagePlan& plan) {
  KnownPlace& place = places_[plan.known];
  mark_handed_over(plan);
  change_hands(plan.taken, plan.request.stream);
  count_come(place, static_cast<std::uint32_t>(plan.logged_sectors - place.sectors), true);
  free_.drop_room(plan.room);
  plan.is_out = false;
  --plans_out_;
  return block_at(plan.known);
}

// The bytes are those of the streams that had them. The free runs may have them as taken: since before the place was
// left, or since somebody looked meanwhile.
void PagePlacement::abandon_known(const PagePlan& plan) {
  KnownPlace& place = places_[plan.known];
  place.is_live = false;
  places_.change(plan.known);
  if (place.came_at == plan.came_at) {
    place.came_at = plan.came_before;
    place.stream = plan.stream_before;
  }
  if (std::exchange(place.is_taken, false))
    for (const FreeRun& piece : plan.taken)
      table_.for_each_piece(piece.address, piece.sectors, [&](Sectors home, Sectors length) {
        free_.give(home, length, piece.stream);
        return true;
      });
  free_.drop_room(plan.room);
  --plans_out_;
}

PagePlacement::Mark PagePlacement::last_free(const PagePlan& plan, StreamNumber owner) const {
  catch_up();
  Mark last = kFirstMark;  // handles have none until marks are set
  for (const FreeRun& piece : plan.taken)
    if (piece.stream == owner)
      table_.for_each_handle_in(piece.address, piece.sectors, [&](PageTable::Handle handle) {
        last = std::max(last, left_at_[static_cast<std::size_t>(handle)]);
      });
  return last;
}

// Its stream may wait for the others from here on: who has these bytes of it later is to be behind that.
void PagePlacement::mark_handed_over(const PagePlan& plan) noexcept {
  if (plan.owners.empty()) return;
  freed_at_[static_cast<std::size_t>(plan.request.stream)] = mark_;
  for (const FreeRun& piece : plan.taken)
    table_.for_each_handle_in(piece.address, piece.sectors,
                              [&](PageTable::Handle handle) { left_at_[static_cast<std::size_t>(handle)] = mark_; });
}

// Bytes of other streams are that stream's from here on.
void PagePlacement::change_hands(std::span<const FreeRun> pieces, StreamNumber to) noexcept {
  for (const FreeRun& piece : pieces) {
    if (piece.stream == to) continue;
    bytes_changed_hands_ = true;
    for (Sectors at = piece.address; at < piece.end();) {
      const PageTable::Handle handle = table_.handle_at(at);
      const Sectors mapped = table_.mapping_begin(at);
      const Sectors end = std::min(piece.end(), mapped + table_.sectors_of(handle));
      const auto stretch_of = [&](StreamNumber stream) {
        PlacementLog::Key key = PlacementLog::mark_of_bound(handle, end - mapped, stream);
        PlacementLog::add(key, PlacementLog::less(PlacementLog::mark_of_bound(handle, at - mapped, stream)));
        return key;
      };
      log_.changed_hands(to, stretch_of(to));
      log_.changed_hands(piece.stream, PlacementLog::less(stretch_of(piece.stream)));
      at = end;
    }
  }
}

// The smallest run that has it all, else one of a page, else any.
Sectors PagePlacement::inherit(StreamNumber from, StreamNumber to, Sectors least) {
  catch_up();
  const PageSize page = table_.page();
  Sectors sectors = 0;
  while (sectors < least && free_.has_any_of(from)) {
    const Sectors missing = least - sectors;
    FreeRun run;
    for (const Sectors size : {std::min(missing, page.sectors(table_.pages())), page.sectors(), Sectors{1}}) {
      if (run.sectors != 0) break;
      free_.by_size().for_each_from(from, size, [&run](RunNumber /*number*/, const RunNode& smallest) {
        run = smallest.run();
        return false;
      });
    }
    if (const Sectors first = page.up(run.address); missing < run.end() - first)
      run = {first, std::min(page.up(missing), run.end() - first), from};
    free_.keep_room(2);  // one for what the take parts
    free_.drop_room(2);
    free_.take(run.address, run.sectors);
    free_.give(run.address, run.sectors, to);
    change_hands({&run, 1}, to);
    sectors += run.sectors;
  }
  return sectors;
}

// What the log is to know of a place that bytes of other streams were handed over to; none of one that was gathered,
// for then more changed hands than the block has. Throws std::bad_alloc.
PlacementLog::Number PagePlacement::note_hand_over(const PagePlan& plan, KnownPlaces::Number known) {
  if (!plan.gather.empty()) return PlacementLog::kNone;
  HandOvers::Record record{known, plan.taken};
  Sectors address = plan.address;  // pieces are in the place's order
  for (FreeRun& piece : record.pieces) {
    piece.address = address;
    address = piece.end();
  }
  return hand_overs_.note(std::move(record));
}

}  // namespace cistern
