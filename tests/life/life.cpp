// Stories of how a process ends, one a run: cistern_life STORY. Status 0 and nothing on standard error, or it is wrong.

#include <cistern/cistern.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/byte_units.h"
#include "tests/life/static_objects.h"

namespace cistern::life {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(3);
}
#define REQUIRE(condition) require(condition, #condition)

void use(const Stream& stream) {
  void* const pointer = allocate(2 * kMega, stream);
  void* const staging = allocate_host(kMega);
  copy_async(pointer, staging, kMega, stream);
  record_host_stream(staging, stream);
  deallocate_host(staging);
  fill_async(pointer, 1, 2 * kMega, stream);
  deallocate(pointer);
}

// What a forked child is refused, by a precise error.
template <class Call>
bool is_refused_after_fork(Call&& call) {
  try {
    call();
  } catch (const NotSupported& error) {
    return std::strstr(error.what(), "fork") != nullptr;
  }
  return false;
}

// Blocks, streams with work, an event: left as they are.
int exit_with_live_memory() {
  const Stream stream = Stream::create();
  void* const pointer = allocate(kMega, stream);
  fill_async(pointer, 1, kMega, stream);
  record_stream(pointer, Stream::from_pool());
  static const Event* const event = new Event(stream.record_event());
  static const DeviceBuffer<int>* const buffer = new DeviceBuffer<int>(1000);
  REQUIRE(event->is_created() && buffer->size() == 1000);
  return 0;
}

void* left_for_exit = nullptr;
int exit_in_a_handler() {
  // Registered before and after the first use: run after and before what the library registered itself.
  std::atexit([] { deallocate(left_for_exit); });
  left_for_exit = allocate(kMega);
  std::atexit([] {
    use(Stream::create());
    REQUIRE(memory_allocated() == kMega);
  });
  return 0;
}

int static_objects() {
  fill_static_objects();
  thread_local DeviceBuffer<int> of_the_thread(100);
  std::thread([] { thread_local DeviceBuffer<int> of_another(of_the_thread.size() + 1); }).join();
  return 0;
}

// They allocate, free, use streams and events while the process ends under them.
int threads_that_outlive_main() {
  static std::atomic<int> busy{0};
  for (int i = 0; i < 3; ++i)
    std::thread([] {
      const Stream stream = Stream::create();
      for (;;) {
        use(stream);
        static_cast<void>(memory_stats());
        ++busy;
      }
    }).detach();
  while (busy < 30) std::this_thread::yield();
  return 0;
}

int quick_exit() {
  fill_static_objects();
  std::_Exit(0);
}

