// Threads whose stack the C library cannot name: for now, or never.

// The sanitizers ask for each thread's stack as well.
#include "tests/sanitizers.h"

#if !CISTERN_ADDRESS_SANITIZER && !CISTERN_THREAD_SANITIZER

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "stats/stack_capture.h"

namespace {

std::atomic<bool> refuses{false};
std::atomic<int> asked{0};

}  // namespace

// In place of the C library's, which the code under test calls like anybody.
extern "C" int pthread_getattr_np(pthread_t thread, pthread_attr_t* attributes) {
  static const auto original = reinterpret_cast<decltype(&pthread_getattr_np)>(dlsym(RTLD_NEXT, "pthread_getattr_np"));
  ++asked;
  return refuses ? EMFILE : original(thread, attributes);
}

namespace cistern {
namespace {

// Whether the unwind tables were needed, each of so many times.
[[gnu::noinline]] int captures_by_tables(int times) {
  int by_tables = 0;
  std::array<std::uintptr_t, kMaxStackFrames> frames;
  for (int i = 0; i < times; ++i) by_tables += capture_stack(frames.data(), frames.size()).by_tables ? 1 : 0;
  asm volatile("");
  return by_tables;
}

struct UnknownStack : ::testing::Test {
  UnknownStack() { refuses = true; }
  ~UnknownStack() override { refuses = false; }
};

TEST_F(UnknownStack, IsAskedForAgain) {
  std::thread([] {
    EXPECT_EQ(captures_by_tables(5), 5) << "nothing else is safe";
    refuses = false;
    EXPECT_EQ(captures_by_tables(100), 2) << "the 6th and 7th";
    EXPECT_EQ(captures_by_tables(100), 0);
  }).join();
}

TEST_F(UnknownStack, IsAskedForEverLessOften) {
  std::thread([] {
    const int before = asked;
    EXPECT_EQ(captures_by_tables(1000), 1000);
    EXPECT_EQ(asked - before, 10) << "1, 2, 4 to 512";
  }).join();
}

TEST_F(UnknownStack, OnceKnownIsNotAskedForAgain) {
  refuses = false;
  std::thread([] {
    const int before = asked;
    static_cast<void>(captures_by_tables(100));
    EXPECT_EQ(asked - before, 1);
  }).join();
}

}  // namespace
}  // namespace cistern

#endif
