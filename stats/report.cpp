#include "stats/report.h"

#include "stats/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

namespace cistern {
namespace {

struct Part {
  std::string_view name;
  std::int64_t bytes;
  std::string_view meaning;
};

std::int64_t as_signed(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

// The reserved part first, from what callers hold to what could be given back.
std::vector<Part> parts_of(const MemoryReport& report) {
  const MemoryStats& stats = report.stats;
  const std::int64_t live = stats.requested_bytes.all.current - as_signed(report.pending_requested_bytes);
  const std::int64_t rounding = stats.allocated_bytes.all.current - live;
  std::vector<Part> parts = {
      {"live", live, "in callers' hands, as they asked for it"},
      {"rounding", rounding, "added to make those requests whole blocks"},
      {"pending", as_signed(report.pending_bytes), "freed, but work on other streams may still use it"},
      {"free, split", as_signed(report.free_split_bytes), "cached in partly used segments: cannot be given back now"},
      {"free, whole", as_signed(report.free_whole_bytes), "cached in unused segments: empty_cache() gives it back"},
  };
  if (report.free_private_bytes != 0)
    parts.push_back({"free, private", as_signed(report.free_private_bytes), "kept by graphs' pools and MemPools"});
  parts.insert(parts.end(),
               {
                   {"outside cistern", as_signed(report.outside_bytes), "other processes, contexts and libraries"},
                   {"free on device", as_signed(report.device_free_bytes), "the driver can still hand it out"},
               });
  return parts;
}

std::string format_signed_size(std::int64_t bytes) {
  if (bytes >= 0) return std::string(format_size(static_cast<std::uint64_t>(bytes)));
  return fmt::format("-{}", format_size(std::uint64_t{0} - static_cast<std::uint64_t>(bytes)));
}

std::string share_of(std::int64_t bytes, std::size_t total) {
  if (total == 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(bytes) / static_cast<double>(total));
}

void add_part(std::string& text, const Part& part, std::size_t total) {
  fmt::format_to(std::back_inserter(text), "  {:<15} {:>15} {:>14} {:>8}  {}\n", part.name, part.bytes,
                 format_signed_size(part.bytes), share_of(part.bytes, total), part.meaning);
}

std::string held_for_each_live_byte(std::int64_t reserved, std::int64_t live) {
  if (live <= 0) return "nothing is live";
  return fmt::format("{:.3f} held for each live byte", static_cast<double>(reserved) / static_cast<double>(live));
}

}  // namespace

std::string format_report(const MemoryReport& report) {
  const std::vector<Part> parts = parts_of(report);
  const MemoryStats& stats = report.stats;
  const std::int64_t live = parts[0].bytes;
  const std::int64_t reserved = stats.reserved_bytes.all.current;
  std::int64_t sum = 0;
  std::string text = fmt::format("Memory of device {} ({}), in bytes:\n", report.device, report.device_name);
  for (const Part& part : parts) {
    add_part(text, part, report.device_total_bytes);
    sum += part.bytes;
  }
  add_part(text, {"together", sum, "the whole device"}, report.device_total_bytes);
  fmt::format_to(std::back_inserter(text),
                 "cistern holds {} (live to free, whole): {}.\n"
                 "Peaks since the last reset: {} allocated, {} held. Largest free block: {}.\n",
                 format_signed_size(reserved), held_for_each_live_byte(reserved, live),
                 format_signed_size(stats.allocated_bytes.all.peak), format_signed_size(stats.reserved_bytes.all.peak),
                 format_size(report.largest_free_block_bytes));
  return text;
}

}  // namespace cistern
