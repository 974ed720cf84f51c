#include "tests/ipc/peer_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace cistern::testing {
namespace {

// The peer's end of the socket, beside its standard streams.
constexpr int kPeerSocket = 3;

std::vector<std::string> environment_with(const std::string& variable) {
  const std::string name = variable.substr(0, variable.find('=') + 1);
  std::vector<std::string> environment{variable};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind(name, 0) != 0 && text.rfind("CUDA_VISIBLE_DEVICES=", 0) != 0) environment.push_back(text);
  }
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

PeerProcess::PeerProcess(Kind kind, const std::string& settings) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  std::array<int, 2> sockets{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0 ||
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    ADD_FAILURE() << "no pipes for a peer";
    return;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Above the numbers that the peer gets, so that no step overwrites what a later one needs.
  const int socket = ::fcntl(sockets[1], F_DUPFD_CLOEXEC, 10);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, kPeerSocket);
  const char* program = kind == Kind::driver ? CISTERN_DRIVER_PEER : CISTERN_LIBRARY_PEER;
  std::vector<std::string> arguments{program, settings};
  std::vector<std::string> environment = environment_with("CISTERN_DEVICE=simulated:" + settings);
  const int failed =
      ::posix_spawn(&id_, program, &actions, nullptr, pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failed, 0) << program;
  ::close(socket);
  ::close(sockets[1]);
  ::close(in[0]);
  ::close(out[1]);
  socket_ = sockets[0];
  commands_ = ::fdopen(in[1], "w");
  answers_ = ::fdopen(out[0], "r");
  EXPECT_EQ(answer(), "ready");
}

PeerProcess::~PeerProcess() {
  kill();
  std::fclose(commands_);
  std::fclose(answers_);
  ::close(socket_);
}

void PeerProcess::kill() {
  if (id_ < 0) return;
  ::kill(id_, SIGKILL);
  ::waitpid(id_, nullptr, 0);
  id_ = -1;
}

void PeerProcess::tell(const std::string& command) {
  std::fprintf(commands_, "%s\n", command.c_str());
  std::fflush(commands_);
}

std::string PeerProcess::answer() {
  std::string line;
  for (int c = std::fgetc(answers_); c != EOF && c != '\n'; c = std::fgetc(answers_)) line += static_cast<char>(c);
  return line;
}

std::string PeerProcess::ask(const std::string& command) {
  tell(command);
  return answer();
}

std::uint64_t PeerProcess::ask_number(const std::string& command) {
  const std::string text = ask(command);
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 0);
  EXPECT_TRUE(!text.empty() && *end == '\0') << command << ": " << text;
  return value;
}

std::string to_hex(const void* bytes, std::size_t size) {
  const auto* in = static_cast<const std::uint8_t*>(bytes);
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[in[i] / 16];
    text += digits[in[i] % 16];
  }
  return text;
}

std::vector<std::uint8_t> from_hex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace cistern::testing
