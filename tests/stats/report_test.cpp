// The memory report: its parts add up to the device.

#include "stats/report.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

namespace cistern {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// 96 MiB: 40 held, of which 10 MiB less 1000 bytes were asked for.
MemoryReport example() {
  MemoryReport report;
  report.device = 2;
  report.device_name = "simulated";
  report.device_total_bytes = 96 * kMiB;
  report.device_free_bytes = 50 * kMiB;
  report.outside_bytes = 6 * kMiB;
  report.stats.allocated_bytes.all = {10 * kMiB, 12 * kMiB, 0, 0};
  report.stats.active_bytes.all.current = 14 * kMiB;
  report.stats.requested_bytes.all.current = 14 * kMiB - 1000 - 24;
  report.stats.reserved_bytes.all = {40 * kMiB, 44 * kMiB, 0, 0};
  report.pending_bytes = 4 * kMiB;
  report.pending_requested_bytes = 4 * kMiB - 24;
  report.free_split_bytes = 6 * kMiB;
  report.free_whole_bytes = 20 * kMiB;
  report.largest_free_block_bytes = 20 * kMiB;
  return report;
}

// The parts' bytes by their names.
std::map<std::string, std::int64_t> bytes_by_part(const std::string& text) {
  std::map<std::string, std::int64_t> parts;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("  ", 0) != 0) continue;
    const std::string name = line.substr(2, 15);
    parts[name.substr(0, name.find_last_not_of(' ') + 1)] = std::stoll(line.substr(17));
  }
  return parts;
}

TEST(MemoryReport, PartsAreThoseGivenAndAddUpToTheDevice) {
  const auto parts = bytes_by_part(format_report(example()));
  EXPECT_EQ(parts, (std::map<std::string, std::int64_t>{{"live", 10 * kMiB - 1000},
                                                        {"rounding", 1000},
                                                        {"pending", 4 * kMiB},
                                                        {"free, split", 6 * kMiB},
                                                        {"free, whole", 20 * kMiB},
                                                        {"outside cistern", 6 * kMiB},
                                                        {"free on device", 50 * kMiB},
                                                        {"together", 96 * kMiB}}));
}

TEST(MemoryReport, EachPartHasItsShareAndAnExplanation) {
  const std::string text = format_report(example());
  EXPECT_NE(text.find("Memory of device 2 (simulated), in bytes:\n"), std::string::npos);
  EXPECT_NE(text.find("  free, whole            20971520      20.00 MiB   20.8 %  cached in unused segments"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  together              100663296      96.00 MiB  100.0 %  the whole device\n"),
            std::string::npos)
      << text;
}

TEST(MemoryReport, SaysWhatIsHeldForEachLiveByteThePeaksAndTheLargestFreeBlock) {
  const std::string text = format_report(example());
  EXPECT_NE(text.find("cistern holds 40.00 MiB (live to free, whole): 4.000 held for each live byte.\n"),
            std::string::npos)
      << text;
  EXPECT_NE(
      text.find("Peaks since the last reset: 12.00 MiB allocated, 44.00 MiB held. Largest free block: 20.00 MiB.\n"),
      std::string::npos)
      << text;
}

TEST(MemoryReport, AnUnusedDeviceDividesByNothing) {
  const std::string text = format_report({});
  EXPECT_NE(text.find("nothing is live"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(bytes_by_part(text).at("together"), 0);
}

}  // namespace
}  // namespace cistern
