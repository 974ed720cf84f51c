// The loader of the CUDA driver, on a library that looks like it.

#include "runtime/cuda_driver.h"

#include <cistern/device.h>
#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/memory.h>
#include <cistern/stream.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/context.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kFake = CISTERN_FAKE_LIBCUDA;

class CudaDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("CISTERN_FAKE_CUDA_VERSION");
    unsetenv("CISTERN_FAKE_CUDA_LACKS");
  }
  static std::string refusal(const std::string& library) {
    try {
      static_cast<void>(load_cuda_driver(library));
    } catch (const NotSupported& error) {
      return error.what();
    }
    return "it was loaded";
  }
};

std::vector<std::string> requests() {
  void* library = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
  const auto text = reinterpret_cast<const char* (*)()>(dlsym(library, "cistern_fake_cuda_requests"));
  std::istringstream lines(text());
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  dlclose(library);
  return all;
}

TEST_F(CudaDriver, IsAskedForEachEntryOnceByItsOwnVersionAndForTheLegacyStream) {
  const std::size_t before = load_cuda_driver(kFake).init ? requests().size() : 0;
  constexpr std::size_t kBesideEntries = 4;  // our own driver's controls, and what launches kernels
  ASSERT_EQ(before % (kDriverEntryCount + kBesideEntries), 0U);
  static_cast<void>(load_cuda_driver(kFake));
  const std::vector<std::string> all = requests();
  std::vector<std::string> expected;
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  expected.push_back(std::string(symbol) + " " + std::to_string(version) + " 1");
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  expected.push_back("cistern_simulated_controls 12000 1");  // which only ours has
  expected.insert(expected.end(), {"cuLibraryLoadData 12000 1", "cuLibraryGetKernel 12000 1", "cuLaunchKernel 4000 1"});
  EXPECT_EQ(std::vector<std::string>(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()), expected);
}

TEST_F(CudaDriver, TableReachesTheLibrary) {
  const DriverApi api = load_cuda_driver(kFake);
  Contexts contexts(api);
  EXPECT_EQ(contexts.device_count(), 2);
  const ContextGuard guard(api, contexts.primary(1));
  CUdeviceptr pointer = 0;
  ASSERT_EQ(api.mem_alloc(&pointer, 4096), CUDA_SUCCESS);
  EXPECT_EQ(api.memset_d8_async(pointer, 7, 4096, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<unsigned char*>(pointer), 7);
  EXPECT_EQ(api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_free(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CudaDriver, BlockNotesAreOff) {
  const DriverApi api = load_cuda_driver(kFake);
  EXPECT_EQ(api.note_allocate.function, nullptr);
  EXPECT_EQ(api.note_free.function, nullptr);
}

TEST_F(CudaDriver, RequiredEntryThatIsMissingIsNamedWithTheDriversVersion) {
  setenv("CISTERN_FAKE_CUDA_LACKS", "cuEventRecord", 1);
  EXPECT_THAT(refusal(kFake), AllOf(HasSubstr(kFake), HasSubstr("cuEventRecord"), HasSubstr("version 12.8")));
}

TEST_F(CudaDriver, OptionalEntriesThatAreMissingStayNull) {
  setenv("CISTERN_FAKE_CUDA_LACKS", "cuMemCreate,cuMemMap", 1);
  const DriverApi api = load_cuda_driver(kFake);
  EXPECT_FALSE(api.mem_create);
  EXPECT_FALSE(api.mem_map);
  EXPECT_TRUE(api.mem_unmap);
}

TEST_F(CudaDriver, OldestVersionIsEnoughAndAnOlderOneIsRefused) {
  setenv("CISTERN_FAKE_CUDA_VERSION", "12000", 1);
  EXPECT_TRUE(load_cuda_driver(kFake).stream_get_id);
  setenv("CISTERN_FAKE_CUDA_VERSION", "11080", 1);
  EXPECT_THAT(refusal(kFake), AllOf(HasSubstr("11.8"), HasSubstr("CUDA 12.0 or later")));
}

TEST_F(CudaDriver, LibraryWithoutTheLoadersEntryIsRefusedByName) {
  EXPECT_THAT(refusal(CISTERN_OLD_LIBCUDA),
              AllOf(HasSubstr("cuGetProcAddress_v2"), HasSubstr("11.4"), HasSubstr("CUDA 12.0 or later")));
}

TEST_F(CudaDriver, LibraryThatIsNotThereIsNamed) {
  EXPECT_THAT(refusal("libcuda-of-nowhere.so.1"), HasSubstr("libcuda-of-nowhere.so.1"));
}

TEST_F(CudaDriver, EnvironmentNamesAnotherLibrary) {
  setenv("CISTERN_LIBCUDA", "some/other.so", 1);
  EXPECT_EQ(cuda_library(), "some/other.so");
  setenv("CISTERN_LIBCUDA", "", 1);
  EXPECT_EQ(cuda_library(), "libcuda.so.1");
  unsetenv("CISTERN_LIBCUDA");
  EXPECT_EQ(cuda_library(), "libcuda.so.1");
}

}  // namespace
}  // namespace cistern
