// Devices that several processes share: shared=NAME.

#include <cistern/error.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tests/ipc/peer_process.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern::testing {
namespace {

using Kind = PeerProcess::Kind;

class SharedDevices : public ::testing::Test {
 protected:
  SimulatedOptions options(std::size_t capacity = 64 * MiB) const {
    SimulatedOptions shared;
    shared.capacity_bytes = capacity;
    shared.shared = name;
    return shared;
  }
  [[nodiscard]] bool has_file() const {
    struct stat status {};
    return ::stat(("/dev/shm/cistern-" + std::to_string(::getuid()) + "-" + name).c_str(), &status) == 0;
  }
  static std::size_t free_bytes(const ReadyDriver& driver) {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(driver.api.mem_get_info(&free, &total), CUDA_SUCCESS);
    return free;
  }

  // Of this test's process: tests run beside each other.
  const std::string name = "test-" + std::to_string(::getpid());
  const std::string settings = "capacity=64MiB,shared=" + name;
};

TEST_F(SharedDevices, WhatOneProcessHoldsTheOthersCannot) {
  ReadyDriver own(options());
  PeerProcess peer(Kind::driver, settings);
  const std::uint64_t theirs = peer.ask_number("allocate 41943040");
  EXPECT_EQ(free_bytes(own), 24 * MiB);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(own.api.mem_alloc(&pointer, 32 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(own.driver.used_bytes(), 0u) << "nothing was taken";
  EXPECT_EQ(peer.ask("free " + std::to_string(theirs)), "ok");
  own.allocate(32 * MiB);
  EXPECT_EQ(peer.ask("free_bytes"), std::to_string(32 * MiB));
}

TEST_F(SharedDevices, WhatAKilledProcessHeldComesBack) {
  ReadyDriver own(options());
  PeerProcess peer(Kind::driver, settings);
  peer.ask_number("allocate 62914560");
  ASSERT_EQ(free_bytes(own), 4 * MiB);
  peer.kill();
  EXPECT_EQ(free_bytes(own), 64 * MiB);
  own.allocate(64 * MiB);
}

TEST_F(SharedDevices, TheLastToLeaveRemovesTheFile) {
  {
    ReadyDriver own(options());
    { const ReadyDriver second(options()); }
    EXPECT_TRUE(has_file());
  }
  EXPECT_FALSE(has_file());
}

TEST_F(SharedDevices, AFileThatKilledProcessesLeftIsTakenOver) {
  {
    PeerProcess peer(Kind::driver, "capacity=32MiB,shared=" + name);
    peer.ask_number("allocate 2097152");
    peer.kill();
  }
  EXPECT_TRUE(has_file());
  {
    const ReadyDriver own(options());
    EXPECT_EQ(free_bytes(own), 64 * MiB);
  }
  EXPECT_FALSE(has_file());
}

TEST_F(SharedDevices, AllProcessesMustHaveTheSameDevices) {
  const ReadyDriver own(options());
  try {
    SimulatedDriver other(options(32 * MiB));
    FAIL() << "it was accepted";
  } catch (const InvalidArgument& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("1 devices of 67108864 bytes"), std::string::npos) << refusal.what();
    EXPECT_NE(std::string(refusal.what()).find("not 1 of 33554432"), std::string::npos) << refusal.what();
  }
  EXPECT_EQ(free_bytes(own), 64 * MiB);
}

TEST_F(SharedDevices, NamesThatCannotBeAFilesAreRefused) {
  EXPECT_THROW(static_cast<void>(SimulatedOptions::parse("shared=")), InvalidArgument);
  for (const char* bad : {"a/b", "..\n", " "}) {
    SimulatedOptions named;
    named.shared = bad;
    EXPECT_THROW(SimulatedDriver driver(named), InvalidArgument) << bad;
  }
}

TEST_F(SharedDevices, TheProcessesAttachedAreListedWithWhatTheyHold) {
  ReadyDriver own(options());
  own.allocate(2 * MiB);
  PeerProcess peer(Kind::driver, settings);
  peer.ask_number("allocate 4194304");
  const auto processes = own.api.list_processes(0);
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].id, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(processes[0].bytes, 2 * MiB);
  EXPECT_EQ(processes[1].id, static_cast<std::uint32_t>(peer.id()));
  EXPECT_EQ(processes[1].bytes, 4 * MiB);
  peer.kill();
  EXPECT_EQ(own.api.list_processes(0).size(), 1u);
}

}  // namespace
}  // namespace cistern::testing
