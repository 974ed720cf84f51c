#include "allocator/page_placement.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "allocator/tight_fit.h"

namespace cistern {
namespace {

// Entries of the log: as many as a long step of small requests takes, and more where there is more memory.
constexpr std::size_t kLogEntries = std::size_t{128} << 10;
constexpr std::size_t kLogEntriesOfPage = 32;

// A class of which so few blocks see memory created gains nothing by windows.
constexpr double kLeastHarm = 0.1;
// A page that is saved on a block of more pages is not worth its calls.
constexpr std::int64_t kMostPagesOfAWindow = 16;

}  // namespace

PagePlacement::PagePlacement(PageSize page, std::int64_t page_limit)
    : table_(page), log_(kLogEntries), page_limit_(page_limit) {}

// An arena a stream.
PageTable::Arena PagePlacement::arena_of(StreamNumber stream) {
  while (table_.arenas() <= stream) static_cast<void>(table_.add_arena());
  return stream;
}

bool PagePlacement::is_usable(Sectors address, Sectors sectors) const {
  return table_.for_each_piece(address, sectors,
                               [this](Sectors home, Sectors length) { return free_.is_free(home, length); });
}

bool PagePlacement::is_worth_a_window(const PageRequest& request) const {
  const PageSize page = table_.page();
  return request.sectors > page.sectors() / 2 && request.sectors <= page.sectors(kMostPagesOfAWindow) &&
         spending_.affords_window(page.whole(request.sectors) + 2, table_.pages()) &&
         harm_.of(request.sectors, request.stream) >= kLeastHarm;
}

PagePlan PagePlacement::placed(PagePlan plan, Sectors address, std::int64_t& count) {
  plan.kind = PlanKind::placed;
  plan.address = address;
  ++count;
  return plan;
}

PagePlan PagePlacement::plan(const PageRequest& request) {
  const PageSize page = table_.page();
  const auto usable = [&](Sectors address) { return is_usable(address, request.sectors); };
  PagePlan plan;
  plan.request = request;
  plan.key = log_.key_of(request.stream);

  log_.candidates(plan.key, request.sectors, candidates_);
  for (const LoggedPlace& place : candidates_) {
    if (usable(place.address)) {
      plan.logged_sectors = place.sectors;
      return placed(std::move(plan), place.address, counts_.logged);
    }
    // The place may be only late: taking another would change the state for ever.
    if (request.has_pending) {
      plan.kind = PlanKind::awaits_pending;
      return plan;
    }
  }

  if (request.sectors >= page.sectors() / 2)
    if (const auto window = windows_.exact(request.sectors, request.stream, usable))
      return placed(std::move(plan), *window, counts_.windows);
  const auto fit = tight_fit(free_.of(request.stream), request.sectors, page);
  if (fit && fit->pages <= page.whole(request.sectors)) return placed(std::move(plan), fit->address, counts_.fits);
  if (!fit)
    if (const auto window = windows_.longer(request.sectors, request.stream, usable))
      return placed(std::move(plan), *window, counts_.windows);
  if (is_worth_a_window(request) && plan_window_of_parts(plan, false)) return plan;
  if (fit) return placed(std::move(plan), fit->address, counts_.fits);
  plan_miss(plan);
  return plan;
}

// Handles that the block covers whole come home to it: what is free again later is one run there.
void PagePlacement::occupy(PagePlan& plan) {
  const Sectors end = plan.address + plan.request.sectors;
  for (Sectors at = plan.address; at < end;) {
    const PageTable::Handle handle = table_.handle_at(at);
    const Sectors mapped = table_.mapping_begin(at);
    const Sectors count = table_.sectors_of(handle);
    if (table_.home_of(handle) != mapped && mapped >= plan.address && mapped + count <= end) {
      free_.take(table_.home_of(handle), count, plan.taken);
      table_.move_home(handle, mapped);
      free_.give(mapped, count, plan.request.stream);
    }
    at = mapped + count;
  }
  table_.for_each_piece(plan.address, plan.request.sectors, [&](Sectors home, Sectors length) {
    free_.take(home, length, plan.taken);
    return true;
  });
}

PagedBlock PagePlacement::commit(PagePlan& plan) {
  const Sectors sectors = plan.request.sectors;
  const StreamNumber stream = plan.request.stream;
  if (plan.gather.empty())
    occupy(plan);
  else
    adopt(plan);
  for (const FreeRun& piece : plan.taken)
    if (piece.stream != stream && std::find(plan.owners.begin(), plan.owners.end(), piece.stream) == plan.owners.end())
      plan.owners.push_back(piece.stream);
  if (plan.keeps_exact) windows_.note_exact(sectors, stream, plan.address);
  if (plan.keeps_length) windows_.note_length(sectors, stream, plan.address);

  const bool is_logged = plan.logged_sectors != 0;
  const LoggedPlace place{plan.address, is_logged ? plan.logged_sectors : sectors};
  if (!is_logged) {
    log_.grow(kLogEntries + kLogEntriesOfPage * static_cast<std::size_t>(table_.pages()));
    log_.append(plan.key, place);
  }
  log_.arrived(place);
  live_ += sectors;
  peak_live_ = std::max(peak_live_, live_);
  return {plan.address, sectors, stream, place, table_.pages()};
}

void PagePlacement::freed(const PagedBlock& block) {
  live_ -= block.sectors;
  log_.left(block.logged);
  harm_.ended(block.sectors, block.stream, table_.pages() > block.pages_then);
}

void PagePlacement::settle(const PagedBlock& block) {
  table_.for_each_piece(block.address, block.sectors, [&](Sectors home, Sectors length) {
    free_.give(home, length, block.stream);
    return true;
  });
}

void PagePlacement::audit() const {
  table_.audit();
  free_.audit();
  log_.audit();
  free_.for_each([this](const FreeRun& run) {
    if (!table_.is_mapped(run.address, run.sectors)) throw std::logic_error("free bytes where nothing is mapped");
    table_.for_each_piece(run.address, run.sectors, [&](Sectors home, Sectors length) {
      if (home != run.address || length != run.sectors) throw std::logic_error("free bytes that are not at home");
      return true;
    });
  });
}

}  // namespace cistern
