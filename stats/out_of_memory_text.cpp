#include "stats/out_of_memory_text.h"

#include "stats/fixed_text_format.h"
#include "stats/sizes.h"

namespace cistern {
namespace {

using Text = OutOfMemoryError::Text;

// As in PyTorch, what is free in private pools counts as allocated: that of the request, too.
void append_holdings(Text& text, const OutOfMemoryReport& report) {
  const std::size_t split = report.free_split_bytes - report.own_pool_free_split_bytes;
  const std::size_t whole = report.free_whole_bytes - report.own_pool_free_whole_bytes;
  const std::size_t in_pools =
      report.private_pools_free_bytes + report.own_pool_free_split_bytes + report.own_pool_free_whole_bytes;
  const std::size_t unallocated = report.pending_free_bytes + split + whole;
  append(text, "cistern holds {}; ", format_size(report.reserved_bytes));
  if (report.has_device_figures) append(text, "{} is in use outside it. ", format_size(report.outside_bytes));
  append(text, "{} the allocated memory {} is allocated by cistern, ", report.has_device_figures ? "Of" : "of",
         format_size(report.allocated_bytes + in_pools));
  if (in_pools != 0) append(text, "with {} of it free in private pools, ", format_size(in_pools));
  append(text, "and {} is reserved but unallocated", format_size(unallocated));
  if (unallocated != 0)
    append(text,
           " ({} freed but awaited by other streams, {} free in partly used segments, {} free in unused segments or "
           "pages; the "
           "largest free block has {})",
           format_size(report.pending_free_bytes), format_size(split), format_size(whole),
           format_size(report.largest_free_block_bytes));
  text.append(". ");
}

void append_budget(Text& text, const BudgetRefusal& budget) {
  text.append("the budget of ");
  if (budget.tag.empty())
    text.append("the device");
  else
    append(text, "tag '{}'", budget.tag);
  append(text, ": {} live and {} more would exceed the {} allowed", format_size(budget.live_bytes),
         format_size(budget.block_bytes), format_size(budget.hard_bytes));
}

const char* describe(UnusableBlock::Reason reason) {
  switch (reason) {
    case UnusableBlock::Reason::found_late:
      return "came with the last flush, after which free blocks are not searched again";
    case UnusableBlock::Reason::kept_whole:
      return "is kept whole for larger requests";
    case UnusableBlock::Reason::expandable_off:
      return "lies in an expandable segment, and these serve nobody while expandable_segments is off";
    case UnusableBlock::Reason::other_stream:
      return "belongs to another stream";
    case UnusableBlock::Reason::other_size:
      return "is in the pool for requests of other sizes";
  }
  return "";
}

void append_cause(Text& text, const OutOfMemoryReport& report) {
  const auto segment = format_size(report.segment_bytes);
  const auto device_free = format_size(report.device_free_bytes);
  switch (report.cause) {
    case OutOfMemoryCause::device_full:
      return append(text, "the device is full: {} is needed and {} is free; {} is in use outside cistern", segment,
                    device_free, format_size(report.outside_bytes));
    case OutOfMemoryCause::fragmented:
      if (report.unusable)
        return append(text, "a free block that does not serve the request: it has {}, but it {}",
                      format_size(report.unusable->bytes), describe(report.unusable->reason));
      return append(text,
                    "fragmentation: {} is free on the device and {} in cistern's segments, but no single piece "
                    "holds the {} that the request needs",
                    device_free, format_size(report.free_split_bytes + report.free_whole_bytes),
                    format_size(report.rounded_bytes));
    case OutOfMemoryCause::limit:
      if (report.budget) return append_budget(text, *report.budget);
      append(text, "the limit: {} held and {} more would exceed the {} allowed", format_size(report.reserved_bytes),
             segment, format_size(report.limit_bytes.value_or(0)));
      if (report.has_device_figures) append(text, ", although {} is free on the device", device_free);
      return;
    case OutOfMemoryCause::pending_frees:
      return append(text, "pending frees: {} was freed, but work on other streams may still use it",
                    format_size(report.pending_free_bytes));
    case OutOfMemoryCause::driver_refusal:
      if (!report.has_device_figures) return append(text, "the driver refused {}", segment);
      return append(text, "the driver refused {} although it reports {} free", segment, device_free);
    case OutOfMemoryCause::too_large:
      return append(text, "the request is larger than the device: {} was asked for, the device has {} in all",
                    format_size(report.requested_bytes), format_size(report.device_total_bytes));
    case OutOfMemoryCause::graph_pools:
      return append(
          text,
          "graph pools: {} is free in private pools, which keep it for their graphs and users, and {} on the device",
          format_size(report.private_pools_free_bytes), device_free);
    case OutOfMemoryCause::address_space:
      return append(
          text, "address space: {} is free on the device, but the driver has no range of addresses left to map it at",
          device_free);
  }
}

}  // namespace

Text format_out_of_memory(const OutOfMemoryReport& report, std::string_view processes) {
  Text text;
  append(text, "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {}",
         format_size(report.segment_bytes), report.device, format_size(report.device_total_bytes));
  if (report.has_device_figures)
    append(text, " of which {} is free. ", format_size(report.device_free_bytes));
  else
    text.append("; how much of it is free is not known, for the driver did not say. ");
  text.append(processes);
  if (report.limit_bytes) append(text, "{} allowed; ", format_size(*report.limit_bytes));
  append_holdings(text, report);
  text.append("Cause: ");
  append_cause(text, report);
  text.append(".");
  if (!report.advice.empty()) text.append(" ").append(report.advice);
  return text;
}

}  // namespace cistern
