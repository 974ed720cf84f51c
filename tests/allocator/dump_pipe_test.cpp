// A dump to a pipe: whole, in one piece, and never a reason to wait for ever or to die.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <regex>
#include <string>
#include <thread>
#include <utility>

#include "tests/byte_units.h"

namespace cistern {
namespace {

constexpr int kPieceBytes = 4096;  // the least that a pipe holds: less than a dump

class DumpToAPipe : public ::testing::Test {
 protected:
  DumpToAPipe() {
    std::filesystem::remove(path_);
    if (::mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("no pipe at " + path_);
  }
  ~DumpToAPipe() override {
    close_reader();
    std::filesystem::remove(path_);
  }
  void open_reader() {
    reader_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader_, 0);
    ASSERT_EQ(::fcntl(reader_, F_SETFL, 0), 0);
    ASSERT_EQ(::fcntl(reader_, F_SETPIPE_SZ, kPieceBytes), kPieceBytes);
  }
  void close_reader() {
    if (reader_ >= 0) ::close(std::exchange(reader_, -1));
  }
  // Until everybody who writes has closed it. Requires: somebody has opened it.
  [[nodiscard]] std::string read_all() const {
    std::string text;
    std::array<char, 500> piece{};
    while (true) {
      const ssize_t got = ::read(reader_, piece.data(), piece.size());
      if (got <= 0) return text;
      text.append(piece.data(), static_cast<std::size_t>(got));
    }
  }
  std::string failure() {
    try {
      static_cast<void>(allocator_.allocate(200 * kMega));
    } catch (const OutOfMemoryError& error) {
      return error.what();
    }
    return "it was served";
  }

  const std::string path_ = ::testing::TempDir() + "cistern-dump-pipe-" + std::to_string(::getpid());
  SimulatedDriver driver_{{.capacity_bytes = 128 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(),
       .options = AllocatorOptions::parse("oom_dump:" + path_, AllocatorOptions::parse("policy:classic"))}};
  int reader_ = -1;
};

TEST_F(DumpToAPipe, IsRefusedWhenNobodyReadsAndStandardErrorHasIt) {
  ::testing::internal::CaptureStderr();
  const std::string text = failure();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find(path_), std::string::npos) << text;
  EXPECT_EQ(said, "cistern: oom_dump: cannot append to '" + path_ +
                      "': it is a pipe that nobody reads\ncistern: " + text + "\n" + allocator_.memory_summary());
}

TEST_F(DumpToAPipe, ArrivesWhole) {
  open_reader();
  const int held = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);  // so that the reader sees no end before
  ASSERT_GE(held, 0);
  std::string text;
  std::thread failing([&] {
    text = failure();
    ::close(held);
  });
  const std::string read = read_all();
  failing.join();
  EXPECT_NE(text.find(" The memory summary is in " + path_ + "."), std::string::npos) << text;
  EXPECT_EQ(read, "cistern: " + text + "\n" + allocator_.memory_summary());
  EXPECT_GT(read.size(), std::size_t{kPieceBytes}) << "more than one piece";
}

TEST_F(DumpToAPipe, WhoseReaderGoesAwayIsOnStandardError) {
  open_reader();
  allocator_.add_out_of_memory_observer([this](const OutOfMemoryReport&) { close_reader(); });
  ::testing::internal::CaptureStderr();
  const std::string text = failure();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find(path_), std::string::npos) << text;
  EXPECT_EQ(said, "cistern: oom_dump: cannot write to '" + path_ +
                      "': it is a pipe that nobody reads\ncistern: " + text + "\n" + allocator_.memory_summary());
}

TEST_F(DumpToAPipe, OfSeveralThreadsComesOneAfterTheOther) {
  open_reader();
  const int held = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(held, 0);
  constexpr int kThreads = 3;
  constexpr int kDumps = 20;
  std::thread all([&] {
    std::array<std::thread, kThreads> threads;
    for (std::thread& thread : threads)
      thread = std::thread([this] {
        for (int i = 0; i < kDumps; ++i) static_cast<void>(failure());
      });
    for (std::thread& thread : threads) thread.join();
    ::close(held);
  });
  const std::string read = read_all();
  all.join();
  // Figures apart, each is the same.
  const std::string shape = std::regex_replace(read, std::regex("[0-9]+"), "#");
  const std::string one = shape.substr(0, shape.find("cistern: CUDA", 1));
  std::string expected;
  for (int i = 0; i < kThreads * kDumps; ++i) expected += one;
  EXPECT_TRUE(std::regex_replace(shape, std::regex(" +"), " ") == std::regex_replace(expected, std::regex(" +"), " "))
      << read.substr(0, 20000);
}

}  // namespace
}  // namespace cistern
