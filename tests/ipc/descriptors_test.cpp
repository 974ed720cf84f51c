// Physical memory as file descriptors, between processes that were started separately.

#include <cistern/ipc.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ipc/peer_process.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern::testing {
namespace {

using Kind = PeerProcess::Kind;
constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

class Descriptors : public ::testing::Test {
 protected:
  CUmemGenericAllocationHandle create(std::size_t bytes, CUmemAllocationHandleType types = kDescriptor) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = types;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(own.api.mem_create(&handle, bytes, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  CUdeviceptr map(CUmemGenericAllocationHandle handle, std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(own.api.mem_address_reserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(own.api.mem_map(address, bytes, 0, handle, 0), CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(own.api.mem_set_access(address, bytes, &access, 1), CUDA_SUCCESS);
    return address;
  }
  FileDescriptor export_of(CUmemGenericAllocationHandle handle) {
    int descriptor = -1;
    EXPECT_EQ(own.api.mem_export_to_shareable_handle(&descriptor, handle, kDescriptor, 0), CUDA_SUCCESS);
    return FileDescriptor(descriptor);
  }
  void fill(CUdeviceptr address, unsigned char value, std::size_t bytes) {
    EXPECT_EQ(own.api.memset_d8_async(address, value, bytes, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(own.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  }
  // The number of the memory in the peer, which imports what comes over its socket.
  static std::string import_in(PeerProcess& importer, const FileDescriptor& descriptor, std::size_t bytes) {
    send_fd(importer.socket(), descriptor.get());
    return importer.ask("import " + std::to_string(bytes));
  }

  ReadyDriver own;
  PeerProcess peer{Kind::library, "capacity=256MiB"};
};

TEST_F(Descriptors, TheImporterSeesTheSameBytes) {
  create(2 * MiB);
  const auto handle = create(4 * MiB);
  const CUdeviceptr ours = map(handle, 4 * MiB);
  fill(ours, 6, 4 * MiB);
  ASSERT_EQ(import_in(peer, export_of(handle), 4 * MiB), "1");
  EXPECT_EQ(peer.ask("byte 1"), "6");
  EXPECT_EQ(peer.ask("fill 1 8"), "ok");
  unsigned char byte = 0;
  EXPECT_EQ(own.api.memcpy(reinterpret_cast<CUdeviceptr>(&byte), ours + 4 * MiB - 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 8);
}

TEST_F(Descriptors, ReleasedMemoryLivesAndCountsUntilTheImporterIsKilled) {
  const auto handle = create(4 * MiB);
  const CUdeviceptr ours = map(handle, 4 * MiB);
  fill(ours, 5, 4 * MiB);
  ASSERT_EQ(import_in(peer, export_of(handle), 4 * MiB), "1");
  ASSERT_EQ(own.api.mem_unmap(ours, 4 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(own.api.mem_release(handle), CUDA_SUCCESS);
  const CUdeviceptr other = map(create(4 * MiB), 4 * MiB);
  fill(other, 9, 4 * MiB);
  EXPECT_EQ(peer.ask("byte 1"), "5") << "nobody else got the memory";
  EXPECT_EQ(own.driver.used_bytes(), 8 * MiB);
  peer.kill();
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(own.api.mem_get_info(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total - free, 4 * MiB);
}

TEST_F(Descriptors, AnAllocationFindsRoomInWhatADeadImporterHeld) {
  for (const bool in_stream : {false, true}) {
    PeerProcess importer(Kind::library, "capacity=256MiB");
    const auto handle = create(256 * MiB);
    ASSERT_EQ(import_in(importer, export_of(handle), 256 * MiB), "1");
    ASSERT_EQ(own.api.mem_release(handle), CUDA_SUCCESS);
    CUdeviceptr pointer = 0;
    const auto allocate = [&] {
      return in_stream ? own.api.mem_alloc_async(&pointer, 256 * MiB, nullptr) : own.api.mem_alloc(&pointer, 256 * MiB);
    };
    EXPECT_EQ(allocate(), CUDA_ERROR_OUT_OF_MEMORY) << "the importer lives";
    importer.kill();
    EXPECT_EQ(allocate(), CUDA_SUCCESS);
    EXPECT_EQ(own.api.mem_free(pointer), CUDA_SUCCESS);
  }
}

TEST_F(Descriptors, ADescriptorAloneKeepsTheMemory) {
  const auto handle = create(2 * MiB);
  FileDescriptor descriptor = export_of(handle);
  ASSERT_EQ(own.api.mem_release(handle), CUDA_SUCCESS);
  EXPECT_EQ(own.driver.used_bytes(), 2 * MiB);
  EXPECT_EQ(import_in(peer, descriptor, 2 * MiB), "1");
  EXPECT_EQ(import_in(peer, descriptor, 2 * MiB), "2") << "it can be imported again";
  descriptor.reset();
  EXPECT_EQ(peer.ask("release 1"), "ok");
  EXPECT_EQ(peer.ask("fill 2 1"), "ok");
  EXPECT_EQ(peer.ask("release 2"), "ok");
  create(2 * MiB);
  EXPECT_EQ(own.driver.used_bytes(), 2 * MiB) << "it was given back";
}

TEST_F(Descriptors, AnExporterThatEndsLeavesTheMemoryToTheImporter) {
  FileDescriptor descriptor;
  {
    ReadyDriver exporter;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = kDescriptor;
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(exporter.api.mem_create(&handle, 2 * MiB, &properties, 0), CUDA_SUCCESS);
    int number = -1;
    ASSERT_EQ(exporter.api.mem_export_to_shareable_handle(&number, handle, kDescriptor, 0), CUDA_SUCCESS);
    descriptor = FileDescriptor(number);
  }
  ASSERT_EQ(import_in(peer, descriptor, 2 * MiB), "1");
  EXPECT_EQ(peer.ask("fill 1 3"), "ok");
  EXPECT_EQ(peer.ask("byte 1"), "3");
}

TEST_F(Descriptors, WhatCannotBeSharedIsRefused) {
  int descriptor = -1;
  const auto unshared = create(2 * MiB, CU_MEM_HANDLE_TYPE_NONE);
  EXPECT_EQ(own.api.mem_export_to_shareable_handle(&descriptor, unshared, kDescriptor, 0), CUDA_ERROR_INVALID_VALUE);
  const auto handle = create(2 * MiB);
  EXPECT_EQ(own.api.mem_export_to_shareable_handle(&descriptor, handle, kDescriptor, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.api.mem_export_to_shareable_handle(nullptr, handle, kDescriptor, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.api.mem_export_to_shareable_handle(&descriptor, 12345, kDescriptor, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own.api.mem_export_to_shareable_handle(&descriptor, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(descriptor, -1);
  const FileDescriptor other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CUmemGenericAllocationHandle imported = 0;
  EXPECT_EQ(own.api.mem_import_from_shareable_handle(&imported, reinterpret_cast<void*>(std::intptr_t{other.get()}),
                                                     kDescriptor),
            CUDA_ERROR_INVALID_VALUE);
  send_fd(peer.socket(), other.get());
  EXPECT_EQ(peer.ask("import 2097152").rfind("error: import_fd of descriptor", 0), 0u);
}

// --- What is no descriptor of memory ----------------------------------------------------

// A socket with one message waiting in it, as a descriptor of memory is.
FileDescriptor socket_with(const std::vector<std::uint64_t>& words, const std::vector<int>& descriptors) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const FileDescriptor sender(ends[0]);
  iovec part{const_cast<std::uint64_t*>(words.data()), words.size() * sizeof(std::uint64_t)};
  const std::size_t bytes = descriptors.size() * sizeof(int);
  std::vector<char> control(CMSG_SPACE(bytes));
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(rights), descriptors.data(), bytes);
  EXPECT_EQ(::sendmsg(sender.get(), &header, 0), static_cast<ssize_t>(part.iov_len));
  return FileDescriptor(ends[1]);
}

struct OpenDescriptors {
  int all = 0;
  int inheritable = 0;  // by programs that this one starts
};
OpenDescriptors open_descriptors() {
  OpenDescriptors open;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    const int flags = ::fcntl(descriptor, F_GETFD);
    if (flags < 0) continue;
    ++open.all;
    open.inheritable += (flags & FD_CLOEXEC) == 0 ? 1 : 0;
  }
  return open;
}

class ForeignDescriptors : public Descriptors {
 protected:
  CUresult import(const FileDescriptor& descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    return own.api.mem_import_from_shareable_handle(&handle, reinterpret_cast<void*>(std::intptr_t{descriptor.get()}),
                                                    kDescriptor);
  }
  // What begins every message about memory.
  std::uint64_t mark() {
    const FileDescriptor real = export_of(create(2 * MiB));
    std::uint64_t first = 0;
    EXPECT_EQ(::recv(real.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT), static_cast<ssize_t>(sizeof first));
    return first;
  }

  const FileDescriptor null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
};

TEST_F(ForeignDescriptors, OfOtherSocketsAreRefusedAndNothingOfThemIsKept) {
  const std::uint64_t ours = mark();
  const std::vector<int> two = {null.get(), null.get()};
  EXPECT_EQ(import(socket_with({ours, 0, 2 * MiB, 0}, two)), CUDA_SUCCESS) << "this is what one looks like";
  const int before = open_descriptors().all;
  EXPECT_EQ(import(socket_with({0, 0, 2 * MiB, 0}, two)), CUDA_ERROR_INVALID_VALUE) << "of another program";
  EXPECT_EQ(import(socket_with({ours, 0}, two)), CUDA_ERROR_INVALID_VALUE) << "too short";
  EXPECT_EQ(import(socket_with({ours, 0, 2 * MiB, 0}, {null.get()})), CUDA_ERROR_INVALID_VALUE) << "without a lease";
  EXPECT_EQ(open_descriptors().all, before);
}

TEST_F(ForeignDescriptors, AnEmptySocketIsRefusedAtOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const FileDescriptor other(ends[0]);
  EXPECT_EQ(import(FileDescriptor(ends[1])), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ForeignDescriptors, ProgramsThatAreStartedInheritNothingOfAnImport) {
  const FileDescriptor descriptor = export_of(create(2 * MiB));
  const int before = open_descriptors().inheritable;
  EXPECT_EQ(import(descriptor), CUDA_SUCCESS);
  EXPECT_EQ(open_descriptors().inheritable, before);
}

}  // namespace
}  // namespace cistern::testing
