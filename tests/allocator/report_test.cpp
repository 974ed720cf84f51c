// The memory report of heaps of any shape: its figures are the statistics', and add up to the card.

#include <cistern/allocator.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>
#include <cistern/snapshot.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/byte_units.h"
#include "tests/property.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

[[maybe_unused]] const bool report_configured = configure_properties("MemoryReportOfHeaps", 1000, 80);

constexpr std::size_t kCapacity = 512 * kMega;

// The lines with figures: names and bytes, under the heading that they follow.
using Table = std::vector<std::pair<std::string, std::int64_t>>;
std::map<std::string, Table> tables_of(const std::string& text) {
  std::map<std::string, Table> tables;
  std::string heading;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    RC_ASSERT(line.size() <= 110U);
    if (line.rfind("  ", 0) != 0) {
      heading = line.substr(0, line.find(','));
      continue;
    }
    if (heading.rfind("What", 0) == 0) continue;
    const std::string name = line.substr(2, 27);
    if (heading.rfind("Memory of", 0) == 0) heading = "Memory";
    tables[heading].emplace_back(name.substr(0, name.find_last_not_of(' ') + 1), std::stoll(line.substr(29)));
  }
  return tables;
}

// The picture's parts without what they consist of in turn, and that on its own.
struct Picture {
  std::map<std::string, std::int64_t> parts;
  std::int64_t pending_by_stream = 0;
};
Picture picture_of(const Table& table) {
  Picture picture;
  for (const auto& [name, bytes] : table) {
    if (name.rfind("  ", 0) == 0)
      picture.pending_by_stream += bytes;
    else
      picture.parts[name] = bytes;
  }
  return picture;
}

// Of a free block: what a flush would give back, whole pages of an expandable segment among it.
std::int64_t whole_part(const SegmentInfo& segment, const BlockInfo& block) {
  if (!segment.is_expandable) return block.size == segment.total_size ? block.size : 0;
  const std::int64_t page = (segment.is_large ? 20 : 2) * static_cast<std::int64_t>(kMega);
  const auto begin = static_cast<std::int64_t>(block.address - segment.range_address);
  const std::int64_t first = (begin + page - 1) / page;
  return std::max(std::int64_t{0}, (begin + block.size) / page - first) * page;
}

// The picture once more, from the blocks of a snapshot.
std::map<std::string, std::int64_t> walked_parts(const CachingAllocator& allocator) {
  std::map<std::string, std::int64_t> parts;
  for (const SegmentInfo& segment : allocator.snapshot().segments)
    for (const BlockInfo& block : segment.blocks) {
      switch (block.state) {
        case BlockState::active_allocated:
          parts["live"] += block.requested_size;
          parts["rounding"] += block.size - block.requested_size;
          break;
        case BlockState::active_pending_free:
          parts["pending"] += block.size;
          break;
        case BlockState::inactive:
          if (segment.segment_pool_id != std::pair<std::int64_t, std::int64_t>{0, 0}) {
            parts["free, private"] += block.size;
            break;
          }
          parts["free, whole"] += whole_part(segment, block);
          parts["free, split"] += block.size - whole_part(segment, block);
      }
    }
  return parts;
}

void require_report_that_adds_up(const CachingAllocator& allocator, const MemoryStats& stats) {
  const std::map<std::string, Table> tables = tables_of(allocator.memory_report());
  Picture picture = picture_of(tables.at("Memory"));
  auto& parts = picture.parts;
  RC_ASSERT(parts.at("together") == static_cast<std::int64_t>(kCapacity));
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : parts)
    if (name != "together") sum += bytes;
  RC_ASSERT(sum == parts.at("together"));
  std::map<std::string, std::int64_t> walked = walked_parts(allocator);
  for (const char* name : {"live", "rounding", "pending", "free, private", "free, whole", "free, split"})
    if (parts.at(name) != walked[name])
      RC_FAIL(std::string(name) + ": the report has " + std::to_string(parts.at(name)) + ", the blocks " +
              std::to_string(walked[name]));
  RC_ASSERT(parts.at("live") + parts.at("rounding") == stats.allocated_bytes.all.current);
  RC_ASSERT(parts.at("pending") == stats.active_bytes.all.current - stats.allocated_bytes.all.current);
  RC_ASSERT(picture.pending_by_stream == parts.at("pending"));
  RC_ASSERT(parts.at("free, split") + parts.at("free, whole") + parts.at("free, private") ==
            stats.reserved_bytes.all.current - stats.active_bytes.all.current);
  const auto owners = tables.find("Owners by tag");
  if (owners == tables.end()) return;
  std::int64_t owned = 0;
  for (const auto& [name, bytes] : owners->second) owned += bytes;
  RC_ASSERT(owned == stats.allocated_bytes.all.current);
}

// Some programs ask for more than there is.
template <class Allocate>
void attempt(Allocate&& allocate) {
  try {
    allocate();
  } catch (const OutOfMemoryError&) {
  }
}

void require_reports_that_add_up(const std::string& options) {
  SimulatedDriver driver({.capacity_bytes = kCapacity, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(),
       .options = AllocatorOptions::parse("oom_dump:off," + options, AllocatorOptions::parse("policy:classic"))});
  CachingAllocator neighbour(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  const std::vector<StreamHandle> streams = {nullptr, driver.create_stream(), driver.create_stream()};
  std::optional<MemPool> pool(allocator);
  std::vector<void*> live;
  for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1 << 24))) {
    const auto number = static_cast<std::size_t>(choice);
    const StreamHandle stream = streams[number / 16 % streams.size()];
    switch (number % 16) {
      case 0:
        attempt([&] { static_cast<void>(neighbour.allocate(1 + number % (4 * kMega))); });
        break;
      case 1:
        driver.run_until_idle(stream);
        break;
      case 2:
        driver.occupy(stream, 1ms);
        break;
      case 3:
        if (!live.empty()) allocator.record_stream(live[number % live.size()], stream);
        break;
      case 4:
        attempt([&] { live.push_back(pool->allocate(1 + number % (2 * kMega), stream)); });
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        if (live.empty()) break;
        std::swap(live[number / 16 % live.size()], live.back());
        allocator.deallocate(live.back());
        live.pop_back();
        break;
      default: {
        const TagScope tag(number % 3 == 0 ? Tag{} : Tag("tag " + std::to_string(number / 16 % 14)));
        const std::size_t bytes = 1 + number % (number % 5 == 0 ? 12 * kMega : 8192);
        attempt([&] { live.push_back(allocator.allocate(bytes, stream)); });
      }
    }
    require_report_that_adds_up(allocator, allocator.memory_stats());
  }
}

RC_GTEST_PROP(MemoryReportOfHeaps, AddsUpWhateverHappened, ()) { require_reports_that_add_up("policy:classic"); }

RC_GTEST_PROP(MemoryReportOfHeaps, AddsUpWhereSegmentsExpand, ()) { require_reports_that_add_up("policy:expandable"); }

}  // namespace
}  // namespace cistern
