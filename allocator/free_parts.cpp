#include "allocator/free_parts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "allocator/free_runs.h"
#include "stats/invariant.h"

namespace cistern {
namespace {

// Free bytes at an edge of a page in part of it, whichever handle it is of; none: no sectors.
struct PagePart {
  Sectors sectors = 0;
  Sectors address = 0;
  friend bool operator==(const PagePart&, const PagePart&) = default;
};

PagePart ending_of(const FreeRun& run, PageSize page) {
  const Sectors edge = page.up(run.address);
  return edge <= run.end() ? PagePart{edge - run.address, run.address} : PagePart{};
}

PagePart beginning_of(const FreeRun& run, PageSize page) {
  const Sectors last = page.down(run.end());
  return last >= run.address ? PagePart{run.end() - last, last} : PagePart{};
}

}  // namespace

void FreeParts::add_streams(StreamNumber last) {
  if (const auto count = static_cast<std::size_t>(last) + 1; beginnings_.capacity() < count) {
    const std::size_t more = std::max(count, 2 * streams_.size());
    classes_.reserve(more);
    endings_.reserve(more);
    beginnings_.reserve(more);  // the last: what is said of its room is true of all
  }
  while (streams() <= last) add_stream_behind();
}

void FreeParts::add_stream_behind() {
  constexpr std::size_t kLists = 2;
  const std::size_t place = streams_.size() % kStreamsOfRoom * kLists;
  if (streams_.size() / kStreamsOfRoom == rooms_.size())
    rooms_.push_back(Fragments::room_for(table_.page(), kStreamsOfRoom * kLists));
  const OfStream& added = streams_.emplace_back(table_.page(), &nodes_, rooms_.back(), place);
  classes_.push_back(0);
  endings_.push_back(&added.endings);
  beginnings_.push_back(&added.beginnings);
}

HandleCounts FreeParts::handles_in(const FreeRun& run, Sectors begin, Sectors end) const {
  HandleCounts found;
  while (begin < end) {
    const PageTable::Handle handle = table_.handle_at(begin);
    const Sectors home = table_.home_of(handle);
    begin = home + table_.sectors_of(handle);
    if (home >= run.address && begin <= run.end()) found.add(HandleCounts::class_of(table_.pages_of(handle)), 1);
  }
  return found;
}

// To the links of a tree's node that is all that a spare one has room for.
static_assert(sizeof(FreeParts::Runs::value_type) <= 32);

void FreeParts::add_run(const ClassRun& run, std::int32_t handles) noexcept {
  runs_.try_emplace(run, handles);
  Classes& classes = classes_[static_cast<std::size_t>(run.stream)];
  const Classes bit = Classes{1} << run.size_class;
  if ((std::exchange(classes, classes | bit) & bit) != 0) return;
  ++having_[static_cast<std::size_t>(run.size_class)];
  classes_of_all_ |= bit;
}

std::int32_t FreeParts::remove_run(const ClassRun& run) noexcept {
  const auto entry = runs_.find(run);
  const std::int32_t handles = entry->second;
  const auto next = runs_.erase(entry);
  const auto is_beside = [&](Runs::const_iterator at) {
    return at->first.size_class == run.size_class && at->first.stream == run.stream;
  };
  if ((next != runs_.end() && is_beside(next)) || (next != runs_.begin() && is_beside(std::prev(next)))) return handles;
  const Classes bit = Classes{1} << run.size_class;
  classes_[static_cast<std::size_t>(run.stream)] &= ~bit;
  if (--having_[static_cast<std::size_t>(run.size_class)] == 0) classes_of_all_ &= ~bit;
  return handles;
}

void FreeParts::add_handles(IndexedRun& run, const HandleCounts& handles) noexcept {
  const FreeRun& bytes = run.run;
  handles.for_each([&](int size_class, std::int32_t count) {
    add_run({size_class, bytes.stream, bytes.sectors, bytes.address}, count);
  });
  run.classes = handles.classes();
  run.found |= IndexedRun::kHandles;
}

HandleCounts FreeParts::remove_handles(const IndexedRun& run) noexcept {
  HandleCounts found;
  const FreeRun& bytes = run.run;
  for (Classes classes = run.classes; classes != 0; classes &= classes - 1) {
    const int size_class = std::countr_zero(classes);
    found.add(size_class, remove_run({size_class, bytes.stream, bytes.sectors, bytes.address}));
  }
  return found;
}

// What was not found of runs that go lies beside what came.
void FreeParts::join_handles(std::span<const IndexedRun> gone, Sectors begin, Sectors end, IndexedRun& comes) noexcept {
  HandleCounts handles;
  for (const IndexedRun& run : gone) {
    if ((run.found & IndexedRun::kHandles) != 0) {
      handles += remove_handles(run);
    } else {
      begin = std::min(begin, run.run.address);
      end = std::max(end, run.run.end());
    }
  }
  if (has_no_page(comes.run)) comes.found |= IndexedRun::kHandles;
  if (comes.run.sectors < long_) return;
  handles += handles_in(comes.run, begin, end);
  add_handles(comes, handles);
}

// A rest that is long is of a run that was, whose handles were all counted: the smaller rest's are counted, and the
// other has what is left.
void FreeParts::part_handles(const IndexedRun& gone, Sectors begin, Sectors end, std::span<IndexedRun> rests) noexcept {
  HandleCounts left = remove_handles(gone);
  const bool has_none = (gone.found & IndexedRun::kHandles) != 0 && gone.classes == 0;
  for (IndexedRun& rest : rests)
    if (has_none || has_no_page(rest.run)) rest.found |= IndexedRun::kHandles;
  if (has_none || rests.empty()) return;
  const bool is_first = rests.size() == 1 || rests.front().run.sectors >= rests.back().run.sectors;
  IndexedRun& longer = is_first ? rests.front() : rests.back();
  if (longer.run.sectors < long_) return;
  left -= handles_in(gone.run, begin, end);
  if (rests.size() == 2) {
    IndexedRun& smaller = is_first ? rests.back() : rests.front();
    const HandleCounts counted = handles_in(smaller.run, smaller.run.address, smaller.run.end());
    left -= counted;
    if (smaller.run.sectors >= long_) add_handles(smaller, counted);
  }
  add_handles(longer, left);
}

template <class Visit>
void FreeParts::for_each_edge(OfStream& stream, Visit&& visit) {
  visit(IndexedRun::kEnding, ending_of, stream.endings,
        [this](const PageTable::Slot& slot) { return ends_handle(slot); });
  visit(IndexedRun::kBeginning, beginning_of, stream.beginnings, begins_handle);
}

// Many runs lie within a page, or go before what they offer was ever looked for; most others change at one end alone.
void FreeParts::change_edges(std::span<const IndexedRun> gone, std::span<IndexedRun> come) noexcept {
  constexpr std::uint32_t kEdges = IndexedRun::kEnding | IndexedRun::kBeginning;
  const PageSize page = table_.page();
  const auto has_edges = [page](const IndexedRun& run) { return page.up(run.run.address) <= run.run.end(); };
  for (IndexedRun& run : come)
    if (!has_edges(run)) run.found |= kEdges;
  if (std::none_of(gone.begin(), gone.end(),
                   [&](const IndexedRun& run) { return (run.found & kEdges) != 0 && has_edges(run); }))
    return;
  OfStream& stream = of(gone.front().run.stream);
  for_each_edge(stream, [&](IndexedRun::Part edge, auto part_of, Fragments& fragments, auto is_of_handle) {
    std::array<PagePart, 2> parts;  // of those that come
    for (std::size_t i = 0; i < come.size(); ++i) {
      parts[i] = part_of(come[i].run, page);
      if (parts[i].sectors == 0) come[i].found |= edge;
    }
    for (const IndexedRun& run : gone) {
      if ((run.found & edge) == 0) continue;
      const PagePart part = part_of(run.run, page);
      if (part.sectors == 0) continue;
      const auto stays = std::find(parts.begin(), parts.end(), part);
      if (stays != parts.end())
        come[static_cast<std::size_t>(stays - parts.begin())].found |= edge;
      else if (const PageTable::Slot slot = table_.slot_at(part.address); is_of_handle(slot))
        fragments.remove({part.sectors, part.address, slot});
    }
  });
}

void FreeParts::find_edges(IndexedRun& run) noexcept {
  for_each_edge(of(run.run.stream), [&](IndexedRun::Part edge, auto part_of, Fragments& fragments, auto is_of_handle) {
    if ((run.found & edge) != 0) return;
    run.found |= edge;
    const PagePart part = part_of(run.run, table_.page());
    if (part.sectors == 0) return;
    if (const PageTable::Slot slot = table_.slot_at(part.address); is_of_handle(slot))
      fragments.add({part.sectors, part.address, slot});
  });
}

void FreeParts::find(IndexedRun& run) noexcept {
  find_edges(run);
  if ((run.found & IndexedRun::kHandles) == 0) add_handles(run, handles_in(run.run, run.run.address, run.run.end()));
}

void FreeParts::add_if_shared(PageTable::Handle handle, const FreeRuns& runs) {
  const Sectors home = table_.home_of(handle);
  if (runs.is_free(home, table_.sectors_of(handle))) shared_.insert(home);
}

// Its other bytes are of runs that touch this one, and so of other streams.
void FreeParts::came_beside(const FreeRun& run, bool touches_before, bool touches_behind, const FreeRuns& runs) {
  if (touches_before) {
    const PageTable::Handle first = table_.handle_at(run.address);
    if (table_.home_of(first) < run.address) add_if_shared(first, runs);
  }
  if (touches_behind) {
    const PageTable::Handle last = table_.handle_at(run.end() - 1);
    if (table_.home_of(last) + table_.sectors_of(last) > run.end()) add_if_shared(last, runs);
  }
}

// A handle between these two lies in one run.
void FreeParts::took(Sectors address, Sectors end) noexcept {
  if (shared_.empty()) return;
  shared_.erase(table_.home_of(table_.handle_at(address)));
  shared_.erase(table_.home_of(table_.handle_at(end - 1)));
}

FreeParts::Classes FreeParts::classes_of(StreamNumber stream) const {
  return stream < streams() ? classes_[static_cast<std::size_t>(stream)] : 0;
}

FreeParts::Classes FreeParts::classes_beside(StreamNumber stream) const {
  Classes found = classes_of_all_;
  for (Classes own = classes_of(stream); own != 0; own &= own - 1)
    if (having_[static_cast<std::size_t>(std::countr_zero(own))] == 1) found &= ~(own & -own);
  return found;
}

FreeParts::RunRange FreeParts::runs_of(StreamNumber stream, int size_class) const {
  return {runs_.lower_bound({size_class, stream, 0, 0}), runs_.lower_bound({size_class, stream + 1, 0, 0})};
}

void FreeParts::audit(const FreeRuns& runs) const {
  std::size_t endings = 0;
  std::size_t beginnings = 0;
  runs.for_each([&](const FreeRun& run) {
    const OfStream& stream = streams_[static_cast<std::size_t>(run.stream)];
    const auto check = [&](const Fragments& fragments, const PagePart& part, bool is_ending, std::size_t& count) {
      if (part.sectors == 0) return;
      const PageTable::Slot slot = table_.slot_at(part.address);
      if (is_ending ? !ends_handle(slot) : !begins_handle(slot)) return;
      require(fragments.contains({part.sectors, part.address, slot}), "a free fragment is not found");
      ++count;
    };
    check(stream.endings, ending_of(run, table_.page()), true, endings);
    check(stream.beginnings, beginning_of(run, table_.page()), false, beginnings);
  });
  for (const OfStream& stream : streams_) {
    stream.endings.audit();
    stream.beginnings.audit();
    endings -= stream.endings.size();
    beginnings -= stream.beginnings.size();
  }
  require(endings == 0 && beginnings == 0, "a free fragment is found that is not there");
  audit_handles(runs);
}

void FreeParts::audit_handles(const FreeRuns& runs) const {
  std::map<std::tuple<StreamNumber, int, Sectors, Sectors>, std::int32_t> counts;  // by class, and sectors and address
  std::size_t shared = 0;
  table_.for_each_handle([&](PageTable::Handle handle) {
    const Sectors home = table_.home_of(handle);
    const Sectors sectors = table_.sectors_of(handle);
    if (!runs.is_free(home, sectors)) return;
    if (!runs.is_one_run(home, sectors)) {
      ++shared;
      return require(shared_.contains(home), "a handle that is free in parts of several streams is not found");
    }
    runs.for_each_from(home, [&](const FreeRun& run) {
      ++counts[{run.stream, HandleCounts::class_of(table_.pages_of(handle)), run.sectors, run.address}];
      return false;
    });
  });
  require(shared == shared_.size(), "a handle is found as free in parts that is not");
  for (const auto& [run, count] : runs_)
    require(counts[{run.stream, run.size_class, run.sectors, run.address}] == count,
            "wholly free handles of a run are not their number");
  for (StreamNumber number = 0; number < streams(); ++number)
    for (int size_class = 0; size_class < HandleCounts::kClasses; ++size_class)
      require(runs_of(number, size_class).empty() == ((classes_of(number) >> size_class & 1) == 0),
              "a size of free handles is not there");
  for (int size_class = 0; size_class < HandleCounts::kClasses; ++size_class)
    require(having_[static_cast<std::size_t>(size_class)] ==
                std::count_if(classes_.begin(), classes_.end(),
                              [&](Classes classes) { return (classes >> size_class & 1) != 0; }),
            "the count of streams that have a size of free handles is not their number");
  const auto had = [this](int size_class) { return (classes_of_all_ >> size_class & 1) != 0; };
  for (int size_class = 0; size_class < HandleCounts::kClasses; ++size_class)
    require((having_[static_cast<std::size_t>(size_class)] != 0) == had(size_class),
            "the sizes of all free handles are not those that streams have");
  require(runs_.size() == counts.size(), "wholly free handles of a run are not found");
}

}  // namespace cistern
