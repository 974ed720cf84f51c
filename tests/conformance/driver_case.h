#pragma once

// What the statements are asked with: the driver table of the process's device, and means that
// every driver has. Work is copies, fills and host functions.
//
// A gate must be open before anybody waits for what it holds up: a driver may run its work on the
// thread that waits.

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/conformance/statement.h"

namespace cistern::conformance {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// The table that the tests run on: that of CISTERN_DEVICE.
[[nodiscard]] const DriverApi& driver_under_test();

// "CUDA_ERROR_INVALID_VALUE", as the driver itself names it.
[[nodiscard]] std::string name_of(CUresult result);

::testing::AssertionResult came_as_expected(const char* expected_text, const char* call, CUresult expected,
                                            CUresult came);

#define EXPECT_RESULT(expected, call) EXPECT_PRED_FORMAT2(::cistern::conformance::came_as_expected, expected, call)
#define ASSERT_RESULT(expected, call) ASSERT_PRED_FORMAT2(::cistern::conformance::came_as_expected, expected, call)
#define EXPECT_OK(call) EXPECT_RESULT(CUDA_SUCCESS, call)
#define ASSERT_OK(call) ASSERT_RESULT(CUDA_SUCCESS, call)

// Host functions wait here until the test opens it.
class Gate {
 public:
  void open();
  // Returns when it is open. After a minute it gives up: the test forgot, or waits for itself.
  void pass();
  // How many have come to it so far.
  [[nodiscard]] int arrivals();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int arrivals_ = 0;
};

// Numbers, in the order in which host functions wrote them.
class Log {
 public:
  void add(int number);
  [[nodiscard]] std::vector<int> numbers();

 private:
  std::mutex mutex_;
  std::vector<int> numbers_;
};

// The primary context of the first device is current. What a test makes lives until its end: then
// all gates open, the device is waited for, and everything is given back.
class DriverCase : public ::testing::Test {
 protected:
  DriverCase();
  void SetUp() override;
  void TearDown() final;
  // What a kind of test made beside that, after the device was waited for.
  virtual void give_back() {}

  CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING, int priority = 0);
  CUevent make_event(unsigned flags = CU_EVENT_DISABLE_TIMING);
  // Zeroes.
  CUdeviceptr make_memory(std::size_t bytes = 4096);
  Gate& make_gate();

  // Holds up what is queued on the stream from now on, until the gate opens.
  Gate& hold(CUstream stream);
  void pass(CUstream stream, Gate& gate);
  // Queues a host function that writes `number` into the log.
  void note(CUstream stream, int number);
  void fill(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream);
  void copy(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream);
  void record(CUevent event, CUstream stream);
  void wait(CUstream stream, CUevent event);
  // Waits for the stream.
  void finish(CUstream stream);
  // The bytes of device memory as they are now. Waits for nothing else of the device's.
  std::vector<unsigned char> read(CUdeviceptr memory, std::size_t bytes);
  // Whether all `bytes` have the value; the message says which is the first that has not.
  ::testing::AssertionResult holds(CUdeviceptr memory, std::size_t bytes, unsigned char value);

  // The second device's context; null where there is none.
  CUcontext second_context();

  const DriverApi& api;
  CUdevice device = 0;
  CUcontext context = nullptr;
  Log log;

 private:
  struct Note {
    Log* log;
    int number;
  };

  CUcontext second_ = nullptr;
  CUstream reader_ = nullptr;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUdeviceptr> memory_;
  std::deque<Gate> gates_;
  std::deque<Note> notes_;
};

#define REQUIRE_TWO_DEVICES() \
  if (second_context() == nullptr) GTEST_SKIP() << "there is one device only"

}  // namespace cistern::conformance
