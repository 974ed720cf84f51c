#include "runtime/nccl.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/device_scope.h"
#include "runtime/shared_library.h"

namespace cistern {
namespace {

// NCCL's declarations as far as they are used here ("NCCL API").
using Communicator = struct CommunicatorTag*;
constexpr int kNcclSuccess = 0;
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

void check_nccl(int status, const char* call) {
  if (status == kNcclSuccess) return;
  throw LibraryError(status, call, fmt::format("{}: {} (status {})", call, nccl().error_string(status), status));
}

// Communicators of the same devices would wait for each other if two threads queued on them in two orders: one group at
// a time.
std::mutex& group_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// One communicator a device, for one list of devices; made once a list, and never destroyed. Under the mutex.
std::vector<Communicator>& communicators_of(const std::vector<int>& devices) {
  static auto& all = *new std::map<std::vector<int>, std::vector<Communicator>>;
  return all[devices];
}

// By device, so that the same ones have the same communicators.
std::vector<NcclRank> sorted(std::vector<NcclRank> ranks) {
  std::sort(ranks.begin(), ranks.end(), [](const NcclRank& a, const NcclRank& b) { return a.device < b.device; });
  return ranks;
}

// The rank of a device.
int rank_of(const std::vector<NcclRank>& ranks, int device) {
  const auto is_it = [&](const NcclRank& rank) { return rank.device == device; };
  return static_cast<int>(std::find_if(ranks.begin(), ranks.end(), is_it) - ranks.begin());
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
  const std::lock_guard lock(group_mutex());
  std::vector<Communicator>& communicators = communicators_of(devices);
  if (communicators.empty()) {
    std::vector<Communicator> made(devices.size());
    check_nccl(library.init_all(made.data(), static_cast<int>(devices.size()), devices.data()), "ncclCommInitAll");
    communicators = std::move(made);
  }
  check_nccl(library.group_start(), "ncclGroupStart");
  try {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const DeviceScope scope(nullptr, ranks[i].device);
      queue(library, ranks[i], communicators[i]);
    }
  } catch (...) {
    static_cast<void>(library.group_end());
    throw;
  }
  check_nccl(library.group_end(), "ncclGroupEnd");
}

}  // namespace

void nccl_broadcast(const DriverApi& api, const std::vector<NcclRank>& ranks, std::size_t bytes) {
  const std::vector<NcclRank> all = sorted(ranks);
  const int root = rank_of(all, ranks.front().device);
  for_each_rank(api, all, [&](const Nccl& library, const NcclRank& rank, Communicator communicator) {
    check_nccl(library.broadcast(rank.source, rank.destination, bytes, kBytes, root, communicator,
                                 rank.stream.native_handle()),
               "ncclBroadcast");
  });
}

void nccl_reduce(const DriverApi& api, const std::vector<NcclRank>& ranks, std::size_t count, DType type,
                 std::size_t root) {
  const std::optional<int> its = type_of(type);
  if (!its) throw NotSupported(fmt::format("NCCL has no sum of {}: expected another type", to_string(type)));
  const std::size_t numbers = type == DType::complex64 || type == DType::complex128 ? 2 * count : count;
  const std::vector<NcclRank> all = sorted(ranks);
  const int its_rank = rank_of(all, ranks[root].device);
  for_each_rank(api, all, [&](const Nccl& library, const NcclRank& rank, Communicator communicator) {
    check_nccl(library.reduce(rank.source, rank.destination, numbers, *its, kSum, its_rank, communicator,
                              rank.stream.native_handle()),
               "ncclReduce");
  });
}

}  // namespace cistern
