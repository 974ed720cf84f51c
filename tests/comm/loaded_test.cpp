// On drivers that are loaded: kernels of cistern's own, NCCL, and our libcuda.so.1, which needs neither.

#include <cistern/error.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <sstream>
#include <string>

#include "runtime/process_driver.h"
#include "tests/comm/comm_case.h"

namespace cistern::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> lines_of(const char* library, const char* function) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  std::istringstream text(reinterpret_cast<const char* (*)()>(dlsym(handle, function))());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  dlclose(handle);
  return lines;
}

// A process of its own each. The library runs the kernels that it is asked for by what they are called and given.
class CommKernels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "cuda", 1);
    setenv("CISTERN_LIBCUDA", CISTERN_FAKE_LIBCUDA, 1);
    setenv("CISTERN_LIBNCCL", "/nowhere/libnccl.so.2", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CISTERN_FAKE_CUDA_LACKS");
  }
  static std::vector<std::string> launches() { return lines_of(CISTERN_FAKE_LIBCUDA, "cistern_fake_cuda_launches"); }
};

TEST_F(CommKernels, PackAndAddOnDevicesThatRunKernels) {
  const Given first(counted(2000), {2, 1000}, {1, 2}, 0);
  const Given second(counted(2000, 5), {2, 1000}, {1, 2}, 1);
  const std::vector<float> sum = values_of<float>(reduce_add({first, second}, 1));
  EXPECT_EQ(sum[0], 6);
  EXPECT_EQ(sum[1999], 4004);
  EXPECT_EQ(values_of<float>(broadcast(first, {1}).front()), counted(2000));
  EXPECT_THAT(launches(), ElementsAre("cistern_add_f32 8 256", "cistern_copy_u32 8 256"));
}

TEST_F(CommKernels, AreOneForEachTypeOfSum) {
  for (int t = 0; t <= static_cast<int>(DType::complex128); ++t) {
    const Tensor tensor = Tensor::empty({3}, static_cast<DType>(t), 0);
    fill_async(tensor.data(), 0, tensor.view().bytes());
    static_cast<void>(reduce_add({tensor, tensor}, 0));
  }
  std::vector<std::string> names;
  for (const std::string& line : launches()) names.push_back(line.substr(0, line.find(' ')));
  EXPECT_THAT(names, ElementsAre("cistern_add_boolean", "cistern_add_u8", "cistern_add_u8", "cistern_add_u16",
                                 "cistern_add_u16", "cistern_add_u32", "cistern_add_u32", "cistern_add_u64",
                                 "cistern_add_u64", "cistern_add_f16", "cistern_add_bf16", "cistern_add_f32",
                                 "cistern_add_f64", "cistern_add_f32", "cistern_add_f64"));
}

TEST_F(CommKernels, AreLaunchedInGridsOfAFixedSize) {
  const Tensor large = Tensor::empty({3, 1 << 20}, DType::uint8, 0);
  fill_async(large.data(), 1, large.view().bytes());
  EXPECT_EQ(values_of<std::uint8_t>(reduce_add({large, large}, 0)), std::vector<std::uint8_t>(3 << 20, 2));
  EXPECT_THAT(launches(), ElementsAre("cistern_add_u8 4096 256"));
}

TEST_F(CommKernels, ThatCannotBeLoadedAreTypedErrors) {
  const Given given(counted(4), {2, 2}, {1, 2}, 0);
  setenv("CISTERN_FAKE_CUDA_KERNEL_FAILS", "cuLibraryLoadData", 1);
  for (const char* call : {"cuLibraryLoadData", "cuLibraryGetKernel", "cuLaunchKernel"}) {
    setenv("CISTERN_FAKE_CUDA_KERNEL_FAILS", call, 1);
    try {
      static_cast<void>(broadcast(given, {0}));
      ADD_FAILURE() << call;
    } catch (const DriverError& error) {
      EXPECT_EQ(error.call(), call);
      EXPECT_EQ(error.code(), CUDA_ERROR_INVALID_IMAGE);
    }
  }
  unsetenv("CISTERN_FAKE_CUDA_KERNEL_FAILS");
  EXPECT_EQ(values_of<float>(broadcast(given, {0}).front()), counted(4));
}

