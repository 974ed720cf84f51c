// cuBLAS handles. Each case is a process: the driver and cuBLAS are loaded once.

#include <cistern/cistern.h>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "tests/byte_units.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

template <class Function>
Function of_fake(const char* symbol) {
  void* library = dlopen(CISTERN_FAKE_LIBCUBLAS, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

struct Told {
  void* stream = nullptr;
  void* workspace = nullptr;
  std::size_t bytes = 0;
};
Told told(BlasHandle handle) {
  Told told;
  of_fake<void (*)(BlasHandle, void**, void**, std::size_t*)>("cistern_fake_cublas_handle")(
      handle, &told.stream, &told.workspace, &told.bytes);
  return told;
}
int handles_made() { return of_fake<int (*)()>("cistern_fake_cublas_made")(); }

class BlasHandles : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "cuda", 1);
    setenv("CISTERN_LIBCUDA", CISTERN_FAKE_LIBCUDA, 1);
    setenv("CISTERN_LIBCUBLAS", CISTERN_FAKE_LIBCUBLAS, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void SetUp() override { unsetenv("CISTERN_FAKE_CUBLAS_FAILS"); }
};

TEST_F(BlasHandles, AreBoundToTheCurrentStreamWithMemoryOfThePools) {
  const BlasHandle handle = current_blas_handle();
  EXPECT_EQ(told(handle).stream, nullptr);
  EXPECT_EQ(told(handle).bytes, 32 * kMega);
  EXPECT_EQ(memory_allocated(), 32 * kMega);
  const Stream stream = Stream::create();
  const StreamGuard guard(stream);
  EXPECT_EQ(current_blas_handle(), handle);
  EXPECT_EQ(told(handle).stream, stream.native_handle());
  EXPECT_NE(told(handle).workspace, nullptr);
  EXPECT_EQ(memory_allocated(), 32 * kMega);  // the other stream's went back
}

TEST_F(BlasHandles, AreAskedForAgainWithoutAnAllocation) {
  const BlasHandle handle = current_blas_handle();
  const Told before = told(handle);
  const MemoryStats stats = memory_stats();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(current_blas_handle(), handle);
  EXPECT_EQ(told(handle).workspace, before.workspace);
  EXPECT_EQ(memory_stats().flat(), stats.flat());
  EXPECT_EQ(handles_made(), 1);
}

TEST_F(BlasHandles, AreOneForEachThreadAndDevice) {
  const BlasHandle here = current_blas_handle();
  BlasHandle there = nullptr;
  {
    const DeviceGuard guard(1);
    there = current_blas_handle();
    EXPECT_NE(there, here);
    EXPECT_EQ(memory_allocated(1), 32 * kMega);
  }
  EXPECT_EQ(current_blas_handle(), here);
  std::thread([&] {
    const BlasHandle others = current_blas_handle();
    EXPECT_NE(others, here);
    EXPECT_NE(others, there);
  }).join();
  EXPECT_EQ(handles_made(), 3);
}

TEST_F(BlasHandles, OfThreadsThatEndedServeOthersAndTheirMemoryGoesBack) {
  BlasHandle first = nullptr;
  std::thread([&] { first = current_blas_handle(); }).join();
  EXPECT_EQ(memory_allocated(), 0U);
  BlasHandle second = nullptr;
  std::thread([&] { second = current_blas_handle(); }).join();
  EXPECT_EQ(second, first);
  EXPECT_EQ(handles_made(), 1);
}

TEST_F(BlasHandles, HaveAnotherWorkspaceInACapture) {
  const Stream stream = Stream::create();
  const StreamGuard guard(stream);
  const BlasHandle handle = current_blas_handle();
  const void* const plain = told(handle).workspace;
  const PoolId id = graph_pool_handle();
  stream.begin_capture();
  begin_allocate_to_pool(current_device(), id, PoolFilter::stream(stream));
  EXPECT_EQ(current_blas_handle(), handle);
  const void* const captured = told(handle).workspace;
  EXPECT_NE(captured, plain);
  EXPECT_EQ(current_blas_handle(), handle);
  EXPECT_EQ(told(handle).workspace, captured);
  end_allocate_to_pool(current_device(), id);
  static_cast<void>(stream.end_capture());
  EXPECT_EQ(current_blas_handle(), handle);
  EXPECT_NE(told(handle).workspace, captured);  // which is the graph's from now on
  release_pool(current_device(), id);
}

TEST_F(BlasHandles, ThatFailAreTypedErrorsAndNothingIsKept) {
  for (const char* function : {"cublasCreate", "cublasSetStream", "cublasSetWorkspace"}) {
    setenv("CISTERN_FAKE_CUBLAS_FAILS", function, 1);
    try {
      static_cast<void>(current_blas_handle());
      ADD_FAILURE() << function;
    } catch (const LibraryError& error) {
      EXPECT_EQ(error.code(), CUBLAS_STATUS_ALLOC_FAILED);
      EXPECT_EQ(error.call(), function);
      EXPECT_THAT(error.what(), HasSubstr("the resource allocation failed"));
    }
    EXPECT_EQ(memory_allocated(), 0U) << function;
  }
  unsetenv("CISTERN_FAKE_CUBLAS_FAILS");
  const BlasHandle handle = current_blas_handle();
  EXPECT_NE(told(handle).workspace, nullptr);
  EXPECT_EQ(handles_made(), 1);
}

TEST_F(BlasHandles, ThatCannotBeBoundAnewKeepTheirWorkspace) {
  const BlasHandle handle = current_blas_handle();
  const Told before = told(handle);
  const Stream other = Stream::create();
  const StreamGuard guard(other);
  for (const char* function : {"an allocation", "cublasSetStream", "cublasSetWorkspace"}) {
    setenv("CISTERN_FAKE_CUBLAS_FAILS", function, 1);
    if (function == std::string("an allocation")) set_memory_fraction(0.0001);
    ::testing::internal::CaptureStderr();
    EXPECT_THROW(static_cast<void>(current_blas_handle()), std::exception) << function;
    static_cast<void>(::testing::internal::GetCapturedStderr());
    set_memory_fraction(1);
    unsetenv("CISTERN_FAKE_CUBLAS_FAILS");
    const Told after = told(handle);
    const bool is_ours = after.stream == before.stream && after.workspace == before.workspace;
    EXPECT_TRUE(is_ours || after.workspace == nullptr) << function;
    EXPECT_EQ(memory_allocated(), 32 * kMega) << function;
    const StreamGuard back{default_stream()};
    EXPECT_EQ(current_blas_handle(), handle);
    EXPECT_EQ(told(handle).workspace, before.workspace) << function;
  }
}

TEST_F(BlasHandles, ThatTheCallerBoundElsewhereComeBack) {
  const BlasHandle handle = current_blas_handle();
  const Told before = told(handle);
  const Stream other = Stream::create();
  static_cast<void>(
      of_fake<cublasStatus_t (*)(BlasHandle, cudaStream_t)>("cublasSetStream_v2")(handle, other.native_handle()));
  EXPECT_EQ(current_blas_handle(), handle);
  EXPECT_EQ(told(handle).stream, nullptr);
  EXPECT_EQ(told(handle).workspace, before.workspace);
}

TEST_F(BlasHandles, WithoutMemoryForTheWorkspaceAreAnOutOfMemoryError) {
  set_memory_fraction(0.0001);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(static_cast<void>(current_blas_handle()), OutOfMemoryError);
  static_cast<void>(::testing::internal::GetCapturedStderr());
  set_memory_fraction(1);
  EXPECT_NE(told(current_blas_handle()).workspace, nullptr);
}

TEST_F(BlasHandles, WithoutCublasAreNotSupported) {
  setenv("CISTERN_LIBCUBLAS", "/nowhere/libcublas.so.13", 1);
  try {
    static_cast<void>(current_blas_handle());
    ADD_FAILURE();
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/libcublas.so.13"));
  }
  setenv("CISTERN_LIBCUBLAS", CISTERN_FAKE_LIBCUDA, 1);
  EXPECT_THROW(static_cast<void>(current_blas_handle()), NotSupported);  // a library without its functions
  setenv("CISTERN_LIBCUBLAS", CISTERN_FAKE_LIBCUBLAS, 1);
  EXPECT_NE(current_blas_handle(), nullptr);
}

TEST(BlasHandlesOfSimulatedDevices, AreNotSupported) {
  setenv("CISTERN_DEVICE", "simulated:capacity=1GiB", 1);
  setenv("CISTERN_LIBCUBLAS", CISTERN_FAKE_LIBCUBLAS, 1);
  EXPECT_THROW(static_cast<void>(current_blas_handle()), NotSupported);
  EXPECT_EQ(handles_made(), 0);
  EXPECT_EQ(memory_allocated(), 0U);
}

}  // namespace
}  // namespace cistern
