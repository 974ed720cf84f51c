// Device memory runs out while the host has none either: from the driver's refusal on, every
// malloc and every operator new of this thread fails, and error, report and dump are whole.
//
// A program of its own, for it replaces malloc.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"

namespace {

thread_local bool host_memory_is_gone = false;
thread_local int refused_requests = 0;

bool refuses() {
  if (host_memory_is_gone) ++refused_requests;
  return host_memory_is_gone;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* pointer, std::size_t bytes);

void* malloc(std::size_t bytes) { return refuses() ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) { return refuses() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* pointer, std::size_t bytes) { return refuses() ? nullptr : __libc_realloc(pointer, bytes); }
}

void* operator new(std::size_t bytes) {
  if (void* pointer = std::malloc(bytes == 0 ? 1 : bytes)) return pointer;
  throw std::bad_alloc();
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }

namespace cistern {
namespace {

constexpr std::size_t kMega = 1024 * 1024;

// The simulated driver, whose first refusal takes the thread's host memory away. The driver itself
// keeps what it needs, as a real one would: its calls have host memory.
class RefusingDriver {
 public:
  RefusingDriver() : api_(driver.api()) {
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  if (api_.member) api_.member = {this, &Entry<&DriverApi::member>::call};
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  }
  [[nodiscard]] const DriverApi& api() const { return api_; }

  SimulatedDriver driver{{.capacity_bytes = 128 * kMega, .backing = Backing::none}};
  std::atomic<bool> armed{false};

 private:
  template <auto member>
  struct Entry;
  template <class... Args, DriverEntry<CUresult(Args...)> DriverApi::*member>
  struct Entry<member> {
    static CUresult call(void* self, Args... args) {
      auto* refusing = static_cast<RefusingDriver*>(self);
      const bool was_gone = std::exchange(host_memory_is_gone, false);
      const CUresult result = (refusing->driver.api().*member)(args...);
      host_memory_is_gone = was_gone || (result == CUDA_ERROR_OUT_OF_MEMORY && refusing->armed);
      return result;
    }
  };

  DriverApi api_;
};

struct Failure {
  OutOfMemoryReport report;
  OutOfMemoryError::Text text;
};

// What a request that must fail throws; afterwards there is host memory again.
std::optional<Failure> failure_of(CachingAllocator& allocator, std::size_t bytes) {
  std::optional<Failure> failure;
  try {
    static_cast<void>(allocator.allocate(bytes));
  } catch (const OutOfMemoryError& error) {
    failure = Failure{error.report(), OutOfMemoryError::Text(error.what())};
  }
  host_memory_is_gone = false;
  return failure;
}

class NoHostMemoryTest : public testing::Test {
 protected:
  ~NoHostMemoryTest() override { std::remove(path_.c_str()); }
  [[nodiscard]] std::string dumped() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::string path_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + "-dump.txt";
  RefusingDriver driver_;
  CachingAllocator allocator_{{.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:" + path_)}};
};

TEST_F(NoHostMemoryTest, ErrorReportAndDumpAreThoseOfAnyOtherFailure) {
  void* live = allocator_.allocate(100 * kMega);
  const std::optional<Failure> with = failure_of(allocator_, 50 * kMega);
  const std::string dumped_with = dumped();
  std::remove(path_.c_str());
  allocator_.deallocate(live);
  allocator_.empty_cache();
  allocator_.reset_accumulated_memory_stats();
  allocator_.reset_peak_memory_stats();

  live = allocator_.allocate(100 * kMega);
  driver_.armed = true;
  refused_requests = 0;
  const std::optional<Failure> without = failure_of(allocator_, 50 * kMega);
  ASSERT_TRUE(with && without);
  EXPECT_GT(refused_requests, 0) << "nothing asked for host memory: it was not gone";
  EXPECT_EQ(without->report.cause, OutOfMemoryCause::device_full);
  EXPECT_EQ(without->report.allocated_bytes, 100 * kMega);
  EXPECT_EQ(dumped(), "cistern: " + std::string(without->text) + "\n" + allocator_.memory_summary());
  // But for who uses the device, which takes host memory to ask.
  EXPECT_EQ(dumped_with.size() - with->text.size(), dumped().size() - without->text.size());
  EXPECT_NO_THROW(allocator_.check());
  allocator_.deallocate(live);
}

TEST_F(NoHostMemoryTest, ObserversAreToldAndWhatTheyThrowIsKeptFromTheCaller) {
  int told = 0;
  allocator_.add_out_of_memory_observer([&](const OutOfMemoryReport& report) {
    told += report.requested_bytes == 200 * kMega ? 1 : 0;
    throw std::bad_alloc();
  });
  driver_.armed = true;
  EXPECT_TRUE(failure_of(allocator_, 200 * kMega));
  EXPECT_EQ(told, 1);
}

TEST_F(NoHostMemoryTest, ManyThreadsAtOnceEachGetTheirOwnWholeDump) {
  static_cast<void>(allocator_.allocate(100 * kMega));
  driver_.armed = true;
  std::atomic<int> whole{0};
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      const auto bytes = static_cast<std::size_t>(50 + i) * kMega;
      const std::optional<Failure> failure = failure_of(allocator_, bytes);
      whole += failure && failure->report.requested_bytes == bytes ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole, kThreads);
  const std::string text = dumped();
  std::size_t begins = 0;
  for (std::size_t at = text.find("cistern: CUDA"); at != std::string::npos; at = text.find("cistern: CUDA", at + 1))
    ++begins;
  EXPECT_EQ(begins, kThreads);
  EXPECT_EQ(allocator_.memory_stats().num_ooms, kThreads);
}

}  // namespace
}  // namespace cistern
