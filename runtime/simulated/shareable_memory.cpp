#include "runtime/simulated/shareable_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

namespace cistern::simulated {
namespace {

constexpr std::uint64_t kMemoryMark = 0x314d454d'54534943;  // "CISTMEM1"

struct Description {
  std::uint64_t mark = kMemoryMark;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t device = 0;
};
// The file, then the lease.
using Descriptors = std::array<int, 2>;

// One message: a description, and room for the two descriptors.
struct Message {
  Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  Description description;
  iovec part{&description, sizeof description};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Descriptors))> control{};
  msghdr header{};
};

// Those that came with a message of somebody else's are this process's too by now.
void close_all(const cmsghdr& control) noexcept {
  for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= control.cmsg_len; at += sizeof(int)) {
    int descriptor = -1;
    std::memcpy(&descriptor, reinterpret_cast<const char*>(&control) + at, sizeof descriptor);
    ::close(descriptor);
  }
}

}  // namespace

std::optional<LeasePipe> make_lease() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  return LeasePipe{OwnedFile(ends[0]), OwnedFile(ends[1])};
}

bool is_leased(const OwnedFile& watch) noexcept {
  pollfd end{watch.get(), 0, 0};
  return ::poll(&end, 1, 0) == 0;
}

int make_descriptor(FilePlace place, std::size_t bytes, int device, const OwnedFile& lease) noexcept {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return -1;
  const OwnedFile sender(ends[0]);
  Message message;
  message.description.offset = place.offset;
  message.description.bytes = bytes;
  message.description.device = static_cast<std::uint64_t>(device);
  const Descriptors held{place.file, lease.get()};
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof held);
  std::memcpy(CMSG_DATA(control), held.data(), sizeof held);
  if (::sendmsg(sender.get(), &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof message.description)
    return ends[1];
  ::close(ends[1]);
  return -1;
}

std::optional<SharedMemory> open_descriptor(int descriptor) noexcept {
  Message message;
  message.description.mark = 0;
  const ssize_t size = ::recvmsg(descriptor, &message.header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* control = size < 0 ? nullptr : CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) return std::nullopt;
  if (control->cmsg_len != CMSG_LEN(sizeof(Descriptors))) {
    close_all(*control);
    return std::nullopt;
  }
  Descriptors held{};
  std::memcpy(held.data(), CMSG_DATA(control), sizeof held);
  SharedMemory memory{OwnedFile(held[0]), OwnedFile(held[1]), message.description.offset, message.description.bytes,
                      message.description.device};
  if (size != sizeof message.description || message.description.mark != kMemoryMark) return std::nullopt;
  return memory;
}

}  // namespace cistern::simulated
