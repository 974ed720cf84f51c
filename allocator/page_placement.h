#pragma once

// Where a request goes in paged memory: which free bytes, which handles are gathered beside each other, what is
// created. Decides and keeps the records; the driver's calls are its caller's.
//
// The caller holds the heap's lock, but for the driver's part:
//   if (auto block = placement.take_known(request)) return *block;   // a step that comes again
//   auto known = placement.plan_known(request);    // the same, of bytes that are handed over once more
//   PagePlan plan = known ? *known : placement.plan(request);  // has what it takes to itself from here on
//   if (!plan.gather.empty()) without the lock: carry_out(plan.gather, driver)
//   PagedBlock block = placement.commit(plan);     // or placement.abandon(plan), after which all is as before
//   ...
//   placement.freed(block);                        // at the user's free, or when one that stood or was left is
//   placement.settle(block);                       // when all streams are done with it: its bytes are free
//   ...
//   Departure leaving = placement.leave(...);      // has wholly free handles to itself
//   without the lock: unmap and release them, noting what is gone
//   placement.left(leaving);
// Only take_known, plan_known, plan, leave and inherit take host memory; they throw std::bad_alloc with nothing
// changed, but for inherit.
//
// A block that comes to a known place in a known state, and any block that goes, is noted with its place alone: the
// free runs, and the homes of handles, are brought up to date by who looks at them next (page_shortcut.cpp). What
// they are then is what they would have been, so no decision depends on it. So are bytes that another stream gets in
// a known place (page_hand_over.cpp).
// Invariant: every byte of every handle is free at home, part of one block, had by one plan under way, or leaving.
// Complexity: take_known, freed and settle O(1) expected, plan_known O(pieces); take_known O(handles) where free runs
// go first (fits_first.h); else see the parts: a miss is O(log n) for n free runs and what it gathers, and sorts the
// handles that several streams have parts of; O(n) where a limit refuses it. Each place that changed costs a change of
// the free runs and of their index (free_parts.h) a piece, once, when they are looked at, and the next window of
// fragments O(log n) for each run that came. Not thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "allocator/creation_harm.h"
#include "allocator/donors.h"
#include "allocator/driver_spending.h"
#include "allocator/exact_fits.h"
#include "allocator/fits_first.h"
#include "allocator/free_parts.h"
#include "allocator/free_runs.h"
#include "allocator/gather.h"
#include "allocator/hand_overs.h"
#include "allocator/handle_ages.h"
#include "allocator/known_places.h"
#include "allocator/page_plan.h"
#include "allocator/page_table.h"
#include "allocator/past_windows.h"
#include "allocator/placement_log.h"
#include "allocator/room_to_settle.h"
#include "allocator/tight_fit.h"
#include "allocator/window_plan.h"

namespace cistern {

class PagePlacement {
 public:
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  // So many arenas grow at a time: streams beyond share them, so that addresses do not grow with streams.
  static constexpr StreamNumber kGrowingArenas = 8;

  // Entries of the log, and more where there is more memory: as many as a long step of small requests takes.
  static constexpr std::size_t kLogEntries = std::size_t{128} << 10;
  static constexpr std::size_t kLogEntriesOfPage = 32;  // more

  // From `arena_pages` pages on a stream's next addresses are in another arena.
  explicit PagePlacement(PageSize page = PageSize(), std::int64_t page_limit = kNoLimit,
                         std::int64_t arena_pages = kNoLimit, std::size_t log_entries = kLogEntries);

