// What a report says, and what becomes of the process.

#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "tests/detector/program.h"

namespace cistern::testing {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;

void race(SimulatedDriver& driver, const void* memory, int times = 1) {
  const StreamHandle left = driver.create_stream(), right = driver.create_stream();
  for (int i = 0; i < times; ++i) {
    driver.launch(left, {}, {{memory, 256}}, {}, {}, "left half");
    driver.launch(right, {{memory, 512}}, {}, {}, {}, "right half");
  }
}

TEST(RaceReports, NameBothSidesTheBytesAndTheAllocation) {
  World world(false);
  char* memory = world.allocate(8 * KiB);
  race(world.driver, memory + 1024);
  const std::vector<RaceReport> reports = world.driver.race_reports();
  ASSERT_EQ(reports.size(), 1U);
  const RaceReport& report = reports.front();
  EXPECT_EQ(report.kind, RaceKind::data_race);
  EXPECT_EQ(report.earlier.operation, "kernel");
  EXPECT_EQ(report.earlier.name, "left half");
  EXPECT_TRUE(report.earlier.writes);
  EXPECT_EQ(report.earlier.device, 0);
  ASSERT_TRUE(report.later);
  EXPECT_EQ(report.later->name, "right half");
  EXPECT_FALSE(report.later->writes);
  EXPECT_NE(report.later->stream_id, report.earlier.stream_id);
  EXPECT_EQ(report.address, memory + 1024);
  EXPECT_EQ(report.bytes, 256U);  // those that both touch
  ASSERT_TRUE(report.block);
  EXPECT_EQ(report.block->address, memory);
  EXPECT_EQ(report.block->bytes, 8 * KiB);
  EXPECT_EQ(report.block->origin, "cuMemAlloc");
  EXPECT_FALSE(report.block->allocated.frames.empty());
  EXPECT_FALSE(report.earlier.stack.frames.empty());
  EXPECT_NE(report.earlier.stack.frames, report.later->stack.frames);
  const std::string text = report.to_string();
  EXPECT_THAT(text, HasSubstr("256 bytes at "));
  EXPECT_THAT(text, HasSubstr("at offset 1024 of the cuMemAlloc of 8192 bytes"));
  EXPECT_THAT(text, HasSubstr("kernel \"left half\" (writes) on stream 0x"));
  EXPECT_THAT(text, HasSubstr("then kernel \"right half\" (reads) on stream 0x"));
  EXPECT_THAT(text, HasSubstr("allocated from"));
}

TEST(RaceReports, TellWhereDeadMemoryWasFreed) {
  World world(false);
  const StreamHandle stream = world.stream();
  char* block = world.block(stream);
  world.heap.deallocate(block);
  world.write(stream, block);
  const std::vector<RaceReport> reports = world.driver.race_reports();
  ASSERT_EQ(reports.size(), 1U);
  ASSERT_TRUE(reports.front().block);
  EXPECT_FALSE(reports.front().block->is_live);
  EXPECT_FALSE(reports.front().block->freed.frames.empty());
  EXPECT_THAT(reports.front().to_string(), HasSubstr("of the freed block of 4096 bytes"));
}

TEST(RaceReports, CountAPairOfPlacesOnce) {
  World world(false);
  race(world.driver, world.allocate(), 5);
  const std::vector<RaceReport> reports = world.driver.race_reports();
  std::uint64_t repeats = 0;
  for (const RaceReport& report : reports) repeats += report.repeats;
  EXPECT_LE(reports.size(), 2U);  // left then right, and right then left
  EXPECT_GE(repeats, 3U);
}

TEST(RaceReports, KeepTheInnermostFramesOfEachStack) {
  const auto reports_with = [](int frames) {
    World world(false, {.race_frames = frames});
    race(world.driver, world.allocate());
    return world.driver.race_reports();
  };
  const std::vector<RaceReport> whole = reports_with(SimulatedOptions::kMostRaceFrames);
  const std::vector<RaceReport> cut = reports_with(3);
  const std::vector<RaceReport> bare = reports_with(0);
  ASSERT_TRUE(whole.size() == 1 && cut.size() == 1 && bare.size() == 1);
  EXPECT_EQ(cut.front().block->allocated.frames.size(), 3U);
  ASSERT_EQ(cut.front().earlier.stack.frames.size(), 3U);
  const std::vector<const void*>& all = whole.front().earlier.stack.frames;
  ASSERT_GT(all.size(), 3U);
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + 3, cut.front().earlier.stack.frames.begin()));
  EXPECT_TRUE(bare.front().earlier.stack.frames.empty());
  EXPECT_EQ(bare.front().earlier.name, "left half");
}

