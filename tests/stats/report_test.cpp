// The memory report: its parts add up to the device, its owners to what callers hold, and it
// advises only what would help.

#include "stats/report.h"

#include "tests/byte_units.h"
#include "tests/property.h"
#include "tests/stats/lines.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace cistern {
namespace {

[[maybe_unused]] const bool report_configured = configure_properties("MemoryReportProperty", 2000, 60);

// 96 MiB: 40 held, of which 10 MiB less 1000 bytes were asked for.
MemoryReport example_report() {
  MemoryReport report;
  report.device = 2;
  report.device_name = "simulated";
  report.device_total_bytes = 96 * kSignedMega;
  report.device_free_bytes = 50 * kSignedMega;
  report.outside_bytes = 6 * kSignedMega;
  report.stats.allocated_bytes.all = {10 * kSignedMega, 12 * kSignedMega, 0, 0};
  report.stats.active_bytes.all.current = 14 * kSignedMega;
  report.stats.requested_bytes.all.current = 14 * kSignedMega - 1000 - 24;
  report.stats.reserved_bytes.all = {40 * kSignedMega, 44 * kSignedMega, 0, 0};
  report.pending_bytes = 4 * kSignedMega;
  report.pending_requested_bytes = 4 * kSignedMega - 24;
  report.free_split_bytes = 6 * kSignedMega;
  report.free_whole_bytes = 20 * kSignedMega;
  report.largest_free_block_bytes = 20 * kSignedMega;
  return report;
}

// The same with owners, and with streams that wait for each other.
MemoryReport full_example() {
  MemoryReport report = example_report();
  report.free_private_bytes = 2 * kSignedMega;
  report.free_whole_bytes = 18 * kSignedMega;
  StreamStats owner;
  owner.pending_bytes = 3 * kSignedMega;
  StreamStats reader;
  reader.stream = 0x7f12ab00;
  reader.pending_bytes = kSignedMega;
  reader.awaited_frees = 2;
  reader.awaited_bytes = 4 * kSignedMega;
  reader.stands_alone = true;
  report.streams = {reader, owner};
  report.hand_overs = {{0, 0, reader.stream, 7, 1, kSignedMega, 0}, {reader.stream, 7, 0, 0, 12, 3 * kSignedMega, 10}};
  PendingFree oldest;
  oldest.waits_for = reader.stream;
  oldest.since = report.now - std::chrono::milliseconds(1250);
  report.oldest_pending_free = oldest;
  report.tags = {{"", {1, 1, 1, 0}, {kSignedMega, kSignedMega, kSignedMega, 0}, kSignedMega},
                 {"activations", {0, 9, 9, 9}, {0, 4 * kSignedMega, 9 * kSignedMega, 9 * kSignedMega}, 4 * kSignedMega},
                 {"optimizer's master copies",
                  {2, 2, 2, 0},
                  {9 * kSignedMega, 9 * kSignedMega, 9 * kSignedMega, 0},
                  7 * kSignedMega}};
  return report;
}

// The bytes of the lines with figures by their names, from the line `after` on.
std::map<std::string, std::int64_t> bytes_by_name(const std::string& text, const std::string& after = "Memory of") {
  std::map<std::string, std::int64_t> bytes;
  bool within = false;
  for (const std::string& line : lines_of(text)) {
    if (line.rfind("  ", 0) != 0) within = line.rfind(after, 0) == 0;
    if (!within || line.rfind("  ", 0) != 0) continue;
    const std::string name = line.substr(2, 27);
    bytes[name.substr(0, name.find_last_not_of(' ') + 1)] = std::stoll(line.substr(29));
  }
  return bytes;
}

TEST(MemoryReport, PartsAreThoseGivenAndAddUpToTheDevice) {
  EXPECT_EQ(bytes_by_name(format_report(example_report())),
            (std::map<std::string, std::int64_t>{{"live", 10 * kSignedMega - 1000},
                                                 {"rounding", 1000},
                                                 {"pending", 4 * kSignedMega},
                                                 {"free, split", 6 * kSignedMega},
                                                 {"free, whole", 20 * kSignedMega},
                                                 {"free, private", 0},
                                                 {"outside cistern", 6 * kSignedMega},
                                                 {"free on device", 50 * kSignedMega},
                                                 {"together", 96 * kSignedMega}}));
}

TEST(MemoryReport, AWholeOneReadsAsPublished) {
  EXPECT_EQ(format_report(full_example()),
            R"(Memory of device 2 (simulated), in bytes:
  live                                10484760    10.00 MiB  10.4 %  asked for by callers, in their hands
  rounding                                1000   1000 bytes   0.0 %  what makes those requests whole blocks
  pending                              4194304     4.00 MiB   4.2 %  freed, but other streams may still use it
    default stream                     3145728     3.00 MiB   3.1 %  of that, blocks of this stream
    stream 0x7f12ab00                  1048576  1024.00 KiB   1.0 %  of that, blocks of this stream
  free, split                          6291456     6.00 MiB   6.2 %  cached in partly used segments
  free, whole                         18874368    18.00 MiB  18.8 %  cached in unused segments or pages
  free, private                        2097152     2.00 MiB   2.1 %  cached for graphs and MemPools
  outside cistern                      6291456     6.00 MiB   6.2 %  other processes, contexts, libraries
  free on device                      52428800    50.00 MiB  52.1 %  the driver can still hand it out
  together                           100663296    96.00 MiB 100.0 %  the whole device
cistern holds 40.00 MiB (live to free, private): 4.000 held for each live byte.
Peaks since the last reset: 12.00 MiB allocated, 44.00 MiB held. Largest free block: 20.00 MiB.
Work on stream 0x7f12ab00 of device 0 keeps 4.00 MiB in 2 freed blocks waiting.
The oldest of these has waited for stream 0x7f12ab00 for 1.250 s.
Handed over from default stream to stream 0x7f12ab00: 3.00 MiB in 12 requests, held up by work in 10.
Handed over from stream 0x7f12ab00 to default stream: 1024.00 KiB in 1 request, held up by work in 0.
Held up too often, stream 0x7f12ab00 takes no other stream's memory.
Owners by tag, of 10.00 MiB in callers' blocks:
  optimizer's master copies            9437184     9.00 MiB  90.0 %  2 blocks, 7.00 MiB at the peak
  (no tag)                             1048576  1024.00 KiB  10.0 %  1 block, 1024.00 KiB at the peak
  activations                                0      0 bytes   0.0 %  0 blocks, 4.00 MiB at the peak
What would help:
  empty_cache() gives 18.00 MiB in unused segments or pages back to the driver.
  expandable_segments:True gives back free pages of partly used segments: 6.00 MiB are free there now.
  Waiting for the streams that are named above makes 4.00 MiB usable.
  Releasing graphs and MemPools that are not used any more frees up to 2.00 MiB.
)");
}

TEST(MemoryReport, AnUnusedDeviceReadsAsPublished) {
  MemoryReport report;
  report.device_name = "simulated";
  report.device_total_bytes = report.device_free_bytes = 96 * kSignedMega;
  report.tags = {TagStats{}};
  EXPECT_EQ(format_report(report),
            R"(Memory of device 0 (simulated), in bytes:
  live                                       0      0 bytes   0.0 %  asked for by callers, in their hands
  rounding                                   0      0 bytes   0.0 %  what makes those requests whole blocks
  pending                                    0      0 bytes   0.0 %  freed, but other streams may still use it
  free, split                                0      0 bytes   0.0 %  cached in partly used segments
  free, whole                                0      0 bytes   0.0 %  cached in unused segments or pages
  free, private                              0      0 bytes   0.0 %  cached for graphs and MemPools
  outside cistern                            0      0 bytes   0.0 %  other processes, contexts, libraries
  free on device                     100663296    96.00 MiB 100.0 %  the driver can still hand it out
  together                           100663296    96.00 MiB 100.0 %  the whole device
cistern holds 0 bytes (live to free, private): nothing is live.
Peaks since the last reset: 0 bytes allocated, 0 bytes held. Largest free block: 0 bytes.
)");
}

TEST(MemoryReport, NothingAtAllDividesByNothing) {
  const std::string text = format_report({});
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(bytes_by_name(text).at("together"), 0);
}

TEST(MemoryReport, NamesThatAreNotAsciiDoNotBreakTheTable) {
  MemoryReport report = full_example();
  report.device_name = "Gr\xC3\xA4tle\n\xFF";
  report.tags[1].tag = "\xE9\x87\x8D\xE3\x81\xBF of a layer with a very long name";
  const std::string text = format_report(report);
  EXPECT_NE(text.find("(Gr?tle?"
                      "?)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  ?? of a layer with a ver... "), std::string::npos) << text;
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(MemoryReport, StacksAreOwnersToo) {
  MemoryReport report = example_report();
  report.stacks = {{"small", kSignedMega, 3}, {"large", 9 * kSignedMega, 1}};
  const std::string text = format_report(report);
  EXPECT_NE(text.find("Owners by stack, of 10.00 MiB in callers' blocks:\n  large  "), std::string::npos) << text;
  EXPECT_NE(text.find("1 block\n  small "), std::string::npos) << text;
}

TEST(MemoryReport, AStackIsNamedWithItsPlaceAndItsCallers) {
  MemoryReport report = example_report();
  report.stacks = {{"net::Layer::forward", 9 * kSignedMega, 3, std::nullopt, "layer.cpp:42", "step, main"},
                   {"(no stack)", kSignedMega, 1},
                   {"wide", 1, 1, std::nullopt, std::string(60, 'f') + ".cpp:7", std::string(200, 'c')}};
  const std::string text = format_report(report);
  EXPECT_NE(text.find(R"(callers' blocks:
  net::Layer::forward                  9437184     9.00 MiB  90.0 %  3 blocks, layer.cpp:42
    called from step, main
  (no stack)                           1048576  1024.00 KiB  10.0 %  1 block
  wide )"),
            std::string::npos)
      << text;
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 110U) << line;
}

// What is advised of a device of which a change makes one thing large.
template <class Change>
std::string advice_after(Change&& change) {
  MemoryReport report;
  report.device_total_bytes = 1000 * kSignedMega;
  report.device_free_bytes = 100 * kSignedMega;
  change(report);
  const std::string text = format_report(report);
  const std::size_t start = text.find("What would help:\n");
  return start == std::string::npos ? "" : text.substr(start + 17);
}

TEST(MemoryReport, AdvisesWhatGivesAHundredthOfTheDeviceAndNothingElse) {
  EXPECT_EQ(advice_after([](MemoryReport&) {}), "");
  EXPECT_EQ(advice_after([](MemoryReport& report) { report.free_whole_bytes = 10 * kSignedMega - 1; }), "");
  EXPECT_EQ(advice_after([](MemoryReport& report) { report.free_whole_bytes = 10 * kSignedMega; }),
            "  empty_cache() gives 10.00 MiB in unused segments or pages back to the driver.\n");
  EXPECT_EQ(advice_after([](MemoryReport& report) {
              report.free_split_bytes = 90 * kSignedMega;
              report.gives_back_pages = true;
            }),
            "")
      << "it does so already";
  EXPECT_EQ(advice_after([](MemoryReport& report) {
              report.limit_bytes = 500 * kSignedMega;
              report.stats.reserved_bytes.all.current = 480 * kSignedMega;
            }),
            "  A larger memory fraction allows 80.00 MiB more of the device.\n");
  EXPECT_EQ(advice_after([](MemoryReport& report) { report.limit_bytes = 500 * kSignedMega; }), "")
      << "the device has less than the limit allows";
  const auto rounded = [](MemoryReport& report) { report.stats.allocated_bytes.all.current = 50 * kSignedMega; };
  EXPECT_EQ(advice_after(rounded), "") << "blocks are whole by 512 bytes, whatever one does";
  EXPECT_EQ(advice_after([&](MemoryReport& report) {
              rounded(report);
              report.rounds_by_divisions = true;
            }),
            "  More roundup_power2_divisions, or none, save some of the 50.00 MiB of rounding.\n");
}

// However many tags there are and whatever they have, each table adds up and keeps its columns.
RC_GTEST_PROP(MemoryReportProperty, OwnersAddUpAndLinesKeepTheirColumns, ()) {
  MemoryReport report = example_report();
  std::int64_t total = 0;
  for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1 << 20))) {
    TagStats tag;
    tag.tag = std::string(static_cast<std::size_t>(1 + choice % 40), static_cast<char>('a' + choice % 26)) +
              std::to_string(report.tags.size());
    tag.allocation.current = choice % 5;
    tag.allocated_bytes.current = tag.allocation.current * 512 * choice;
    tag.at_device_peak_bytes = choice % 3 * kSignedMega;
    total += tag.allocated_bytes.current;
    report.tags.push_back(tag);
  }
  const std::string text = format_report(report);
  std::int64_t sum = 0;
  int owners = 0;
  bool within = false;
  for (const std::string& line : lines_of(text)) {
    RC_ASSERT(line.size() <= 110U);
    if (line.rfind("  ", 0) != 0) {
      within = line.rfind("Owners", 0) == 0;
      continue;
    }
    if (!within) continue;
    ++owners;
    sum += std::stoll(line.substr(29));
    RC_ASSERT(line.substr(65, 2) == (total == 0 ? " -" : " %"));
  }
  RC_ASSERT(owners <= 10);
  RC_ASSERT(report.tags.size() < 2 || sum == total);
}

}  // namespace
}  // namespace cistern