  // Plans that come create no memory beyond so many pages.
  void set_page_limit(std::int64_t pages) { page_limit_ = pages; }
  // The place that the log has for the request, if all is as it was then: the same is pending, nothing is under way,
  // and no other stream has bytes of it. What `plan` would say is the same, and takes the free runs to be looked at.
  [[nodiscard]] std::optional<PagedBlock> take_known(const PageRequest& request);
  // The same in two steps. The entry, which `take` follows for the request's stream if nothing happened meanwhile;
  // none: it is not known.
  [[nodiscard]] PlacementLog::Number find_known(const PageRequest& request) const;
  // `moves_peak`: what is live is exactly known, so that this may be the most that ever was.
  KnownPlaces::Number take(PlacementLog::Number known, StreamNumber stream, bool moves_peak = true);
  // The same of a place that the log may have forgotten. Requires: it is free, and its bytes the stream's. Throws
  // std::bad_alloc, unchanged.
  KnownPlaces::Number take_again(Sectors address, Sectors sectors, StreamNumber stream, bool moves_peak);
  // An entry for a larger request, if it is known without a look at the free runs that this request may have a part of
  // its place, and `plan` would say so; none: it is not. And `take_part` takes it, if nothing happened meanwhile,
  // without host memory.
  [[nodiscard]] PlacementLog::Number find_larger(const PageRequest& request) const;
  KnownPlaces::Number take_part(PlacementLog::Number larger, const PageRequest& request, bool moves_peak);
  [[nodiscard]] const LoggedPlace& logged_place(PlacementLog::Number entry) const { return log_.entry(entry).place; }
  [[nodiscard]] KnownPlaces::Number place_of(PlacementLog::Number known) const { return log_.entry(known).known; }
  // Of a place where bytes of other streams were handed over, as they are now. Nothing: it is not known.
  [[nodiscard]] std::optional<PagePlan> plan_known(const PageRequest& request);
  [[nodiscard]] PagePlan plan(const PageRequest& request);
  // page_fit.cpp: what `plan` would say of own.request, if that is free bytes of the request's own stream, where no
  // handle has to be mapped. False, with `own` of no use: it is something else, or there is no room for it. Requires:
  // nothing of `own` was filled before. And `take_own` takes them, if nothing happened meanwhile. Neither takes host
  // memory.
  [[nodiscard]] bool find_own(OwnBytes& own) noexcept;
  KnownPlaces::Number take_own(const OwnBytes& own, bool moves_peak) noexcept;
  // `moves_peak`: as of `take`.
  PagedBlock commit(PagePlan& plan, bool moves_peak = true);
  void abandon(const PagePlan& plan);
  // The block at a place, which is known as long as it is there.
  [[nodiscard]] PagedBlock block_at(KnownPlaces::Number known) const;
  [[nodiscard]] const KnownPlace& place(KnownPlaces::Number known) const { return places_[known]; }
  // Has the processor bring what `freed` looks at first.
  void fetch(KnownPlaces::Number known) const noexcept { places_.fetch(known); }
  void freed(KnownPlaces::Number known);
  void settle(KnownPlaces::Number known);
  void freed(const PagedBlock& block) { freed(block.known); }
  void settle(const PagedBlock& block) { settle(block.known); }
  // A block was freed, settled and taken again so many times while nothing else happened.
  void turned(KnownPlaces::Number known, std::int64_t times);
  // Likewise of a block among others that all came and went so, to the same places in the end.
  void recurred(StreamNumber stream, Sectors sectors, std::int64_t times);

  // page_hand_over.cpp: marks tell frees that came before something from later ones. What is freed from here on is of
  // the next mark; none is left at the end of all numbers.
  using Mark = std::uint32_t;
  static constexpr Mark kFirstMark = 1;
  static constexpr Mark kNoMark = ~Mark{0};
  [[nodiscard]] Mark set_mark() noexcept { return mark_ == kNoMark ? kNoMark : mark_++; }
  // The mark of the last free in the handles of what the plan has of the stream: all that was queued on the stream
  // before this mark is all that may use these bytes. O(handles), and what the free runs are behind.
  [[nodiscard]] Mark last_free(const PagePlan& plan, StreamNumber owner) const;
  // The same of all free bytes of the stream, and of those that were freed and not settled: the mark of its last free,
  // or of its last block that had others' bytes.
  [[nodiscard]] Mark last_free_of(StreamNumber stream) const { return freed_at_[static_cast<std::size_t>(stream)]; }

