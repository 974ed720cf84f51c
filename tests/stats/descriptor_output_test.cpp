// All that is written arrives, however a pipe takes it; what cannot be written is an error, never a signal.

#include "stats/descriptor_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

namespace cistern {
namespace {

class WriteAll : public ::testing::Test {
 protected:
  WriteAll() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  ~WriteAll() override {
    close_reader();
    ::close(ends_[1]);
  }
  [[nodiscard]] int reader() const { return ends_[0]; }
  [[nodiscard]] int writer() const { return ends_[1]; }
  void close_reader() {
    if (ends_[0] >= 0) ::close(std::exchange(ends_[0], -1));
  }
  void make_non_blocking() const { ASSERT_EQ(::fcntl(writer(), F_SETFL, O_NONBLOCK), 0); }
  void fill() const {
    const std::string piece(4096, '.');
    while (::write(writer(), piece.data(), piece.size()) > 0) {
    }
    ASSERT_EQ(errno, EAGAIN);
  }
  // Reads so many bytes, with `between` called before each piece.
  template <class Between>
  [[nodiscard]] std::string read(std::size_t bytes, Between&& between) const {
    std::string text;
    std::array<char, 1000> piece{};
    while (text.size() < bytes) {
      between();
      const ssize_t got = ::read(reader(), piece.data(), piece.size());
      if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::string a_megabyte() {
  std::string text;
  for (std::size_t i = 0; text.size() < 1000000; ++i) text += std::to_string(i) + ' ';
  return text;
}

TEST_F(WriteAll, WaitsForRoomWhereTheDescriptorDoesNotBlock) {
  make_non_blocking();
  const std::string text = a_megabyte();
  bool written = false;
  std::thread thread([&] { written = write_all(writer(), text); });
  EXPECT_EQ(read(text.size(), [] {}), text);
  thread.join();
  EXPECT_TRUE(written);
}

TEST_F(WriteAll, GoesOnAfterEachInterruption) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = [](int) {};  // and system calls are not begun again
  ASSERT_EQ(::sigaction(SIGUSR1, &ignore, &before), 0);
  for (const bool blocks : {true, false}) {
    if (!blocks) make_non_blocking();
    const std::string text = a_megabyte();
    std::atomic<bool> written{false};
    std::atomic<bool> done{false};
    std::thread thread([&] {
      written = write_all(writer(), text);
      done = true;
      while (done) std::this_thread::yield();
    });
    EXPECT_EQ(read(text.size(), [&] { ::pthread_kill(thread.native_handle(), SIGUSR1); }), text);
    while (!done) std::this_thread::yield();
    done = false;
    thread.join();
    EXPECT_TRUE(written) << blocks;
  }
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(WriteAll, GivesUpWhenNobodyMakesRoom) {
  make_non_blocking();
  fill();
  EXPECT_FALSE(write_all(writer(), "one more", std::chrono::milliseconds(0)));
  EXPECT_EQ(errno, ETIMEDOUT);
}

TEST_F(WriteAll, IsRefusedWithoutASignalWhenNobodyReads) {
  close_reader();
  EXPECT_FALSE(write_all(writer(), "to nobody"));
  EXPECT_EQ(errno, EPIPE);
  sigset_t pending;
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
  sigset_t blocked;
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
  EXPECT_EQ(::sigismember(&blocked, SIGPIPE), 0) << "the thread's mask is as before";
}

TEST_F(WriteAll, LeavesASignalThatWaitedBefore) {
  close_reader();
  sigset_t pipe;
  sigset_t before;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &pipe, &before), 0);
  ASSERT_EQ(::pthread_kill(::pthread_self(), SIGPIPE), 0);
  EXPECT_FALSE(write_all(writer(), "to nobody"));
  EXPECT_EQ(errno, EPIPE);
  const std::timespec at_once{};
  EXPECT_EQ(::sigtimedwait(&pipe, nullptr, &at_once), SIGPIPE);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace cistern
