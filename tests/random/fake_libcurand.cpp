// A library with the face of cuRAND, by the Toolkit's own declarations: a generator writes where it
// stands, not random numbers, and each call is written down.
// Making a generator allocates device memory, as cuRAND does, of the driver that CISTERN_LIBCUDA names.
//
// CISTERN_FAKE_CURAND_FAILS   the name of a function, which fails with CURAND_STATUS_LAUNCH_FAILURE

#include <cuda.h>
#include <curand.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>

struct curandGenerator_st {
  unsigned long long seed;
  unsigned long long offset;
  cudaStream_t stream;
  curandRngType_t type;
  curandOrdering_t order;
};

namespace {

std::mutex mutex;
std::string& calls() {
  static std::string calls;
  return calls;
}

curandStatus_t note(const std::string& call) {
  const std::lock_guard lock(mutex);
  calls() += call + "\n";
  const char* fails = std::getenv("CISTERN_FAKE_CURAND_FAILS");
  return fails != nullptr && call.substr(0, call.find(' ')) == fails ? CURAND_STATUS_LAUNCH_FAILURE
                                                                     : CURAND_STATUS_SUCCESS;
}

template <class Value>
curandStatus_t fill(const char* call, curandGenerator_t generator, Value* values, size_t count) {
  const curandStatus_t status =
      note(call + (" " + std::to_string(generator->seed)) + " " + std::to_string(generator->offset) + " " +
           std::to_string(count) + " " + std::to_string(reinterpret_cast<unsigned long long>(generator->stream)));
  if (status != CURAND_STATUS_SUCCESS) return status;
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<Value>(generator->offset++);
  return status;
}

CUresult allocate(CUdeviceptr* memory) {
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* driver = dlopen(std::getenv("CISTERN_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(driver, "cuGetProcAddress_v2"));
  void* function = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  if (const CUresult failed = get("cuMemAlloc", &function, 3020, 0, &found); failed != CUDA_SUCCESS) return failed;
  return reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(function)(memory, 256);
}

}  // namespace

extern "C" {

curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t type) {
  const curandStatus_t status = note("curandCreateGenerator " + std::to_string(type));
  if (status != CURAND_STATUS_SUCCESS) return status;
  CUdeviceptr memory = 0;
  if (allocate(&memory) != CUDA_SUCCESS) return CURAND_STATUS_ALLOCATION_FAILED;
  *generator = new curandGenerator_st{0, 0, nullptr, type, {}};
  return status;
}

curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
  delete generator;
  return note("curandDestroyGenerator");
}

curandStatus_t curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t order) {
  generator->order = order;
  return note("curandSetGeneratorOrdering " + std::to_string(order));
}

curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream) {
  generator->stream = stream;
  return note("curandSetStream");
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
  generator->seed = seed;
  return note("curandSetPseudoRandomGeneratorSeed");
}

curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
  generator->offset = offset;
  return note("curandSetGeneratorOffset");
}

curandStatus_t curandGenerate(curandGenerator_t generator, unsigned* values, size_t count) {
  return fill("curandGenerate", generator, values, count);
}

curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* values, size_t count) {
  return fill("curandGenerateUniform", generator, values, count);
}

curandStatus_t curandGenerateNormal(curandGenerator_t generator, float* values, size_t count, float mean,
                                    float deviation) {
  const curandStatus_t status = fill("curandGenerateNormal", generator, values, count);
  for (size_t i = 0; i < count && status == CURAND_STATUS_SUCCESS; ++i) values[i] = mean + deviation * values[i];
  return status;
}

// What was called since the last question: a line each.
const char* cistern_fake_curand_calls() {
  static std::string said;
  const std::lock_guard lock(mutex);
  said.swap(calls());
  calls().clear();
  return said.c_str();
}

}  // extern "C"