  // page_pending.cpp: where the request goes in this state, if that is not free. Throws std::bad_alloc.
  [[nodiscard]] std::optional<Sectors> taken_place(const PageRequest& request);
  // Of these places, whose blocks were freed and not settled, those that have bytes of what the request would take
  // there; none, if more is in its way. Throws std::bad_alloc.
  [[nodiscard]] std::vector<KnownPlaces::Number> in_the_way(Sectors address, const PageRequest& request,
                                                            const std::vector<KnownPlaces::Number>& pending) const;
  // Of these places, the oldest first, those without which the request would take more new memory: one that is as
  // large, or such as make handles wholly free that it can have, up to its size. Throws std::bad_alloc.
  [[nodiscard]] std::vector<KnownPlaces::Number> worth_a_wait(const PageRequest& request,
                                                              const std::vector<KnownPlaces::Number>& pending) const;
  // As `settle`: the bytes are the stream's, whoever had them.
  void settle_for(KnownPlaces::Number known, StreamNumber stream) noexcept;
  // Free bytes of the one stream are the other's: so many, or somewhat more, in whole pages where there are some; or
  // all. Returns how many. Throws std::bad_alloc, with less than that done. O(log n) for each run, and O(handles in
  // it).
  static constexpr Sectors kAllSectors = std::numeric_limits<Sectors>::max();
  Sectors inherit(StreamNumber from, StreamNumber to, Sectors least = kAllSectors);

  // page_release.cpp: as few wholly free handles as hold so many pages, or all; those at the highest addresses.
  [[nodiscard]] Departure leave(std::int64_t pages);
  void left(const Departure& departure);

  // page_decay.cpp: wholly free handles that nobody used for long. Times are the caller's, and never go back. Whoever
  // wants them has ages kept, and looks every now and then: O(handles).
  void keep_ages(bool keeps) noexcept { ages_.keep(keeps); }
  void look_for_idle(std::int64_t now) noexcept;
  // As of the last look: whether there are any that nobody used since then, whosever they are; and those of streams
  // of which `is_over` is true. `leave_idle` throws std::bad_alloc, unchanged.
  [[nodiscard]] bool has_idle(std::int64_t since) const;
  [[nodiscard]] Departure leave_idle(std::int64_t since, const std::vector<bool>& is_over);

  // An arena in which nothing is mapped any more: nobody's until it is given back.
  [[nodiscard]] std::optional<PageTable::Arena> take_empty_arena() noexcept;
  void give_arena(PageTable::Arena arena) noexcept { spare_arenas_.push_back(arena); }

  // The homes in it are those of the last time that the free runs were asked for.
  [[nodiscard]] const PageTable& table() const { return table_; }
  [[nodiscard]] const FreeRuns& free_runs() const {
    catch_up();
    return free_;
  }
  [[nodiscard]] const DriverSpending& spending() const { return spending_; }
  [[nodiscard]] const PlacementCounts& counts() const { return counts_; }
  // Whether the stream's requests look at free runs before remembered places.
  [[nodiscard]] bool fits_go_first(StreamNumber stream) const { return fits_first_.of(stream); }
  // How many blocks came to the stream so far, and how many of these were freed; what those have that were not, and
  // the most since the peaks began.
  struct Turnover {
    std::int64_t came = 0;
    std::int64_t went = 0;
    Sectors live = 0;
    Sectors peak = 0;
  };
  [[nodiscard]] Turnover turnover(StreamNumber stream) const {
    const auto index = static_cast<std::size_t>(stream);
    return index < turnover_.size() ? turnover_[index] : Turnover{};
  }
  // Of all streams: what each came up to, at its own time. O(streams).
  void begin_peaks() noexcept;
  // Of one, whose number is to be another's. Requires: nothing of it is live.
  void forget_peak(StreamNumber stream) noexcept {
    const auto index = static_cast<std::size_t>(stream);
    if (index < turnover_.size()) turnover_[index].peak = 0;
    fits_first_.forget(stream);
  }
  // Pages for what each had at most, if none had others' bytes.
  [[nodiscard]] std::int64_t pages_of_peaks() const noexcept;
  [[nodiscard]] Sectors peak_live() const { return peak_live_; }