TEST_F(CommKernels, OfDriversWithoutThemAreNotSupported) {
  setenv("CISTERN_FAKE_CUDA_LACKS", "cuLibraryLoadData", 1);
  const Given given(counted(4), {2, 2}, {1, 2}, 0);
  EXPECT_THAT(error_of<NotSupported>([&] { static_cast<void>(broadcast(given, {0})); }),
              HasSubstr("cuLibraryLoadData"));
  const Given plain(counted(4), {4}, 0);
  EXPECT_EQ(values_of<float>(broadcast(plain, {1}).front()), counted(4));
}

class CommNccl : public CommKernels {
 protected:
  void SetUp() override {
    setenv("CISTERN_LIBNCCL", CISTERN_FAKE_LIBNCCL, 1);
    unsetenv("CISTERN_FAKE_NCCL_FAILS");
    static_cast<void>(calls());
  }
  static std::vector<std::string> calls() { return lines_of(CISTERN_FAKE_LIBNCCL, "cistern_fake_nccl_calls"); }
  template <class Function>
  static std::string refused(Function&& function) {
    return error_of<NotSupported>(function);
  }
};

TEST_F(CommNccl, BroadcastsInOneGroup) {
  const Given given(counted(6), {2, 3}, {1, 2}, 0);
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> copies = broadcast(given, {1, 0}, Transport::nccl);
    for (const Tensor& copy : copies) EXPECT_EQ(values_of<float>(copy), counted(6));
  }
  EXPECT_EQ(values_of<float>(broadcast(given, {1}, Transport::nccl).front()), counted(6));
  std::vector<std::string> all = calls();
  EXPECT_THAT(std::vector<std::string>(all.begin(), all.begin() + 5),
              ElementsAre("ncclCommInitAll 0 1", "ncclGroupStart", "ncclBroadcast 24 1 0", "ncclBroadcast 24 1 1",
                          "ncclGroupEnd"));
  EXPECT_EQ(std::count(all.begin(), all.end(), "ncclCommInitAll 0 1"), 1);
}

TEST_F(CommNccl, BroadcastsCoalescedBuffers) {
  const Given first(counted(10), {10}, 0);
  const Given second(counted(10, 100), {10}, 0);
  const auto copies = broadcast_coalesced({first, second}, {0, 1}, 60, Transport::nccl);
  for (const auto& on_device : copies) {
    EXPECT_EQ(values_of<float>(on_device[0]), counted(10));
    EXPECT_EQ(values_of<float>(on_device[1]), counted(10, 100));
  }
  const std::vector<std::string> all = calls();
  EXPECT_EQ(std::count(all.begin(), all.end(), "ncclGroupStart"), 2);
}

TEST_F(CommNccl, SumsInOneGroup) {
  const Given first(counted(6), {6}, 0);
  const Given second(counted(6, 10), {6}, 1);
  const Tensor sum = reduce_add({first, second}, 1, Transport::nccl);
  EXPECT_EQ(sum.view().place, Place(1));
  EXPECT_EQ(values_of<float>(sum), (std::vector<float>{11, 13, 15, 17, 19, 21}));
  EXPECT_THAT(calls(), ElementsAre("ncclCommInitAll 0 1", "ncclGroupStart", "ncclReduce 6 7 0 1 0",
                                   "ncclReduce 6 7 0 1 1", "ncclGroupEnd"));
}

TEST_F(CommNccl, TheSameDevicesHaveTheSameCommunicators) {
  const Given first(counted(6), {6}, 0);
  const Given second(counted(6, 10), {6}, 1);
  EXPECT_EQ(values_of<float>(broadcast(first, {1}, Transport::nccl).front()), counted(6));
  EXPECT_EQ(values_of<float>(broadcast(second, {0}, Transport::nccl).front()), counted(6, 10));
  for (const int device : {0, 1})
    EXPECT_EQ(values_of<float>(reduce_add({second, first}, device, Transport::nccl))[0], 11);
  std::vector<std::string> all = calls();
  EXPECT_EQ(std::count(all.begin(), all.end(), "ncclCommInitAll 0 1"), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), "ncclCommInitAll 1 0"), 0);
  EXPECT_EQ(std::count(all.begin(), all.end(), "ncclReduce 6 7 0 0 1"), 1);  // the sum is on device 0
}

