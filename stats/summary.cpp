#include "stats/summary.h"

#include "stats/fixed_text_format.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>

namespace cistern {
namespace {

constexpr std::size_t kWidth = 75;  // between the bars

// A scale of units: a value moves to the next one while it is at least `limit` of this one.
struct Scale {
  std::int64_t limit;
  std::int64_t step;
  std::size_t digits;
  std::array<std::string_view, 6> units;
  std::size_t unit_count;
};
constexpr Scale kSizes{std::int64_t{768} * 1024, 1024, 6, {" B  ", " KiB", " MiB", " GiB", " TiB", " PiB"}, 6};
constexpr Scale kCounts{750000, 1000, 7, {"   ", " K ", " M "}, 3};

struct Row {
  std::string_view label;
  PoolStat MemoryStats::*member;
  const Scale* scale;
};
constexpr std::array<Row, 9> kRows{{
    {"Allocated memory", &MemoryStats::allocated_bytes, &kSizes},
    {"Active memory", &MemoryStats::active_bytes, &kSizes},
    {"Requested memory", &MemoryStats::requested_bytes, &kSizes},
    {"GPU reserved memory", &MemoryStats::reserved_bytes, &kSizes},
    {"Non-releasable memory", &MemoryStats::inactive_split_bytes, &kSizes},
    {"Allocations", &MemoryStats::allocation, &kCounts},
    {"Active allocs", &MemoryStats::active, &kCounts},
    {"GPU reserved segments", &MemoryStats::segment, &kCounts},
    {"Non-releasable allocs", &MemoryStats::inactive_split, &kCounts},
}};

// Towards minus infinity: a table read from a file may hold negative values.
std::int64_t floor_divide(std::int64_t value, std::int64_t divisor) {
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

// `value` in the unit that suits `reference`. Both are floored: whether a whole number of
// units is reached does not depend on the fraction.
FixedText<32> cell(std::int64_t value, std::int64_t reference, const Scale& scale) {
  std::size_t unit = 0;
  for (; reference >= scale.limit && unit + 1 < scale.unit_count; ++unit) {
    value = floor_divide(value, scale.step);
    reference = floor_divide(reference, scale.step);
  }
  FixedText<32> text;
  append(text, "{:>{}}{}", value, scale.digits, scale.units[unit]);
  return text;
}

class Table {
 public:
  explicit Table(SummaryText& text) : text_(text) {}
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> body, Arguments&&... arguments) {
    text_.append("|");
    append(text_, body, std::forward<Arguments>(arguments)...);
    text_.append("|\n");
  }
  void rule(char mark) {
    std::array<char, kWidth> marks;
    marks.fill(mark);
    line("{}", std::string_view(marks.data(), marks.size()));
  }
  // The units are those of `reference`, column by column.
  void row(std::string_view label, const Stat& stat, const Stat& reference, const Scale& scale) {
    line(" {:<21} | {} | {} | {} | {} ", label, cell(stat.current, reference.current, scale),
         cell(stat.peak, reference.peak, scale), cell(stat.allocated, reference.allocated, scale),
         cell(stat.freed, reference.freed, scale));
  }

 private:
  SummaryText& text_;
};

void add_header(Table& table, const MemoryStats& stats, int device, std::string_view title) {
  table.rule('=');
  table.line("{:18}{} CUDA memory summary, device ID {:<17} ", "", title, device);
  table.rule('-');
  table.line("{:12}CUDA OOMs: {:<12} | {:7}cudaMalloc retries: {:<8}  ", "", stats.num_ooms, "",
             stats.num_alloc_retries);
  table.rule('=');
  table.line("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ");
}

}  // namespace

void append_summary(SummaryText& text, const MemoryStats& stats, int device, bool abbreviated, std::string_view title) {
  Table table(text);
  add_header(table, stats, device, title);
  for (const Row& row : kRows) {
    const PoolStat& stat = stats.*row.member;
    table.rule('-');
    table.row(row.label, stat.all, stat.all, *row.scale);
    if (abbreviated) continue;
    table.row("      from large pool", stat.large_pool, stat.all, *row.scale);
    table.row("      from small pool", stat.small_pool, stat.all, *row.scale);
  }
  table.rule('-');
  table.row("Oversize allocations", stats.oversize_allocations, stats.oversize_allocations, kCounts);
  table.rule('-');
  table.row("Oversize GPU segments", stats.oversize_segments, stats.oversize_segments, kCounts);
  table.rule('=');
}

std::string format_summary(const MemoryStats& stats, int device, bool abbreviated, std::string_view title) {
  SummaryText text;
  append_summary(text, stats, device, abbreviated, title);
  return std::string(text);
}

}  // namespace cistern