  // page_retirement.cpp: mappings that nobody uses go, when there are many for the memory that they show. The caller
  // begins, records events on all streams that have or had blocks here, and when these are done takes some at a time,
  // unmaps them without the lock and says so. Nobody may leave meanwhile.
  struct Retiree {
    PageTable::Handle handle = -1;
    std::int32_t pages = 0;
    Sectors address = 0;
    bool is_gone = false;
  };
  [[nodiscard]] bool may_begin_retirement() const;
  // What is known of places is forgotten: the next step makes driver calls again. Throws std::bad_alloc, unchanged.
  void begin_retirement();
  void abandon_retirement() noexcept;
  [[nodiscard]] bool retires() const { return !retiring_.empty(); }
  // Memory beyond what was ever live is not created any more before free handles are gathered, where steps that wait
  // got room for that: the device has none, or it is wanted elsewhere.
  void end_room_to_settle() noexcept { room_to_settle_.end(table_.pages()); }
  // Throws std::bad_alloc, unchanged.
  [[nodiscard]] std::vector<Retiree> take_retirees(std::size_t most);
  void retired(const std::vector<Retiree>& batch) noexcept;

  // Throws std::logic_error where a part's invariant, or that free bytes are at home, does not hold.
  void audit() const;
  // The same of what it counts: blocks of so many sectors are live, so many are live or wait, and the log's state is
  // the sum of the live ones' places.
  void audit(Sectors live, std::int64_t blocks, const PlacementLog::Key& state) const;

 private:
  void add_stream(StreamNumber stream);
  [[nodiscard]] PageTable::Arena arena_of(StreamNumber stream);
  [[nodiscard]] PageTable::Arena& growing(StreamNumber stream) {
    return arenas_[static_cast<std::size_t>(stream % kGrowingArenas)];
  }
  [[nodiscard]] bool is_usable(Sectors address, const PageRequest& request) const;
  void set_positions(PagePlan& plan) const;
  // Whether the log knows states as the plan has them: since it was forgotten other places may lie at the same
  // addresses.
  [[nodiscard]] bool is_of_log(const PagePlan& plan) const { return plan.log_was_forgotten == log_.times_forgotten(); }
  using Positions = std::array<PlacementLog::Position, 2>;
  // Those that the log may know places under: it tells of hand-overs once there was one.
  [[nodiscard]] std::span<const PlacementLog::Position> known_under(const Positions& positions) const {
    return std::span(positions).first(knows_hand_overs_ ? 2 : 1);
  }
  void provide_place();
  void expect_places() noexcept;
  // Entries of the log, of all pages.
  [[nodiscard]] std::size_t most_logged() const {
    return log_entries_ + kLogEntriesOfPage * static_cast<std::size_t>(table_.pages());
  }
  // Idle places are worth so many: what the log may name, and what blocks have.
  [[nodiscard]] std::size_t most_places() const { return log_.room() + 2 * static_cast<std::size_t>(blocks_); }
  [[nodiscard]] bool has_room_for(const OwnBytes& own) const;
  void let_out(PagePlan& plan);
  void choose_place(PagePlan& plan);
  [[nodiscard]] bool is_usable_as_logged(const PageRequest& request, PlacementLog::Number number) const;
  [[nodiscard]] PlacementLog::Number choose_logged(const PageRequest& request,
                                                   std::span<const PlacementLog::Position> all);
  [[nodiscard]] bool choose_free_bytes(const PageRequest& request, std::span<const PlacementLog::Position> positions,
                                       PlaceChoice& choice, TightFit& fit);
  [[nodiscard]] TightFit find_fit(const PageRequest& request) const;
  [[nodiscard]] bool choose_own_bytes(OwnBytes& own);
  void pass_over_hand_over(const PagePlan& plan);
  [[nodiscard]] bool is_worth_a_window(const PageRequest& request) const;
  void place_at(PagePlan& plan, const PlaceChoice& choice);
  void take(PagePlan& plan, Sectors address, Sectors sectors);
  void take_of(PagePlan& plan, RunNumber run, Sectors address, Sectors end);
  void note_fit(const PageRequest& request, const TightFit& fit) noexcept;
  void note_fit_at_home(const PlacementLog::Position& position, const PageRequest& request) noexcept;
  void note(const PagePlan& plan, const LoggedPlace& place, KnownPlaces::Number known) noexcept;
  // Who was served where, and what the log said about it.
  struct Told {
    const PlacementLog::Position& position;
    const LoggedPlace& place;
    Sectors sectors;
    KnownPlaces::Number known;
    PlacementLog::Number entry;
    bool is_exact;
    bool is_beside_whole;
  };
  void tell_log(const Told& told) noexcept;
  [[nodiscard]] bool bring_home(Sectors address, Sectors sectors, bool is_at_home) noexcept;
  void know(KnownPlaces::Number number, StreamNumber stream, bool covers_handles, bool is_at_home) noexcept;
  static void describe(KnownPlace& place, bool covers_handles) noexcept;

