// What free runs offer beside a walk over all of them: handles that are wholly free and in which order they are given
// up, fragments at the edges of handles, and the windows that are made of these. Bytes come free and are taken in any
// pieces by several streams, handles come and find other homes, and what they offer is looked for at once or later.

#include "allocator/free_parts.h"

#include "allocator/donors.h"
#include "allocator/last_window.h"
#include "allocator/window_plan.h"
#include "tests/allocator/page_sizes.h"
#include "tests/allocator/plain_free_parts.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kMostHandles = 32;
constexpr StreamNumber kStreams = 3;

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps) { add_handle(2); }

  void run() {
    while (steps_.more()) {
      const std::uint64_t kind = steps_.byte();
      step(kind % 16, static_cast<StreamNumber>(kind / 16 % kStreams));
      if (kind >= 64) compare();
    }
    compare();
  }

 private:
  using Handle = PageTable::Handle;

  Sectors below(Sectors most) { return static_cast<Sectors>(steps_.byte() % static_cast<std::uint64_t>(most)); }
  Handle pick() { return handles_[steps_.byte() % handles_.size()]; }

  void add_handle(std::int32_t pages) {
    handles_.push_back(table_.add_handle(pages));
    parts_.provide(handles_.size());
    bring(handles_.back());
  }
  // The handle is mapped somewhere else, which is its home.
  void bring(Handle handle) {
    const Sectors address = table_.reserve(arena_, table_.pages_of(handle));
    table_.map(handle, address);
    table_.move_home(handle, address);
  }

  void step(std::uint64_t kind, StreamNumber stream) {
    if (kind == 0 && handles_.size() < kMostHandles) return add_handle(1 << below(4));
    if (kind == 1) return give_of_all(stream);
    const Handle handle = pick();
    const Sectors home = table_.home_of(handle);
    const Sectors sectors = table_.sectors_of(handle);
    if (kind < 6) return give(home, sectors, stream);
    if (kind == 6) return move(handle, stream);
    const Sectors begin = below(sectors);
    const Sectors count = 1 + below(sectors - begin);
    if (kind < 11)
      give(home + begin, count, stream);
    else
      take(home + begin, count);
  }
  // What of it is not free.
  void give(Sectors address, Sectors count, StreamNumber stream) {
    for (const Sectors end = address + count; address < end;) {
      Sectors given = 0;
      while (address + given < end && !runs_.is_free(address + given, 1)) ++given;
      if (given != 0) runs_.give(address, given, stream);
      address += std::max<Sectors>(given, 1);
    }
  }
  // Many runs at once: some sectors of each page.
  void give_of_all(StreamNumber stream) {
    const Sectors begin = below(kPageOf8.sectors());
    const Sectors count = 1 + below(kPageOf8.sectors() - begin);
    for (const Handle handle : handles_)
      for (std::int32_t page = 0; page < table_.pages_of(handle); ++page)
        give(table_.home_of(handle) + kPageOf8.sectors(page) + begin, count, stream);
  }
  void take(Sectors address, Sectors count) {
    const Sectors end = address + count;
    while (address < end) {
      const RunNumber run = runs_.holding(address);
      address = run == kNoRun ? address + 1 : runs_.take_of(run, address, end).end();
    }
  }
  // As when it is gathered: its bytes are of the stream then, if they are free.
  void move(Handle handle, StreamNumber stream) {
    const Sectors sectors = table_.sectors_of(handle);
    if (!runs_.is_free(table_.home_of(handle), sectors)) return;
    runs_.take(table_.home_of(handle), sectors);
    bring(handle);
    if (steps_.byte() % 4 != 0) runs_.give(table_.home_of(handle), sectors, stream);
  }

  void compare() {
    runs_.find_parts();
    parts_.audit(runs_);
    // Of one stream more than there are.
    const std::uint64_t kind = steps_.byte();
    const auto stream = static_cast<StreamNumber>(kind % (kStreams + 1));
    const bool of_all = kind / 4 % 2 == 0;
    compare_donors(request(stream, of_all, kind / 8 % 4));
    const Sectors sectors = 1 + static_cast<Sectors>(steps_.byte());
    compare_windows(stream, of_all, sectors);
    compare_last_window(stream, of_all, sectors);
  }

  DonorRequest request(StreamNumber stream, bool of_all, std::uint64_t kept) {
    DonorRequest request{.stream = stream, .of_all_streams = of_all};
    if (kept == 0) return request;
    const Handle handle = pick();
    const auto run = runs_.ending_at(table_.home_of(handle) + table_.sectors_of(handle), stream);
    if (kept == 1 || !run) {
      request.kept[kept % 2] = handle;
    } else {
      request.kept_end = run->end();
      request.kept_begin = run->end() - 1 - below(run->sectors);
    }
    return request;
  }
  void compare_donors(const DonorRequest& request) {
    const std::vector<Handle> plain = plain_free_handles(runs_, table_, request);
    require(donors(request, std::numeric_limits<std::int64_t>::max(), false) == plain, "all handles, as they go");
    const std::uint64_t kind = steps_.byte();
    const auto pages = static_cast<std::int64_t>(kind / 2 % 40);
    const bool may_exceed = kind % 2 == 0;
    require(donors(request, pages, may_exceed) == plain_donors(plain, table_, pages, may_exceed), "the first of them");
  }
  [[nodiscard]] std::vector<Handle> donors(const DonorRequest& request, std::int64_t pages, bool may_exceed) const {
    DonorSearch search(parts_, runs_, table_, request);
    std::vector<Handle> found;
    for (const FreeHandle& handle : search.choose(pages)) {
      require_known(handle);
      found.push_back(handle.handle);
      pages -= handle.pages;
    }
    if (!may_exceed || pages <= 0) return found;
    if (const auto larger = search.first_left()) {
      require_known(*larger);
      found.push_back(larger->handle);
    }
    return found;
  }
  void require_known(const FreeHandle& handle) const {
    require(handle.pages == table_.pages_of(handle.handle) && handle.address == table_.home_of(handle.handle),
            "a free handle has its pages and its home");
  }

  void compare_windows(StreamNumber stream, bool of_all, Sectors sectors) {
    const PlainFragments plain = plain_fragments(runs_, table_, stream, of_all);
    const FragmentLists endings = parts_.endings(stream, of_all);
    const FragmentLists beginnings = parts_.beginnings(stream, of_all);
    require(all_of(endings) == plain.endings, "the fragments that end a handle");
    require(all_of(beginnings) == plain.beginnings, "the fragments that begin one");
    const auto found = plan_window(endings, beginnings, sectors, kPageOf8);
    const auto expected = plain_window(plain.endings, plain.beginnings, sectors, kPageOf8);
    require(found.has_value() == expected.has_value(), "whether fragments save a page");
    const auto all = [](const WindowPlan& plan) {
      return std::tuple(plan.pages, plan.head, plan.tail, plan.cut, plan.left, plan.skipped,
                        plan.head > 0 ? plan.ending.address : 0, plan.tail > 0 ? plan.beginning.address : 0);
    };
    require(!found || all(*found) == all(*expected), "the best window");
  }

  [[nodiscard]] bool is_free(Sectors address, Sectors count, StreamNumber stream, bool of_all) const {
    return of_all ? runs_.is_free(address, count) : runs_.is_free_of(address, count, stream);
  }
  void compare_last_window(StreamNumber stream, bool of_all, Sectors sectors) {
    const auto most_created = static_cast<std::int64_t>(steps_.byte() % 8);
    std::int64_t pages = 0;
    Sectors ending = 0;
    Sectors beginning = 0;
    for (const Handle handle : handles_) {
      const Sectors home = table_.home_of(handle);
      const Sectors all = table_.sectors_of(handle);
      if (is_free(home, all, stream, of_all)) {
        pages += table_.pages_of(handle);
        continue;
      }
      for (Sectors part = 1; part < all; ++part) {
        if (is_free(home, part, stream, of_all)) beginning = std::max(beginning, part);
        if (is_free(home + all - part, part, stream, of_all)) ending = std::max(ending, part);
      }
    }
    const auto window = last_window(parts_, runs_, table_, stream, of_all, sectors, most_created);
    const Sectors whole = kPageOf8.sectors(pages + most_created);
    require(window.has_value() == (whole + ending + beginning >= sectors), "whether all that is free is enough");
    if (!window) return;
    std::int64_t found = window->created;
    for (const FreeHandle& handle : window->handles) found += handle.pages;
    require(found - window->created == pages, "all whole handles are in the last window");
    require(0 <= window->created && window->created <= most_created, "no more is created than may be");
    require(window->created == 0 || kPageOf8.sectors(found - 1) < sectors, "nor than is missing");
    const Sectors parts = window->ending.sectors + window->beginning.sectors;
    require(parts == std::max<Sectors>(0, sectors - kPageOf8.sectors(found)), "the rest is of parts");
    if (const LastWindow::Part& part = window->ending; part.sectors != 0)
      require(part.address + part.sectors == table_.home_of(part.handle) + table_.sectors_of(part.handle) &&
                  is_free(part.address, part.sectors, stream, of_all),
              "the first part ends its handle");
    if (const LastWindow::Part& part = window->beginning; part.sectors != 0)
      require(part.address == table_.home_of(part.handle) && is_free(part.address, part.sectors, stream, of_all),
              "the last part begins its handle");
    compare_stretch(sectors);
  }
  void compare_stretch(Sectors sectors) const {
    std::optional<Sectors> expected;
    runs_.for_each([&](const FreeRun& run) {
      if (!expected && runs_.is_free(run.address, sectors)) expected = run.address;
    });
    require(free_stretch(runs_, sectors) == expected, "where so much is free side by side");
  }

  Steps steps_;
  PageTable table_{kPageOf8};
  PageTable::Arena arena_ = table_.add_arena();
  static constexpr std::int64_t kPagesOfLong = 3;  // runs of both kinds
  FreeParts parts_{table_, kPagesOfLong};
  FreeRuns runs_{&parts_};
  std::vector<Handle> handles_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program(Steps(data, size)).run();
  return 0;
}