TEST_F(CommNccl, RefusesWhatItHasNoCallFor) {
  const Given first(counted(6), {6}, 0);
  const Given again(counted(6), {6}, 0);
  const Given second(counted(6), {6}, 1);
  const Given on_host(counted(6), {6}, Place::host());
  const Given shorts(counted<std::int16_t>(6), {6}, 0);
  const Given apart(counted(4), {2, 2}, {1, 2}, 0);
  const Given out(counted(4), {2, 2}, {1, 2}, 1);
  EXPECT_THAT(refused([&] { static_cast<void>(broadcast(on_host, {0}, Transport::nccl)); }), HasSubstr("on the host"));
  EXPECT_THAT(refused([&] {
                static_cast<void>(broadcast(first, {1, 1}, Transport::nccl));
              }),
              HasSubstr("device 1 is there twice"));
  EXPECT_THAT(refused([&] { broadcast(apart, std::vector<TensorView>{out}, Transport::nccl); }),
              HasSubstr("lie apart"));
  EXPECT_THAT(refused([&] { static_cast<void>(reduce_add({first, again}, 0, Transport::nccl)); }), HasSubstr("twice"));
  EXPECT_THAT(refused([&] { static_cast<void>(reduce_add({second}, 0, Transport::nccl)); }),
              HasSubstr("no input is on device 0"));
  EXPECT_THAT(refused([&] { static_cast<void>(reduce_add({apart}, 0, Transport::nccl)); }), HasSubstr("lie apart"));
  EXPECT_THAT(refused([&] { static_cast<void>(reduce_add({shorts}, 0, Transport::nccl)); }), HasSubstr("int16"));
  EXPECT_THAT(calls(), ElementsAre());
}

TEST_F(CommNccl, ThatFailsIsATypedError) {
  const Given given(counted(6), {6}, 0);
  for (const char* call : {"ncclCommInitAll", "ncclGroupStart", "ncclGroupEnd", "ncclBroadcast"}) {
    setenv("CISTERN_FAKE_NCCL_FAILS", call, 1);
    try {
      static_cast<void>(broadcast(given, {1}, Transport::nccl));
      ADD_FAILURE() << call;
    } catch (const LibraryError& error) {
      EXPECT_EQ(error.call(), call);
      EXPECT_THAT(error.what(), HasSubstr("the network is made up"));
    }
    EXPECT_EQ(memory_allocated(1), 0U);
  }
  unsetenv("CISTERN_FAKE_NCCL_FAILS");
  EXPECT_EQ(values_of<float>(broadcast(given, {1}, Transport::nccl).front()), counted(6));
}

TEST_F(CommNccl, IsNotSupportedWithoutTheLibrary) {
  setenv("CISTERN_LIBNCCL", "/nowhere/libnccl.so.2", 1);
  const Given given(counted(6), {6}, 0);
  EXPECT_THAT(refused([&] { static_cast<void>(broadcast(given, {1}, Transport::nccl)); }),
              HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_EQ(values_of<float>(broadcast(given, {1}).front()), counted(6));
}

TEST(CommNcclOfSimulatedDevices, IsNotSupported) {
  setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=1GiB", 1);
  setenv("CISTERN_LIBNCCL", CISTERN_FAKE_LIBNCCL, 1);
  const Given given(counted(6), {6}, 0);
  EXPECT_THAT(error_of<NotSupported>([&] { static_cast<void>(broadcast(given, {1}, Transport::nccl)); }),
              HasSubstr("simulated"));
}

TEST(CommThroughOurLibcuda, PacksAndAddsThere) {
  setenv("CISTERN_DEVICE", "cuda", 1);
  setenv("CISTERN_LIBCUDA", CISTERN_SIMULATED_LIBCUDA, 1);
  setenv("CISTERN_SIMULATED", "devices=2,capacity=1GiB", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  const Given first(counted(6), {2, 3}, {1, 2}, 0);
  const Given second(counted(6), {2, 3}, {1, 2}, 1);
  EXPECT_EQ(values_of<float>(reduce_add({first, second}, 1)), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(values_of<float>(broadcast(first, {1}).front()), counted(6));
  const auto run = process_driver().controls->run_strided;
  EXPECT_EQ(run(nullptr, 2, 0, 0, nullptr, nullptr, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(run(nullptr, 0, 9, 0, nullptr, nullptr, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(run(nullptr, 0, 0, 66, nullptr, nullptr, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(run(nullptr, 0, 0, 1, nullptr, nullptr, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace cistern::comm