TEST(RaceReports, MoreFramesThanAreKeptAreRefused) {
  EXPECT_THROW(SimulatedDriver({.race_frames = SimulatedOptions::kMostRaceFrames + 1}), InvalidArgument);
  EXPECT_THROW(SimulatedDriver({.race_frames = -1}), InvalidArgument);
}

TEST(RaceReports, AreForgottenWhenCleared) {
  World world(false);
  race(world.driver, world.allocate());
  world.driver.clear_race_reports();
  EXPECT_TRUE(world.driver.race_reports().empty());
}

TEST(RaceReports, AreNoneWhenTheDetectorIsOff) {
  SimulatedDriver driver({.capacity_bytes = 64 * MiB});
  EXPECT_EQ(driver.api().note_allocate.function, nullptr);
  EXPECT_EQ(driver.api().note_use.function, nullptr);
  EXPECT_EQ(driver.api().note_free.function, nullptr);
  driver.host_access({{&driver, 1}}, {});
  EXPECT_TRUE(driver.race_reports().empty());
}

// A program on the process's own driver, as a user runs it.
[[noreturn]] void run_process(const char* device, bool races, int status) {
  static_cast<void>(::setenv("CISTERN_DEVICE", device, 1));
  const Stream first = Stream::create(), second = Stream::create();
  void* memory = allocate(4 * KiB, first);
  simulated::launch(first, {}, {{memory, 4 * KiB}}, {}, {}, "producer");
  if (!races) second.wait_stream(first);
  simulated::launch(second, {{memory, 4 * KiB}}, {}, {}, {}, "consumer");
  first.wait_stream(second);
  deallocate(memory);
  std::exit(status);
}

TEST(RaceModeOfTheProcess, ReportEndsWithItsOwnStatus) {
  EXPECT_EXIT(run_process("simulated:capacity=64MiB,races=report", true, 0), ExitedWithCode(kRaceExitStatus),
              "race detector: data race(.|\n)*kernel \"producer\" .writes.(.|\n)*then kernel \"consumer\" .reads.");
}

TEST(RaceModeOfTheProcess, ReportKeepsAStatusOfTheProgram) {
  EXPECT_EXIT(run_process("simulated:capacity=64MiB,races=report", true, 3), ExitedWithCode(3), "data race");
}

TEST(RaceModeOfTheProcess, ReportIsSilentWithoutARace) {
  EXPECT_EXIT(run_process("simulated:capacity=64MiB,races=report", false, 0), ExitedWithCode(0), "^$");
}

TEST(RaceModeOfTheProcess, AbortEndsAtTheFirst) {
  EXPECT_EXIT(run_process("simulated:capacity=64MiB,races=abort", true, 0), KilledBySignal(SIGABRT), "data race");
}

// Ends with the number of finds.
[[noreturn]] void make_a_stream_in_a_host_function() {
  static_cast<void>(::setenv("CISTERN_DEVICE", "simulated:capacity=64MiB,races=collect", 1));
  const Stream stream = Stream::create();
  stream.launch_host_func([] { EXPECT_THROW(static_cast<void>(Stream::create()), DriverError); });
  stream.synchronize();
  std::exit(static_cast<int>(simulated::driver().race_reports().size()));
}

TEST(RaceModeOfTheProcess, AForbiddenCallIsOneFind) {
  EXPECT_EXIT(make_a_stream_in_a_host_function(), ExitedWithCode(1), "^$");
}

TEST(RaceModeOfTheProcess, OffSaysNothing) {
  EXPECT_EXIT(run_process("simulated:capacity=64MiB,races=off", true, 0), ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace cistern::testing