int wait_for(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// The child reads statistics, is refused the rest by a precise error, and ends as any process does: its destructors,
// of static objects too, free nothing and harm nothing.
int fork_and_exit() {
  fill_static_objects();
  CachingAllocator own;
  void* const of_own = own.allocate(kMega);
  void* const cached = own.allocate(kMega);
  own.deallocate(cached);
  const std::size_t live = memory_allocated();
  const std::int64_t live_host = host_memory_stats().active_bytes.current;
  const pid_t child = fork();
  if (child == 0) {
    REQUIRE(memory_allocated() == live);
    REQUIRE(host_memory_stats().active_bytes.current == live_host);
    REQUIRE(!memory_summary().empty());
    REQUIRE(is_refused_after_fork([] { static_cast<void>(allocate(kMega)); }));
    REQUIRE(is_refused_after_fork([] { static_cast<void>(allocate_host(kMega)); }));
    REQUIRE(is_refused_after_fork([] { empty_host_cache(); }));
    REQUIRE(is_refused_after_fork([] { ipc_collect(); }));
    // Its own are the parent's, too, what they have cached included; and new ones there are none.
    REQUIRE(is_refused_after_fork([&] { static_cast<void>(own.allocate(kMega)); }));
    REQUIRE(is_refused_after_fork([&] { static_cast<void>(own.allocate(kMega, Stream::null())); }));
    REQUIRE(is_refused_after_fork([&] { static_cast<void>(own.allocate_host(kMega)); }));
    REQUIRE(is_refused_after_fork([&] { own.empty_cache(); }));
    REQUIRE(is_refused_after_fork([&] { own.record_stream(of_own, nullptr); }));
    REQUIRE(is_refused_after_fork([] { static_cast<void>(CachingAllocator()); }));
    own.deallocate(of_own);
    deallocate_host(nullptr);
    REQUIRE(own.memory_stats().allocated_bytes.all.current == kMega);
    std::exit(0);
  }
  REQUIRE(wait_for(child) == 0);
  REQUIRE(memory_allocated() == live);
  own.deallocate(of_own);
  use(Stream::create());
  return 0;
}

int fork_while_others_allocate() {
  std::atomic<bool> stop{false};
  std::atomic<int> busy{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      const Stream stream = Stream::create();
      while (!stop) {
        use(stream);
        ++busy;
      }
    });
  for (int i = 0; i < 5; ++i) {
    for (const int before = busy; busy < before + 5;) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      static_cast<void>(memory_stats());
      static_cast<void>(host_memory_stats());
      deallocate(nullptr);
      _exit(0);
    }
    REQUIRE(wait_for(child) == 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  return 0;
}

// What callbacks throw is ignored: the request's own error arrives, or its memory.
int exceptions_in_observers() {
  add_out_of_memory_observer([](const OutOfMemoryReport&) { throw std::runtime_error("observer"); });
  add_free_memory_callback([](int, std::size_t) -> bool { throw 7; });
  const Budget budget({"", {}, kMega, kUnlimited, [](const BudgetCrossing&) { throw std::string("budget"); }});
  use(Stream::create());
  try {
    static_cast<void>(allocate(std::size_t{1} << 40));
    return 4;
  } catch (const OutOfMemoryError& error) {
    REQUIRE(error.report().requested_bytes == std::size_t{1} << 40);
  }
  use(Stream::create());
  REQUIRE(memory_allocated() == 0 && memory_stats().num_ooms == 1);
  return 0;
}

// By many threads at once, and again.
int double_initialisation() {
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      while (!go) std::this_thread::yield();
      if (i % 2 == 0) initialize();
      use(Stream::create());
      initialize();
    });
  go = true;
  for (std::thread& thread : threads) thread.join();
  initialize();
  REQUIRE(is_initialized());
  REQUIRE(memory_stats().allocation.all.allocated == 4 && memory_allocated() == 0);
  return 0;
}

// Nothing but how the driver and the heaps are made known orders what one thread made and another uses, if it sees it:
// ThreadSanitizer knows. The first thread makes the device's heap and asks nothing of it: what it stores there hides
// from ThreadSanitizer how it was made.
int first_use_seen_by_another_thread() {
  std::atomic<bool> is_loaded{false};
  std::atomic<bool> is_made{false};
  std::thread second([&] {
    while (!is_loaded.load(std::memory_order_relaxed)) std::this_thread::yield();
    REQUIRE(device_count() == 1);
    while (!is_made.load(std::memory_order_relaxed)) std::this_thread::yield();
    deallocate(allocate(kMega));
  });
  REQUIRE(device_count() == 1);
  is_loaded.store(true, std::memory_order_relaxed);
  reset_peak_memory_stats();
  is_made.store(true, std::memory_order_relaxed);
  second.join();
  REQUIRE(memory_allocated() == 0);
  return 0;
}

// The driver ended first, as CUDA's does when its own exit handler runs: frees become nothing.
int driver_gone_at_exit() {
  fill_static_objects();
  synchronize();
  simulated::driver().shut_down();
  return 0;
}

const std::map<std::string, std::function<int()>>& stories() {
  static const std::map<std::string, std::function<int()>> all{
      {"exit_with_live_memory", exit_with_live_memory},
      {"exit_in_a_handler", exit_in_a_handler},
      {"static_objects", static_objects},
      {"threads_that_outlive_main", threads_that_outlive_main},
      {"quick_exit", quick_exit},
      {"fork_and_exit", fork_and_exit},
      {"fork_while_others_allocate", fork_while_others_allocate},
      {"exceptions_in_observers", exceptions_in_observers},
      {"double_initialisation", double_initialisation},
      {"first_use_seen_by_another_thread", first_use_seen_by_another_thread},
      {"driver_gone_at_exit", driver_gone_at_exit},
  };
  return all;
}

}  // namespace
}  // namespace cistern::life

int main(int count, char** arguments) {
  const auto& stories = cistern::life::stories();
  const auto story = count == 2 ? stories.find(arguments[1]) : stories.end();
  if (story == stories.end()) {
    std::fprintf(stderr, "usage: cistern_life STORY\n");
    return 2;
  }
  return story->second();
}
