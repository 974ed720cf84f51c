#include "stats/report.h"

#include "stats/report_advice.h"
#include "stats/sizes.h"
#include "stats/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kNameColumns = kReportedNameColumns;
constexpr std::size_t kColumns = 110;
constexpr std::size_t kMeaningColumns = kColumns - kNameColumns - 42;  // behind the figures
constexpr std::string_view kCalledFrom = "    called from ";
constexpr std::size_t kOwners = kReportedOwners;

struct Part {
  std::string name;
  std::int64_t bytes;
  std::string meaning;
};

std::int64_t as_signed(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

std::string format_signed_size(std::int64_t bytes) {
  if (bytes >= 0) return std::string(format_size(static_cast<std::uint64_t>(bytes)));
  return fmt::format("-{}", format_size(std::uint64_t{0} - static_cast<std::uint64_t>(bytes)));
}

std::string share_of(std::int64_t bytes, std::int64_t total) {
  if (total <= 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(bytes) / static_cast<double>(total));
}

std::string stream_name(std::int64_t stream) {
  return stream == 0 ? "default stream" : fmt::format("stream {:#x}", static_cast<std::uint64_t>(stream));
}

// A character for each of `text` within ASCII, a question mark for others, cut to `columns`.
std::string plain(std::string_view text, std::size_t columns) {
  std::string ascii;
  while (!text.empty()) {
    const bool printable = text[0] >= ' ' && text[0] <= '~';
    ascii += printable ? text[0] : '?';
    text.remove_prefix(first_utf8_piece(text).bytes);
  }
  if (ascii.size() > columns) ascii.replace(columns - 3, std::string::npos, "...");
  return ascii;
}

void add_part(std::string& text, const Part& part, std::int64_t total) {
  fmt::format_to(std::back_inserter(text), "  {:<{}} {:>16} {:>12} {:>7}  {}\n", part.name, kNameColumns, part.bytes,
                 format_signed_size(part.bytes), share_of(part.bytes, total), part.meaning);
}

std::int64_t live_bytes(const MemoryReport& report) {
  return report.stats.requested_bytes.all.current - as_signed(report.pending_requested_bytes);
}

// The reserved part first, from what callers hold to what could be given back.
std::vector<Part> parts_of(const MemoryReport& report) {
  const std::int64_t live = live_bytes(report);
  return {
      {"live", live, "asked for by callers, in their hands"},
      {"rounding", report.stats.allocated_bytes.all.current - live, "what makes those requests whole blocks"},
      {"pending", as_signed(report.pending_bytes), "freed, but other streams may still use it"},
      {"free, split", as_signed(report.free_split_bytes), "cached in partly used segments"},
      {"free, whole", as_signed(report.free_whole_bytes), "cached in unused segments or pages"},
      {"free, private", as_signed(report.free_private_bytes), "cached for graphs and MemPools"},
      {"outside cistern", as_signed(report.outside_bytes), "other processes, contexts, libraries"},
      {"free on device", as_signed(report.device_free_bytes), "the driver can still hand it out"},
  };
}

// Whose the pending blocks are, the most first, after the line of their sum.
void add_pending_streams(std::string& text, const MemoryReport& report) {
  std::vector<StreamStats> streams = report.streams;
  std::erase_if(streams, [](const StreamStats& stream) { return stream.pending_bytes == 0; });
  std::stable_sort(streams.begin(), streams.end(),
                   [](const StreamStats& a, const StreamStats& b) { return a.pending_bytes > b.pending_bytes; });
  for (const StreamStats& stream : streams)
    add_part(text, {"  " + stream_name(stream.stream), stream.pending_bytes, "of that, blocks of this stream"},
             as_signed(report.device_total_bytes));
}

void add_picture(std::string& text, const MemoryReport& report) {
  const std::int64_t total = as_signed(report.device_total_bytes);
  std::int64_t sum = 0;
  for (const Part& part : parts_of(report)) {
    add_part(text, part, total);
    sum += part.bytes;
    if (part.name == "pending") add_pending_streams(text, report);
  }
  add_part(text, {"together", sum, "the whole device"}, total);
}

std::string held_for_each_live_byte(std::int64_t reserved, std::int64_t live) {
  if (live <= 0) return "nothing is live";
  return fmt::format("{:.3f} held for each live byte", static_cast<double>(reserved) / static_cast<double>(live));
}

void add_figures(std::string& text, const MemoryReport& report) {
  const MemoryStats& stats = report.stats;
  fmt::format_to(std::back_inserter(text),
                 "cistern holds {} (live to free, private): {}.\n"
                 "Peaks since the last reset: {} allocated, {} held. Largest free block: {}.\n",
                 format_signed_size(stats.reserved_bytes.all.current),
                 held_for_each_live_byte(stats.reserved_bytes.all.current, live_bytes(report)),
                 format_signed_size(stats.allocated_bytes.all.peak), format_signed_size(stats.reserved_bytes.all.peak),
                 format_size(report.largest_free_block_bytes));
  for (const StreamStats& stream : report.streams)
    if (stream.awaited_frees != 0)
      fmt::format_to(std::back_inserter(text), "Work on {} of device {} keeps {} in {} freed {} waiting.\n",
                     stream_name(stream.stream), stream.device, format_signed_size(stream.awaited_bytes),
                     stream.awaited_frees, stream.awaited_frees == 1 ? "block" : "blocks");
  if (const auto& oldest = report.oldest_pending_free)
    fmt::format_to(std::back_inserter(text), "The oldest of these has waited for {} for {:.3f} s.\n",
                   stream_name(oldest->waits_for), std::chrono::duration<double>(report.now - oldest->since).count());
}

// Who had whose bytes, the most first; and who has memory of its own because of that.
void add_hand_overs(std::string& text, const MemoryReport& report) {
  constexpr std::size_t kPairs = 4;
  std::vector<HandOverStats> pairs = report.hand_overs;
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const HandOverStats& a, const HandOverStats& b) { return a.bytes > b.bytes; });
  if (pairs.size() > kPairs) pairs.resize(kPairs);
  for (const HandOverStats& pair : pairs)
    fmt::format_to(std::back_inserter(text), "Handed over from {} to {}: {} in {} {}, held up by work in {}.\n",
                   stream_name(pair.from), stream_name(pair.to), format_signed_size(pair.bytes), pair.hand_overs,
                   pair.hand_overs == 1 ? "request" : "requests", pair.held_up);
  for (const StreamStats& stream : report.streams)
    if (stream.stands_alone)
      fmt::format_to(std::back_inserter(text), "Held up too often, {} takes no other stream's memory.\n",
                     stream_name(stream.stream));
}

