// The free functions under policy `async`: what of it other processes may have. Each case has a process of its own.

#include <cistern/cistern.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/byte_units.h"

namespace cistern {
namespace {

class ProcessStreamOrdered : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:capacity=1GiB", 1);
    setenv("CISTERN_ALLOC_CONF", "policy:async", 1);
  }
};

TEST_F(ProcessStreamOrdered, ABlockDoesNotLeaveTheProcessAndSaysWhatDoes) {
  void* const block = allocate(3 * kMega);
  const auto refusal = [](auto&& share) {
    try {
      share();
    } catch (const NotSupported& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string sent = refusal([&] { static_cast<void>(send_memory(block)); });
  EXPECT_NE(sent.find("send_memory"), std::string::npos) << sent;
  EXPECT_NE(sent.find("MemPool"), std::string::npos) << sent;
  const std::string exported = refusal([&] { static_cast<void>(export_range(block)); });
  EXPECT_NE(exported.find("export_range"), std::string::npos) << exported;
  EXPECT_NE(exported.find("MemPool"), std::string::npos) << exported;
  EXPECT_EQ(ipc_counts().handles, 0U);
  deallocate(block);
  EXPECT_EQ(memory_allocated(), 0U) << "nobody holds it";
}

TEST_F(ProcessStreamOrdered, AMemPoolsBlockIsSent) {
  const MemPool pool;
  void* const block = pool.allocate(3 * kMega);
  const MemoryHandle handle = send_memory(block);
  EXPECT_GE(handle.size(), 3 * kMega);
  recall_memory(handle);
  deallocate(block);
  EXPECT_EQ(memory_allocated(), 0U);
}

}  // namespace
}  // namespace cistern
