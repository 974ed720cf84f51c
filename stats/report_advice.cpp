#include "stats/report_advice.h"

#include "stats/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cistern {
namespace {

std::size_t rounding_of(const MemoryReport& report) {
  const std::int64_t live =
      report.stats.requested_bytes.all.current - static_cast<std::int64_t>(report.pending_requested_bytes);
  return static_cast<std::size_t>(std::max<std::int64_t>(0, report.stats.allocated_bytes.all.current - live));
}

// What the limit keeps from this process although the device has it.
std::size_t kept_by_limit(const MemoryReport& report) {
  const auto held = static_cast<std::size_t>(report.stats.reserved_bytes.all.current);
  if (!report.limit_bytes || *report.limit_bytes < held) return report.limit_bytes ? report.device_free_bytes : 0;
  return report.device_free_bytes - std::min(report.device_free_bytes, *report.limit_bytes - held);
}

}  // namespace

std::vector<std::string> advice_of(const MemoryReport& report) {
  std::vector<std::pair<std::size_t, std::string>> gains;
  const auto add = [&](std::size_t bytes, const std::string& text) {
    if (bytes != 0 && bytes >= report.device_total_bytes / 100) gains.emplace_back(bytes, text);
  };
  const auto size = [](std::size_t bytes) { return format_size(bytes); };
  add(report.free_whole_bytes, fmt::format("empty_cache() gives {} in unused segments or pages back to the driver.",
                                           size(report.free_whole_bytes)));
  add(report.pending_bytes,
      fmt::format("Waiting for the streams that are named above makes {} usable.", size(report.pending_bytes)));
  if (!report.gives_back_pages)
    add(report.free_split_bytes,
        fmt::format("expandable_segments:True gives back free pages of partly used segments: {} are free there now.",
                    size(report.free_split_bytes)));
  add(report.free_private_bytes, fmt::format("Releasing graphs and MemPools that are not used any more frees up to {}.",
                                             size(report.free_private_bytes)));
  if (report.rounds_by_divisions)
    add(rounding_of(report), fmt::format("More roundup_power2_divisions, or none, save some of the {} of rounding.",
                                         size(rounding_of(report))));
  add(kept_by_limit(report),
      fmt::format("A larger memory fraction allows {} more of the device.", size(kept_by_limit(report))));
  std::stable_sort(gains.begin(), gains.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> advice;
  for (auto& [bytes, text] : gains) advice.push_back(std::move(text));
  return advice;
}

}  // namespace cistern
