// A library with the face of NCCL, by the Toolkit's own declarations. A group's work is done when it ends, by the
// driver that CISTERN_LIBCUDA names, in order on each rank's stream: nothing of it is queued before.
//
// CISTERN_FAKE_NCCL_FAILS   the name of a function, which fails with ncclInternalError

#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

struct ncclComm {
  int rank;
  int device;
  int count;
};

namespace {

std::string& calls() {
  static std::string calls;
  return calls;
}

ncclResult_t note(const std::string& call) {
  calls() += call + "\n";
  const char* fails = std::getenv("CISTERN_FAKE_NCCL_FAILS");
  return fails != nullptr && call.substr(0, call.find(' ')) == fails ? ncclInternalError : ncclSuccess;
}

struct Queued {
  const void* source;
  void* destination;
  size_t count;
  ncclDataType_t type;
  int root;
  ncclComm_t comm;
  cudaStream_t stream;
};
std::vector<Queued>& group() {
  static std::vector<Queued> group;
  return group;
}

template <class Function>
Function driver(const char* symbol, int version) {
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  static const auto get = reinterpret_cast<GetProcAddress>(
      dlsym(dlopen(std::getenv("CISTERN_LIBCUDA"), RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2"));
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  get(symbol, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
  return reinterpret_cast<Function>(function);
}

// On a rank's device.
template <class Call>
void on_device_of(const Queued& rank, const Call& call) {
  CUcontext context = nullptr;
  CUcontext before = nullptr;
  driver<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain", 7000)(&context, rank.comm->device);
  driver<CUresult (*)(CUcontext*)>("cuCtxGetCurrent", 4000)(&before);
  driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent", 4000)(context);
  call();
  driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent", 4000)(before);
  driver<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxRelease", 11000)(rank.comm->device);
}

void wait_for(const Queued& rank) {
  on_device_of(rank, [&] {
    driver<CUresult (*)(CUstream)>("cuStreamSynchronize", 2000)(reinterpret_cast<CUstream>(rank.stream));
  });
}

void copy(const void* from, void* to, size_t bytes, const Queued& rank) {
  if (from == to) return;
  on_device_of(rank, [&] {
    driver<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>("cuMemcpy", 4000)(
        reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes);
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  std::string text = "ncclCommInitAll";
  for (int i = 0; i < count; ++i) text += " " + std::to_string(devices[i]);
  const ncclResult_t status = note(text);
  if (status == ncclSuccess)
    for (int i = 0; i < count; ++i) comms[i] = new ncclComm{i, devices[i], count};
  return status;
}

ncclResult_t ncclGroupStart() { return note("ncclGroupStart"); }

ncclResult_t ncclBroadcast(const void* source, void* destination, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  group().push_back({source, destination, count, type, root, comm, stream});
  return note("ncclBroadcast " + std::to_string(count) + " " + std::to_string(type) + " " +
              std::to_string(comm->device));
}

ncclResult_t ncclReduce(const void* source, void* destination, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  group().push_back({source, destination, count, type, root, comm, stream});
  return note("ncclReduce " + std::to_string(count) + " " + std::to_string(type) + " " + std::to_string(operation) +
              " " + std::to_string(root) + " " + std::to_string(comm->device));
}

ncclResult_t ncclGroupEnd() {
  const ncclResult_t status = note("ncclGroupEnd");
  std::vector<Queued> all;
  all.swap(group());
  if (status != ncclSuccess || all.empty() || all.size() != static_cast<size_t>(all.front().comm->count)) return status;
  for (const Queued& each : all) wait_for(each);
  const Queued& root = all[static_cast<size_t>(all.front().root)];
  if (all.front().type == ncclUint8) {             // broadcasts are of bytes
    std::vector<unsigned char> bytes(root.count);  // by the host: no device need reach another's memory
    copy(root.source, bytes.data(), bytes.size(), root);
    for (const Queued& each : all) copy(bytes.data(), each.destination, bytes.size(), each);
    return status;
  }
  std::vector<float> sum(root.count, 0.0F);
  for (const Queued& each : all) {
    std::vector<float> values(root.count);
    copy(each.source, values.data(), 4 * root.count, each);
    for (size_t i = 0; i < root.count; ++i) sum[i] += values[i];
  }
  copy(sum.data(), root.destination, 4 * root.count, root);
  return status;
}

const char* ncclGetErrorString(ncclResult_t) { return "the network is made up"; }

// What was called since the last question, a line each.
const char* cistern_fake_nccl_calls() {
  static std::string told;
  told.swap(calls());
  calls().clear();
  return told.c_str();
}

}  // extern "C"