  // page_hand_over.cpp
  // The log's entry, and what was handed over, until the next is noted; no record: none is known that may be made once
  // more.
  struct KnownHandOver {
    PlacementLog::Number number = PlacementLog::kNone;
    const HandOvers::Record* record = nullptr;
  };
  [[nodiscard]] KnownHandOver find_hand_over(const PageRequest& request) const;
  [[nodiscard]] PlacementLog::Number note_hand_over(const PagePlan& plan, KnownPlaces::Number known);
  void change_hands(std::span<const FreeRun> pieces, StreamNumber to) noexcept;
  void mark_handed_over(const PagePlan& plan) noexcept;
  PagedBlock commit_known(PagePlan& plan);
  void abandon_known(const PagePlan& plan);

  // page_shortcut.cpp
  // Whether what the log knows of free bytes holds: none are a plan's or on their way out.
  [[nodiscard]] bool is_open() const { return plans_out_ == 0 && departures_ == 0; }
  [[nodiscard]] bool is_place_of(const PlacementLog::Entry& entry, KnownPlaces::Number known) const;
  [[nodiscard]] bool lies_at_home(Sectors address, Sectors sectors) const noexcept;
  KnownPlaces::Number come_again(Sectors address, Sectors sectors, StreamNumber stream);
  void come(KnownPlaces::Number known, StreamNumber stream);
  void count_come(KnownPlace& place, std::uint32_t less, bool moves_peak) noexcept;
  // What the free runs and homes say is brought up to date. Takes no host memory: there is room.
  void catch_up() const noexcept {
    if (!places_.changed().empty()) carry_out_changes();
  }
  void carry_out_changes() const noexcept;
  [[gnu::noinline]] void follow_what_came() const noexcept;
  void mark_left(const KnownPlace& place) const noexcept;
  void give_left_bytes(bool of_live_ones) const noexcept;
  void bring_homes() const noexcept;
  void take_known_bytes() const noexcept;
  void hand_bytes_over() const noexcept;
  [[nodiscard]] bool some_homes_move() const noexcept;
  template <class Visit>
  bool for_each_new_home(Visit&& visit) const;

  // page_retirement.cpp
  [[nodiscard]] std::int64_t most_mapped() const;
  void forget_places() noexcept;
  void cut_ends() noexcept;

  // page_decay.cpp
  void note_uses() const noexcept;
  [[nodiscard]] bool is_idle(PageTable::Handle handle, std::int64_t since) const;

  // page_release.cpp
  using FreeHandles = std::vector<std::pair<Sectors, PageTable::Handle>>;  // by home
  [[nodiscard]] Departure leave(FreeHandles free, std::int64_t pages);
  void list_mappings(Departure& departure) const;

