#include "stats/out_of_memory_text.h"

#include "stats/sizes.h"

#include <fmt/format.h>

namespace cistern {
namespace {

std::size_t unallocated_bytes(const OutOfMemoryReport& report) {
  return report.reserved_bytes > report.allocated_bytes ? report.reserved_bytes - report.allocated_bytes : 0;
}

// Where what is held but not allocated lies; empty if there is none.
std::string whereabouts(const OutOfMemoryReport& report) {
  if (unallocated_bytes(report) == 0) return "";
  const std::string in_pools =
      report.private_pools_free_bytes == 0
          ? ""
          : fmt::format(", {} free in private pools", format_size(report.private_pools_free_bytes));
  return fmt::format(
      " ({} freed but awaited by other streams, {} free in partly used segments, {} free in unused "
      "segments{}; the largest free block has {})",
      format_size(report.pending_free_bytes), format_size(report.free_split_bytes),
      format_size(report.free_whole_bytes), in_pools, format_size(report.largest_free_block_bytes));
}

std::string budget_in_words(const BudgetRefusal& budget) {
  return fmt::format("the budget of {}: {} live and {} more would exceed the {} allowed",
                     budget.tag.empty() ? "the device" : fmt::format("tag '{}'", budget.tag),
                     format_size(budget.live_bytes), format_size(budget.block_bytes), format_size(budget.hard_bytes));
}

std::string cause_in_words(const OutOfMemoryReport& report) {
  const std::string segment = format_size(report.segment_bytes);
  const std::string device_free = format_size(report.device_free_bytes);
  switch (report.cause) {
    case OutOfMemoryCause::device_full:
      return fmt::format("the device is full: {} is needed and {} is free; {} is in use outside cistern", segment,
                         device_free, format_size(report.outside_bytes));
    case OutOfMemoryCause::fragmented:
      return fmt::format(
          "fragmentation: {} is free on the device and {} in cistern's segments, but no single piece "
          "holds the {} that the request needs",
          device_free, format_size(report.free_split_bytes + report.free_whole_bytes),
          format_size(report.rounded_bytes));
    case OutOfMemoryCause::limit:
      if (report.budget) return budget_in_words(*report.budget);
      return fmt::format(
          "the limit: {} held and {} more would exceed the {} allowed, although {} is free on the "
          "device",
          format_size(report.reserved_bytes), segment, format_size(report.limit_bytes.value_or(0)), device_free);
    case OutOfMemoryCause::pending_frees:
      return fmt::format("pending frees: {} was freed, but work on other streams may still use it",
                         format_size(report.pending_free_bytes));
    case OutOfMemoryCause::driver_refusal:
      return fmt::format("the driver refused {} although it reports {} free", segment, device_free);
    case OutOfMemoryCause::too_large:
      return fmt::format("the request is larger than the device: {} was asked for, the device has {} in all",
                         format_size(report.requested_bytes), format_size(report.device_total_bytes));
    case OutOfMemoryCause::graph_pools:
      return fmt::format(
          "graph pools: {} is free in private pools, which keep it for their graphs and users, and {} on the device",
          format_size(report.private_pools_free_bytes), device_free);
  }
  return "unknown";
}

}  // namespace

std::string format_out_of_memory(const OutOfMemoryReport& report) {
  std::string text =
      fmt::format("CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. ",
                  format_size(report.segment_bytes), report.device, format_size(report.device_total_bytes),
                  format_size(report.device_free_bytes));
  if (report.limit_bytes) text += format_size(*report.limit_bytes) + " allowed; ";
  text += fmt::format("Of the {} held here, {} is allocated by cistern, and {} is reserved but unallocated{}. ",
                      format_size(report.reserved_bytes), format_size(report.allocated_bytes),
                      format_size(unallocated_bytes(report)), whereabouts(report));
  text += fmt::format("Cause: {}.", cause_in_words(report));
  if (!report.advice.empty()) text += " " + report.advice;
  return text;
}

}  // namespace cistern
