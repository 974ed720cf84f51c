#include "runtime/nccl.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/device_scope.h"
#include "runtime/shared_library.h"

namespace cistern {
namespace {

// NCCL's declarations as far as they are used here ("NCCL API").
using Communicator = struct CommunicatorTag*;
constexpr int kSuccess = 0;
constexpr int kBytes = 1;  // ncclUint8
constexpr int kSum = 0;

struct Nccl {
  SharedLibrary library{"NCCL", "CISTERN_LIBNCCL", {"libnccl.so.2"}};
  int (*init_all)(Communicator* communicators, int count, const int* devices) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*broadcast)(const void* source, void* destination, std::size_t count, int type, int root, Communicator,
                   CUstream) = nullptr;
  int (*reduce)(const void* source, void* destination, std::size_t count, int type, int operation, int root,
                Communicator, CUstream) = nullptr;
  const char* (*error_string)(int status) = nullptr;

  Nccl() {
    library.find(init_all, "ncclCommInitAll");
    library.find(group_start, "ncclGroupStart");
    library.find(group_end, "ncclGroupEnd");
    library.find(broadcast, "ncclBroadcast");
    library.find(reduce, "ncclReduce");
    library.find(error_string, "ncclGetErrorString");
  }
};

// A load that failed is tried again by the next call.
const Nccl& nccl() {
  static const Nccl& nccl = *new Nccl;
  return nccl;
}

void check(int status, const char* call) {
  if (status == kSuccess) return;
  throw LibraryError(status, call, fmt::format("{}: {} (status {})", call, nccl().error_string(status), status));
}

// One communicator a device, for one list of devices.
struct Clique {
  std::mutex mutex;
  std::vector<Communicator> communicators;
};

// Made once a list, and never destroyed.
Clique& clique_of(const std::vector<int>& devices) {
  static std::mutex& mutex = *new std::mutex;
  static auto& cliques = *new std::map<std::vector<int>, std::unique_ptr<Clique>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Clique>& clique = cliques[devices];
  if (clique == nullptr) clique = std::make_unique<Clique>();
  return *clique;
}

std::optional<int> type_of(DType type) {
  switch (type) {
    case DType::int8:
      return 0;
    case DType::uint8:
      return 1;
    case DType::int32:
      return 2;
    case DType::uint32:
      return 3;
    case DType::int64:
      return 4;
    case DType::uint64:
      return 5;
    case DType::float16:
      return 6;
    case DType::float32:
    case DType::complex64:
      return 7;
    case DType::float64:
    case DType::complex128:
      return 8;
    case DType::bfloat16:
      return 9;
    default:
      return std::nullopt;
  }
}

// Calls `queue` for each rank, in one group.
template <class Queue>
void for_each_rank(const DriverApi& api, const std::vector<NcclRank>& ranks, const Queue& queue) {
  if (!api.has_cuda_libraries)
    throw NotSupported("NCCL launches kernels of its own, which a simulated device does not run: expected CUDA ones");
  const Nccl& library = nccl();
  std::vector<int> devices;
  for (const NcclRank& rank : ranks) devices.push_back(rank.device);
  Clique& clique = clique_of(devices);
  const std::lock_guard lock(clique.mutex);
  if (clique.communicators.empty()) {
    std::vector<Communicator> made(devices.size());
    check(library.init_all(made.data(), static_cast<int>(devices.size()), devices.data()), "ncclCommInitAll");
    clique.communicators = std::move(made);
  }
  check(library.group_start(), "ncclGroupStart");
  try {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const DeviceScope scope(nullptr, ranks[i].device);
      queue(library, ranks[i], clique.communicators[i]);
    }
  } catch (...) {
    static_cast<void>(library.group_end());
    throw;
  }
  check(library.group_end(), "ncclGroupEnd");
}

}  // namespace

void nccl_broadcast(const DriverApi& api, const std::vector<NcclRank>& ranks, std::size_t bytes) {
  for_each_rank(api, ranks, [&](const Nccl& library, const NcclRank& rank, Communicator communicator) {
    check(library.broadcast(rank.source, rank.destination, bytes, kBytes, 0, communicator, rank.stream.native_handle()),
          "ncclBroadcast");
  });
}

void nccl_reduce(const DriverApi& api, const std::vector<NcclRank>& ranks, std::size_t count, DType type,
                 std::size_t root) {
  const std::optional<int> its = type_of(type);
  if (!its) throw NotSupported(fmt::format("NCCL has no sum of {}: expected another type", to_string(type)));
  const std::size_t numbers = type == DType::complex64 || type == DType::complex128 ? 2 * count : count;
  for_each_rank(api, ranks, [&](const Nccl& library, const NcclRank& rank, Communicator communicator) {
    check(library.reduce(rank.source, rank.destination, numbers, *its, kSum, static_cast<int>(root), communicator,
                         rank.stream.native_handle()),
          "ncclReduce");
  });
}

}  // namespace cistern