// The largest, and all others in one line, so that the lines add up.
void add_owners(std::string& text, std::string_view title, std::vector<MemoryReport::Owner> owners) {
  std::erase_if(owners, [](const MemoryReport::Owner& owner) {
    return owner.blocks == 0 && owner.at_peak_bytes.value_or(0) == 0;
  });
  if (owners.empty()) return;
  std::stable_sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::int64_t total = 0;
  for (const MemoryReport::Owner& owner : owners) total += owner.bytes;
  if (owners.size() > kOwners) {
    MemoryReport::Owner others{fmt::format("({} others)", owners.size() - kOwners + 1), 0, 0, std::nullopt};
    for (std::size_t i = kOwners - 1; i < owners.size(); ++i) {
      others.bytes += owners[i].bytes;
      others.blocks += owners[i].blocks;
      if (owners[i].at_peak_bytes) others.at_peak_bytes = others.at_peak_bytes.value_or(0) + *owners[i].at_peak_bytes;
    }
    owners.resize(kOwners - 1);
    owners.push_back(others);
  }
  fmt::format_to(std::back_inserter(text), "{}, of {} in callers' blocks:\n", title, format_signed_size(total));
  for (const MemoryReport::Owner& owner : owners) {
    std::string meaning = fmt::format("{} {}", owner.blocks, owner.blocks == 1 ? "block" : "blocks");
    if (owner.at_peak_bytes) meaning += fmt::format(", {} at the peak", format_signed_size(*owner.at_peak_bytes));
    if (!owner.place.empty()) meaning += ", " + owner.place;
    add_part(text, {plain(owner.name, kNameColumns), owner.bytes, plain(meaning, kMeaningColumns)}, total);
    if (!owner.callers.empty())
      fmt::format_to(std::back_inserter(text), "{}{}\n", kCalledFrom,
                     plain(owner.callers, kColumns - kCalledFrom.size()));
  }
}

std::vector<MemoryReport::Owner> owners_by_tag(const MemoryReport& report) {
  std::vector<MemoryReport::Owner> owners;
  for (const TagStats& tag : report.tags)
    owners.push_back({tag.tag.empty() ? "(no tag)" : tag.tag, tag.allocated_bytes.current, tag.allocation.current,
                      tag.at_device_peak_bytes});
  return owners;
}

}  // namespace

std::string format_report(const MemoryReport& report) {
  std::string text = fmt::format("Memory of device {} ({}), in bytes:\n", report.device, plain(report.device_name, 60));
  add_picture(text, report);
  add_figures(text, report);
  add_hand_overs(text, report);
  if (report.tags.size() > 1) add_owners(text, "Owners by tag", owners_by_tag(report));
  add_owners(text, "Owners by stack", report.stacks);
  const std::vector<std::string> advice = advice_of(report);
  if (!advice.empty()) text += "What would help:\n";
  for (const std::string& line : advice) text += "  " + line + "\n";
  return text;
}

}  // namespace cistern