  // page_gather.cpp
  void plan_miss(PagePlan& plan);
  void plan_last_resort(PagePlan& plan);
  [[nodiscard]] bool plan_window_of_parts(PagePlan& plan, bool of_all_streams);
  [[nodiscard]] DonorSearch donors_for(const PageRequest& request, Sectors kept_begin, Sectors kept_end) const;
  [[nodiscard]] DonorSearch donors_beside(const PageRequest& request, const WindowPlan& window) const;
  [[nodiscard]] bool is_long(PageTable::Arena arena) const;
  void set_addresses(PagePlan& plan, bool goes_on_at_end);
  [[nodiscard]] Sectors tail_of(const PageRequest& request);
  void note_gathered(std::int64_t handles, const PageRequest& request) noexcept;
  // Up to so many there are to be before whole free handles are gathered: what was ever live, or what steps that wait
  // need to come to rest.
  [[nodiscard]] std::int64_t pages_before_gathering(const PageRequest& request) const;
  [[nodiscard]] bool is_dense() const;
  [[nodiscard]] std::int64_t with_growth(const PageRequest& request, std::int64_t pages) const;
  [[nodiscard]] std::int32_t pages_of_new(const PageRequest& request, std::int64_t missing) const;
  void add_mapped(PagePlan& plan, PageTable::Handle handle, std::int32_t pages, bool moves_home);
  void add_step(PagePlan& plan, std::int32_t pages, bool moves_home);
  void add_donors(PagePlan& plan, const std::vector<FreeHandle>& donors);
  void add_new(PagePlan& plan, std::int64_t pages, bool may_round_up);
  void adopt(const PagePlan& plan);
  [[nodiscard]] PageTable::Handle add_handle(std::int32_t pages);
  void remove_handle(PageTable::Handle handle) noexcept;

  // A block keeps room for so many free runs, for its free: it has at most a part of a handle at each end, and between
  // these handles that are at home side by side. One that came to a known place, for what its taking parts, too.
  static constexpr std::size_t kRunsOfBlock = 3;
  static constexpr std::size_t kRunsOfChange = 2 * kRunsOfBlock;
  // More pieces than any stretch of one's own bytes has mostly.
  static constexpr std::size_t kPiecesOfOwn = 16;
  // A handle whose home moves is cut out of one run and becomes another.
  static constexpr std::size_t kRunsOfMove = 2;

  // What follows the changes of known places, later: see catch_up.
  mutable PageTable table_;
  mutable FreeParts parts_{table_};
  mutable FreeRuns free_{&parts_};
  mutable KnownPlaces places_;
  mutable HandleAges ages_;
  mutable std::vector<std::uint32_t> decided_;  // of handles: in which round their homes were
  mutable std::uint32_t round_ = 0;
  mutable bool homes_may_move_ = false;  // since a block came to a known place, where free runs go first
  mutable bool some_came_ = false;       // blocks to known places, and the free runs do not know
  mutable bool hands_changed_ = false;   // bytes of known places became other streams', and the free runs do not know
  std::uint64_t clock_ = 0;              // of KnownPlace::came_at
  Mark mark_ = kFirstMark;               // of frees that come
  mutable std::vector<Mark> left_at_;    // of handles: the mark of the last free there
  std::vector<Mark> freed_at_;           // of streams: see last_free_of
  HandOvers hand_overs_;
  bool knows_hand_overs_ = false;  // the log may have places that bytes of others came to
  std::int64_t plans_out_ = 0;
  std::int64_t departures_ = 0;       // under way
  std::int64_t blocks_ = 0;           // live and unsettled
  std::int64_t freed_ = 0;            // of these
  std::int64_t with_less_ = 0;        // that have less than their place, and were not freed
  bool bytes_changed_hands_ = false;  // bytes of a stream became another's since the log was forgotten last
  std::vector<Turnover> turnover_;    // of streams
  PlacementLog log_;
  PastWindows windows_;
  CreationHarm harm_;
  ExactFits exact_fits_;
  FitsFirst fits_first_;
  DriverSpending spending_;
  PlacementCounts counts_;
  std::int64_t page_limit_;
  std::int64_t arena_pages_;
  std::size_t log_entries_;
  std::array<PageTable::Arena, kGrowingArenas> arenas_;  // where a stream's addresses grow; -1: nowhere yet
  std::vector<bool> is_open_;                            // an arena's: it has been a stream's, and was not taken back
  std::vector<PageTable::Arena> spare_arenas_;
  std::int64_t under_way_ = 0;  // plans with addresses that nothing is mapped at yet
  Sectors live_ = 0;
  Sectors peak_live_ = 0;
  std::vector<PlacementLog::Number> candidates_;  // room that is kept
  std::vector<Retiree> retiring_;                 // the next ones last
  std::int64_t retire_beyond_ = 0;                // mapped pages
  RoomToSettle room_to_settle_;
};

}  // namespace cistern
