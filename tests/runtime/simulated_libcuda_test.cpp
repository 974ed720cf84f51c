// Our libcuda.so.1, by its names, as programs that are not ours reach it.

#include <cistern/cistern.h>
#include <cistern/simulated_controls.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "runtime/cuda_driver.h"

namespace cistern {
namespace {

using GetProcAddress = CUresult (*)(const char* symbol, void** function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult* status);

class SimulatedLibcuda : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("CISTERN_SIMULATED", "devices=2,capacity=1GiB", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    library_ = dlopen(CISTERN_SIMULATED_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    get_proc_address_ = reinterpret_cast<GetProcAddress>(symbol("cuGetProcAddress_v2"));
  }
  [[nodiscard]] void* symbol(const char* name) const { return dlsym(library_, name); }
  void* get(const char* name, int version, CUdriverProcAddressQueryResult expected, cuuint64_t flags = 0) const {
    void* function = this->library_;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    EXPECT_EQ(get_proc_address_(name, &function, version, flags, &status), CUDA_SUCCESS) << name;
    EXPECT_EQ(status, expected) << name << " of version " << version;
    return function;
  }

  void* library_ = nullptr;
  GetProcAddress get_proc_address_ = nullptr;
};

TEST_F(SimulatedLibcuda, ExportsEveryEntryUnderItsBaseName) {
  for (const char* name : kDriverEntryNames) EXPECT_NE(symbol(name), nullptr) << name;
}

TEST_F(SimulatedLibcuda, ExportsTheNamesThatTheToolkitsHeaderGives) {
  for (const char* name : {"cuMemAlloc_v2", "cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2", "cuMemcpyAsync_ptsz",
                           "cuMemcpy_ptds", "cuStreamGetCaptureInfo_v2", "cuStreamBeginCapture_v2_ptsz"}) {
    EXPECT_NE(symbol(name), nullptr) << name;
  }
  EXPECT_EQ(symbol("cuMemAlloc_v2"), symbol("cuMemAlloc"));
  EXPECT_NE(symbol("cuMemcpyAsync_ptsz"), symbol("cuMemcpyAsync"));
}

TEST_F(SimulatedLibcuda, TheLoaderFindsEveryEntry) {
  const DriverApi api = load_cuda_driver(CISTERN_SIMULATED_LIBCUDA);
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) EXPECT_TRUE(api.member) << symbol;
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  ASSERT_EQ(api.init(0), CUDA_SUCCESS);
  int devices = 0;
  ASSERT_EQ(api.device_get_count(&devices), CUDA_SUCCESS);
  EXPECT_EQ(devices, 2);
}

TEST_F(SimulatedLibcuda, AnEarlierVersionThanTheEntrysIsToldApartFromASymbolThatIsMissing) {
  EXPECT_EQ(get("cuMemAlloc", 2000, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT), nullptr);
  EXPECT_EQ(get("cuMemAlloc_v2", 12000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND), nullptr);
  EXPECT_EQ(get("cuMemAlloc", 12000, CU_GET_PROC_ADDRESS_SUCCESS), symbol("cuMemAlloc_v2"));
}

TEST_F(SimulatedLibcuda, TheThreadsOwnCopyLeavesTheLegacyStreamAlone) {
  const DriverApi api = load_cuda_driver(CISTERN_SIMULATED_LIBCUDA);
  CUcontext context = nullptr;
  ASSERT_EQ(api.init(0), CUDA_SUCCESS);
  ASSERT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  CUstream busy = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_EQ(api.stream_create_with_priority(&busy, CU_STREAM_DEFAULT, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.mem_alloc(&memory, 64), CUDA_SUCCESS);
  const auto idle = [](void*) {};
  char byte = 0;
  using Copy = CUresult (*)(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes);
  const auto result = reinterpret_cast<CUdeviceptr>(&byte);
  ASSERT_EQ(api.controls->launch(busy, nullptr, 0, nullptr, 0, 1, idle, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<Copy>(symbol("cuMemcpy_ptds"))(result, memory, 1), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_query(busy), CUDA_ERROR_NOT_READY) << "a blocking stream does not hold up the thread's own";
  EXPECT_EQ(reinterpret_cast<Copy>(symbol("cuMemcpy"))(result, memory, 1), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_query(busy), CUDA_SUCCESS) << "the legacy stream waits for it";
}

TEST_F(SimulatedLibcuda, NeverHandsOutAFunctionOfAnotherAbi) {
  // From 12.3 on the symbol has one parameter more.
  EXPECT_NE(get("cuStreamGetCaptureInfo", 12020, CU_GET_PROC_ADDRESS_SUCCESS), nullptr);
  EXPECT_EQ(get("cuStreamGetCaptureInfo", 12030, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND), nullptr);
}

TEST_F(SimulatedLibcuda, GivesTheLatestAbiUpToTheVersionAskedFor) {
  EXPECT_EQ(get("cuCtxCreate", 3010, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT), nullptr);
  EXPECT_EQ(get("cuCtxCreate", 11030, CU_GET_PROC_ADDRESS_SUCCESS), symbol("cuCtxCreate_v2"));
  EXPECT_EQ(get("cuCtxCreate", 11040, CU_GET_PROC_ADDRESS_SUCCESS), symbol("cuCtxCreate_v3"));
  EXPECT_EQ(symbol("cuCtxCreate"), symbol("cuCtxCreate_v2"));
}

TEST_F(SimulatedLibcuda, AVersionAboveTheDriversIsRefused) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(get_proc_address_("cuInit", &function, 99000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(get_proc_address_(nullptr, &function, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get_proc_address_("cuInit", nullptr, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get_proc_address_("cuInit", &function, 12000, 4, &status), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimulatedLibcuda, ThePerThreadFlagGivesTheVariantWhoseStreamZeroIsTheThreadsOwn) {
  void* plain = get("cuStreamGetId", 12000, CU_GET_PROC_ADDRESS_SUCCESS, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  void* own = get("cuStreamGetId", 12000, CU_GET_PROC_ADDRESS_SUCCESS, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  ASSERT_NE(plain, nullptr);
  ASSERT_NE(own, nullptr);
  const DriverApi api = load_cuda_driver(CISTERN_SIMULATED_LIBCUDA);
  CUcontext context = nullptr;
  ASSERT_EQ(api.init(0), CUDA_SUCCESS);
  ASSERT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  using GetId = CUresult (*)(CUstream stream, unsigned long long* id);
  unsigned long long legacy = 0, per_thread = 0, expected = 0;
  EXPECT_EQ(reinterpret_cast<GetId>(plain)(nullptr, &legacy), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<GetId>(own)(nullptr, &per_thread), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_get_id(CU_STREAM_PER_THREAD, &expected), CUDA_SUCCESS);
  EXPECT_EQ(per_thread, expected);
  EXPECT_NE(per_thread, legacy);
}

TEST_F(SimulatedLibcuda, GivesItsControlsToAProgramThatAsks) {
  const DriverApi api = load_cuda_driver(CISTERN_SIMULATED_LIBCUDA);
  const auto controls = reinterpret_cast<decltype(&cistern_simulated_controls)>(symbol("cistern_simulated_controls"))();
  EXPECT_EQ(controls->size, sizeof(SimulatedControls));
  CUcontext context = nullptr;
  ASSERT_EQ(api.init(0), CUDA_SUCCESS);
  ASSERT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(api.mem_alloc(&memory, 64), CUDA_SUCCESS);
  const MemoryRange range{reinterpret_cast<void*>(memory), 64};
  bool ran = false;
  const auto kernel = [](void* flag) { *static_cast<bool*>(flag) = true; };
  EXPECT_EQ(controls->launch(nullptr, nullptr, 0, &range, 1, 1000, kernel, &ran), CUDA_SUCCESS);
  EXPECT_EQ(controls->run_until_idle(), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
  int more = 1;
  EXPECT_EQ(controls->step(&more), CUDA_SUCCESS);
  EXPECT_EQ(more, 0);
  EXPECT_EQ(controls->step(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(controls->launch(nullptr, nullptr, 1, nullptr, 0, 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(controls->fail_call("cuNoSuchCall", 1, CUDA_ERROR_UNKNOWN), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(controls->fail_call("cuMemFree", 1, CUDA_ERROR_UNKNOWN), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_free(memory), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(api.mem_free(memory), CUDA_SUCCESS);
}

// A function of the program's with its data, of which the library takes care.
struct Watched {
  int runs = 0;
  int releases = 0;
  bool crashes = false;
};

TEST_F(SimulatedLibcuda, WorkThatIsOwnedIsReleasedOnce) {
  const DriverApi api = load_cuda_driver(CISTERN_SIMULATED_LIBCUDA);
  const SimulatedControls* controls = api.controls;
  ASSERT_NE(controls, nullptr);
  CUcontext context = nullptr;
  ASSERT_EQ(api.init(0), CUDA_SUCCESS);
  ASSERT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  const auto run = [](void* data) {
    ++static_cast<Watched*>(data)->runs;
    return static_cast<Watched*>(data)->crashes ? 1 : 0;
  };
  const auto release = [](void* data) { ++static_cast<Watched*>(data)->releases; };
  Watched done, refused;
  EXPECT_EQ(controls->launch_owned(nullptr, nullptr, 0, nullptr, 0, 5, run, &done, release, "done"), CUDA_SUCCESS);
  EXPECT_EQ(done.releases, 0);
  EXPECT_EQ(controls->run_until_idle(), CUDA_SUCCESS);
  EXPECT_EQ(done.runs, 1);
  EXPECT_EQ(done.releases, 1);
  const MemoryRange nobodys{&done, sizeof done};
  EXPECT_EQ(controls->launch_owned(nullptr, &nobodys, 1, nullptr, 0, 5, run, &refused, release, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused.runs, 0);
  EXPECT_EQ(refused.releases, 1);
  EXPECT_NE(std::string(controls->last_error()).find("may read"), std::string::npos) << controls->last_error();
  EXPECT_EQ(controls->host_access(nullptr, 1, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(controls->host_access(&nobodys, 1, nullptr, 0), CUDA_SUCCESS);
}

using SimulatedLibcudaDeathTest = SimulatedLibcuda;

// A program of cistern's, unchanged, in a process of its own: exit status 0 if all held.
[[noreturn]] void run_program() {
  setenv("CISTERN_DEVICE", "cuda", 1);
  setenv("CISTERN_LIBCUDA", CISTERN_SIMULATED_LIBCUDA, 1);
  const auto expect = [](bool held, const char* what) {
    if (held) return;
    std::fprintf(stderr, "expected %s\n", what);
    std::_Exit(1);
  };
  expect(simulated::is_active(), "an active simulation");
  set_device(1);
  const Stream stream = Stream::create();
  auto* memory = static_cast<unsigned*>(allocate(64, stream));
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  const MemoryRange range{memory, 64};
  simulated::launch(
      stream, {}, {range}, std::chrono::microseconds(3), [memory, held] { *memory = ++*held; }, "one");
  held = nullptr;
  expect(!watch.expired(), "a function that is kept until it has run");
  stream.synchronize();
  expect(*memory == 1 && watch.expired(), "a kernel that ran once, and is gone");
  simulated::host_access({range}, {});
  stream.begin_capture();
  simulated::launch(stream, {range}, {range}, std::chrono::microseconds(3), [memory] { ++*memory; });
  Graph graph = stream.end_capture();
  graph.launch(stream);
  graph.launch(stream);
  stream.synchronize();
  expect(*memory == 3, "a kernel that a graph runs at each launch");
  try {
    simulated::launch(stream, {{&range, 8}}, {}, std::chrono::microseconds(3), {});
    expect(false, "memory that is no device's to be refused");
  } catch (const InvalidArgument& error) {
    expect(std::string(error.what()).find("may read") != std::string::npos, "the driver's own words");
  }
  try {
    simulated::launch(stream, {}, {}, std::chrono::microseconds(-3), {});
    expect(false, "a duration below 0 to be refused");
  } catch (const InvalidArgument&) {
  }
  try {
    static_cast<void>(simulated::driver());
    expect(false, "the library's own objects to be refused");
  } catch (const NotSupported&) {
  }
  deallocate(memory);
  simulated::launch(stream, {}, {}, std::chrono::microseconds(3), [] { throw 1; });
  try {
    stream.synchronize();
    expect(false, "a kernel that throws to fail its device");
  } catch (const DriverError& error) {
    expect(error.code() == CUDA_ERROR_LAUNCH_FAILED, "the error of a kernel that crashed");
  }
  std::_Exit(0);
}

TEST_F(SimulatedLibcudaDeathTest, AProgramThatLaunchesKernelsOfItsOwnRunsUnchanged) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(run_program(), ::testing::ExitedWithCode(0), ::testing::IsEmpty());
}

}  // namespace
}  // namespace cistern
