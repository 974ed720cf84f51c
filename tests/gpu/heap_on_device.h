#pragma once

#include <cistern/cistern.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <future>
#include <memory>

namespace cistern {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kGiB = std::size_t{1} << 30;

// The process-wide heap on the first device: empty before each test and after it.
class HeapOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    initialize();
    synchronize();
    empty_cache();
    ASSERT_EQ(memory_reserved(), 0u);
    reset_peak_memory_stats();
    reset_accumulated_memory_stats();
  }
  void TearDown() override {
    synchronize();
    empty_cache();
    EXPECT_EQ(memory_allocated(), 0u);
    EXPECT_EQ(memory_reserved(), 0u);
  }
};

// Keeps a stream busy until it is let go, on any device: its next work waits for a host
// function that waits for us. Whoever waits for the stream must let go first.
class Roadblock {
 public:
  explicit Roadblock(const Stream& stream) {
    stream.launch_host_func([opened = opened_] { opened.wait(); });
  }
  ~Roadblock() { open(); }
  Roadblock(const Roadblock&) = delete;
  Roadblock& operator=(const Roadblock&) = delete;

  void open() {
    if (is_open_) return;
    is_open_ = true;
    gate_.set_value();
  }

 private:
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  bool is_open_ = false;
};

}  // namespace cistern
